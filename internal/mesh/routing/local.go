// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/kernel/machine"
	"github.com/tombolo-io/tombolo/internal/limit"
	"github.com/tombolo-io/tombolo/internal/nat"
	"github.com/tombolo-io/tombolo/internal/topology"
)

// ResolverFiles are where this machine's resolvers stand: its own list, and behind the
// stub of systemd-resolved that of the servers that it asks.
func ResolverFiles() []string {
	return []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"}
}

// Local gathers what this machine must reach in clear, but for what lies on the mesh's
// own link.
func Local(link string, resolvers []string) (topology.Local, error) {
	addresses, err := machine.Addresses()
	if err != nil {
		return topology.Local{}, fault.New(fault.CodeUnsupported, "reading the addresses of this machine").Because(err)
	}
	gateways, err := machine.Gateways()
	if err != nil {
		return topology.Local{}, fault.New(fault.CodeUnsupported, "reading the default gateways of this machine").Because(err)
	}
	var files [][]byte
	for _, path := range resolvers {
		if data, err := readHead(path, limit.ResolverFile); err == nil { // who has none has none
			files = append(files, data)
		}
	}
	return localOf(addresses, gateways, files, link), nil
}

// localOf is what counts of it, sorted: loopback and link-local addresses are nobody's range.
func localOf(addresses []nat.Address, gateways []netip.Addr, resolvers [][]byte, link string) topology.Local {
	var out topology.Local
	add := func(to *[]netip.Addr, a netip.Addr) {
		a = a.Unmap().WithZone("")
		if a.IsValid() && !a.IsLoopback() && !a.IsUnspecified() && !a.IsLinkLocalUnicast() && !a.IsMulticast() && !slices.Contains(*to, a) {
			*to = append(*to, a)
		}
	}
	for _, a := range addresses {
		if a.Interface != link {
			add(&out.Addresses, a.Prefix.Addr())
		}
	}
	for _, a := range gateways {
		add(&out.Gateways, a)
	}
	for _, data := range resolvers {
		for _, a := range nameservers(string(data)) {
			add(&out.Resolvers, a)
		}
	}
	for _, l := range []*[]netip.Addr{&out.Addresses, &out.Gateways, &out.Resolvers} {
		slices.SortFunc(*l, netip.Addr.Compare)
	}
	return out
}

// nameservers reads resolv.conf(5).
func nameservers(text string) []netip.Addr {
	var out []netip.Addr
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(words[1]); err == nil {
			out = append(out, a)
		}
	}
	return out
}

// readHead reads the beginning of a file.
func readHead(path string, most int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, most))
}
