// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

func listens(list []policy.Listener) (out []string) {
	for _, l := range list {
		if out = append(out, l.At.String()); l.Of != policy.ListenerOfHub {
			out = append(out, l.Of)
		}
	}
	return out
}

func TestWhatTheHubsListenersAre(t *testing.T) {
	machine := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("fd00::5"), netip.MustParseAddr("fe80::1%eth0")}
	for name, c := range map[string]struct {
		bound, advertised []string
		far, near         []string
	}{
		"one address":          {[]string{"10.0.0.5:8443"}, nil, []string{"10.0.0.5:8443"}, []string{"10.0.0.5:8443"}},
		"loopback":             {[]string{"127.0.0.1:8444"}, nil, nil, []string{"127.0.0.1:8444"}},
		"a mapped address":     {[]string{"[::ffff:10.0.0.5]:8443"}, nil, []string{"10.0.0.5:8443"}, []string{"10.0.0.5:8443"}},
		"all addresses":        {[]string{"[::]:8443"}, nil, []string{"10.0.0.5:8443", "[fd00::5]:8443", "[fe80::1]:8443"}, []string{"[::]:8443", "127.0.0.1:8443", "10.0.0.5:8443", "[fd00::5]:8443", "[fe80::1]:8443"}},
		"an advertised one":    {[]string{"10.0.0.5:8443"}, []string{"203.0.113.9:443", "hub.example:443", "10.0.0.5:8443"}, []string{"10.0.0.5:8443", "203.0.113.9:443"}, []string{"10.0.0.5:8443", "203.0.113.9:443"}},
		"several":              {[]string{"0.0.0.0:1", "127.0.0.1:2"}, nil, []string{"10.0.0.5:1", "[fd00::5]:1", "[fe80::1]:1"}, []string{"0.0.0.0:1", "127.0.0.1:1", "10.0.0.5:1", "[fd00::5]:1", "[fe80::1]:1", "127.0.0.1:2"}},
		"nothing is bound yet": {},
	} {
		var bound []netip.AddrPort
		for _, b := range c.bound {
			at := netip.MustParseAddrPort(b)
			bound = append(bound, netip.AddrPortFrom(at.Addr().Unmap(), at.Port()))
		}
		l := listenersOf(bound, machine, c.advertised)
		if !slices.Equal(listens(l.far), c.far) || !slices.Equal(listens(l.near), c.near) {
			t.Errorf("%s: %v and %v, want %v and %v", name, listens(l.far), listens(l.near), c.far, c.near)
		}
		for peer, near := range map[string]bool{"127.0.0.9": true, "::1": true, "10.0.0.5": true, "::ffff:10.0.0.5": true, "10.0.0.6": false, "fd00::6": false} {
			want := l.far
			if near {
				want = l.near
			}
			if got := l.seenBy(netip.MustParseAddr(peer)); !slices.Equal(got, want) {
				t.Errorf("%s: %s sees %v", name, peer, listens(got))
			}
		}
	}
}

// TestOwnAddressesThatChange: the kernel is asked once in a while, what it says next
// counts, and what was known stays if it does not answer.
func TestOwnAddressesThatChange(t *testing.T) {
	ln, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	clock, asked := time.Unix(1_000_000, 0), 0
	machine := []netip.Addr{netip.MustParseAddr("10.0.0.5")}
	var failed error
	o := NewOwnListeners()
	o.now = func() time.Time { return clock }
	o.interfaces = func() ([]netip.Addr, error) { asked++; return machine, failed }
	port := netip.MustParseAddrPort(ln.Addr().String()).Port()
	want := func(what string, times int, addrs ...string) {
		t.Helper()
		var at []string
		for _, a := range addrs {
			at = append(at, netip.AddrPortFrom(netip.MustParseAddr(a), port).String())
		}
		if got := listens(o.list().far); !slices.Equal(got, at) || asked != times {
			t.Errorf("%s: %v after %d questions, want %v after %d", what, got, asked, at, times)
		}
	}
	want("before it listens", 1)
	o.Bind(nil, ln)
	want("then", 2, "10.0.0.5")
	machine = []netip.Addr{netip.MustParseAddr("10.0.0.6"), netip.MustParseAddr("fd00::6")}
	want("at once", 2, "10.0.0.5")
	clock = clock.Add(limit.OwnAddresses)
	want("a while later", 3, "10.0.0.6", "fd00::6")
	clock, machine, failed = clock.Add(limit.OwnAddresses), nil, errors.New("no answer")
	want("without an answer", 4, "10.0.0.6", "fd00::6")
}

// A machine with very many addresses: looking each up in all others would take
// longer than a test may.
func TestListenersOfManyAddresses(t *testing.T) {
	machine := make([]netip.Addr, 400_000)
	for i := range machine { // each twice
		n := i / 2
		machine[i] = netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
	}
	l := listenersOf([]netip.AddrPort{netip.MustParseAddrPort("[::]:8443")}, machine, nil)
	if want := len(machine) / 2; len(l.far) != want || len(l.near) != want+1 {
		t.Errorf("%d and %d listeners, want %d of the machine", len(l.far), len(l.near), want)
	}
}
