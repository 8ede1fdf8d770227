// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/socket"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/machine"
	"github.com/tombolo-io/tombolo/internal/mesh/nat"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// ResolverFiles are where this machine's resolvers stand: its own list, and behind the
// stub of systemd-resolved that of the servers that it asks.
func ResolverFiles() []string {
	return []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"}
}

// Around is what stands around a mesh on this machine.
type Around struct {
	Link      string
	Mark      uint32             // of the mesh's own packets
	Resolvers []string           // files
	Services  []topology.Service // that the node needs outside of the mesh
}

// Local gathers what this machine must reach in clear, but for what lies on the mesh's
// own link.
func (a Around) Local() (topology.Local, error) {
	addresses, err := machine.Addresses()
	if err != nil {
		return topology.Local{}, fault.New(fault.CodeUnsupported, "reading the addresses of this machine").Because(err)
	}
	gateways, err := machine.Gateways()
	if err != nil {
		return topology.Local{}, fault.New(fault.CodeUnsupported, "reading the default gateways of this machine").Because(err)
	}
	hops, err := machine.Defaults()
	if err != nil {
		return topology.Local{}, fault.New(fault.CodeUnsupported, "reading the default routes of this machine").Because(err)
	}
	var files [][]byte
	for _, path := range a.Resolvers {
		if data, err := readHead(path, resolverFile); err == nil { // a missing file has none
			files = append(files, data)
		}
	}
	out := localOf(addresses, gateways, files, a.Link)
	var outward []string
	for _, h := range hops {
		if i, err := net.InterfaceByIndex(h.Interface); err == nil { // one that has just gone leads nowhere
			outward = append(outward, i.Name)
		}
	}
	var sources []netip.Addr
	for _, s := range a.Services {
		if len(outward) > 0 {
			break
		}
		if from := a.towards(s.Addr); from.IsValid() {
			sources = append(sources, from)
		}
	}
	out.Underlay = underlay(addresses, outward, sources, a.Link)
	out.Services = a.Services
	return out, nil
}

// underlay are the addresses by which this machine reaches the others: those of the links
// of its default routes; where there is none, those from which packets to its services
// leave. Another link, as that of a site or a bridge for pods, may be announced.
func underlay(addresses []nat.Address, outward []string, sources []netip.Addr, link string) []netip.Addr {
	var out []netip.Addr
	for _, a := range addresses {
		at := a.Prefix.Addr().Unmap()
		usable := a.Interface != link && !at.IsLoopback() && !at.IsLinkLocalUnicast()
		if usable && (slices.Contains(outward, a.Interface) || slices.Contains(sources, at)) && !slices.Contains(out, at) {
			out = append(out, at)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// towards is the address of this machine from which packets to another one leave, by the
// kernel's own word: a UDP socket that is connected sends nothing.
func (a Around) towards(to netip.Addr) netip.Addr {
	d := net.Dialer{Timeout: meshProbe,
		Control: func(_, _ string, c syscall.RawConn) error { return socket.Permitted(socket.Mark(c, a.Mark)) }}
	const discard = 9
	conn, err := d.Dial("udp", netip.AddrPortFrom(to, discard).String())
	if err != nil {
		return netip.Addr{} // there is no way to it
	}
	defer conn.Close()
	return sourceOf(conn.LocalAddr())
}

func sourceOf(a net.Addr) netip.Addr {
	if u, ok := a.(*net.UDPAddr); ok {
		return u.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

// localOf is what counts of it, sorted: loopback and link-local addresses are nobody's range.
func localOf(addresses []nat.Address, gateways []netip.Addr, resolvers [][]byte, link string) topology.Local {
	var out topology.Local
	add := func(to *[]netip.Addr, a netip.Addr) {
		a = a.Unmap().WithZone("")
		if a.IsValid() && !a.IsLoopback() && !a.IsUnspecified() && !a.IsLinkLocalUnicast() && !a.IsMulticast() &&
			!slices.Contains(*to, a) {
			*to = append(*to, a)
		}
	}
	for _, a := range addresses {
		if a.Interface != link {
			add(&out.Addresses, a.Prefix.Addr())
			out.Networks = append(out.Networks, a.Prefix)
		}
	}
	out.Networks = topology.Networks(out.Networks)
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
