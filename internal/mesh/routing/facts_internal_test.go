// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/tombolo-io/tombolo/internal/mesh/nat"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

func addrs(texts ...string) (out []netip.Addr) {
	for _, s := range texts {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func TestLocalFacts(t *testing.T) {
	at := func(link, prefix string) nat.Address {
		return nat.Address{Interface: link, Prefix: netip.MustParsePrefix(prefix), Up: true}
	}
	got := localOf([]nat.Address{
		at("lo", "127.0.0.1/8"), at("lo", "::1/128"), at("eth0", "192.0.2.2/24"), at("eth0", "fe80::1/64"), at("eth0", "2001:db8::2/64"),
		at("cni0", "10.244.1.1/24"), at("tombolo0", "100.112.0.1/32"), at("eth1", "192.0.2.2/32"),
	}, append(addrs("192.0.2.1", "fe80::1", "2001:db8::1"), netip.Addr{}), [][]byte{
		[]byte("# nameserver 10.0.0.9\nsearch x\nnameserver 127.0.0.53\nnameserver\t10.0.0.53 # x\noptions edns0\nnameserver fe80::53%eth0\nnameserver\n"),
		[]byte("nameserver 2001:db8::53\nnameserver 10.0.0.53\nnameserver nonsense"),
	}, "tombolo0")
	want := topology.Local{
		Addresses: addrs("10.244.1.1", "192.0.2.2", "2001:db8::2"), Gateways: addrs("192.0.2.1", "2001:db8::1"), Resolvers: addrs("10.0.0.53", "2001:db8::53"),
		Networks: []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/64")},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}

// TestUnderlay: the links of the default routes count, and where there is none the
// addresses from which services are reached.
func TestUnderlay(t *testing.T) {
	all := []nat.Address{}
	for _, a := range [][2]string{{"lo", "127.0.0.1/8"}, {"eth0", "192.0.2.2/24"}, {"eth0", "fe80::1/64"}, {"eth0", "2001:db8::2/64"}, {"lan0", "192.168.7.1/24"}, {"tombolo0", "100.112.0.1/32"}} {
		all = append(all, nat.Address{Interface: a[0], Prefix: netip.MustParsePrefix(a[1]), Up: true})
	}
	for _, c := range []struct {
		outward []string
		sources []netip.Addr
		want    []netip.Addr
	}{
		{nil, nil, nil},
		{[]string{"eth0"}, nil, addrs("192.0.2.2", "2001:db8::2")},
		{[]string{"eth0", "tombolo0"}, nil, addrs("192.0.2.2", "2001:db8::2")},
		{nil, addrs("192.168.7.1", "10.0.0.9"), addrs("192.168.7.1")},
	} {
		if got := underlay(all, c.outward, c.sources, "tombolo0"); !slices.Equal(got, c.want) {
			t.Errorf("%v and %v: %v, want %v", c.outward, c.sources, got, c.want)
		}
	}
}

// The files of resolvers may be missing, or longer than anybody writes them.
func TestFilesOfResolvers(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "resolv.conf")
	if err := os.WriteFile(file, append([]byte("nameserver 192.0.2.53\n"), make([]byte, 1<<20)...), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Around{Link: "tombolo0", Resolvers: []string{filepath.Join(dir, "none"), file}}.Local()
	if err != nil || !slices.Equal(got.Resolvers, addrs("192.0.2.53")) {
		t.Errorf("%+v, %v", got, err)
	}
}
