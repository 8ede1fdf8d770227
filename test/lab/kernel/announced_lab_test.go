// SPDX-License-Identifier: Apache-2.0

//go:build lab

package kernel_test

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// TestPeersReachWhatIsAnnouncedAndNothingElse: neither another address of this machine, nor
// what it translates, nor what it would route to; without a policy too, and also where
// connections are not followed. A service's address that is announced works as on any node.
func TestPeersReachWhatIsAnnouncedAndNothingElse(t *testing.T) {
	s := newSite(t)
	s.withIPv6()
	for _, a := range []string{"10.97.0.0/24", "fd10:97::/64"} { // of services
		s.in.Self.Ranges = append(s.in.Self.Ranges, netip.MustParsePrefix(a))
	}
	s.plan()
	for name, addrs := range map[string][]string{
		"docker0": {"172.17.0.1/16"}, "mgmt0": {"192.168.99.1/24", "fd99::1/64"},
		"kube-ipvs0": {"10.96.0.9/32", "10.97.0.9/32", "fd10:97::9/128"}, // as kube-proxy gives it with IPVS
	} {
		s.run("", "ip", "link", "add", name, "type", "bridge")
		s.run("", "ip", "link", "set", name, "up")
		for _, a := range addrs {
			family := []string{"ip", "addr", "add", a, "dev", name}
			if netip.MustParsePrefix(a).Addr().Is6() {
				family = append(family, "nodad")
			}
			s.run("", family...)
		}
	}
	// As kube-proxy translates a service's address, one of a node port, and a container's port.
	s.run(`table ip services {
	chain pre { type nat hook prerouting priority dstnat;
		ip daddr { 10.96.0.1, 10.97.0.1 } udp dport 53 dnat to 10.244.1.7:53
		ip daddr { 10.96.0.2, 10.97.0.2 } udp dport 53 dnat to 192.0.2.1:53
		fib daddr type local udp dport 30053 dnat to 10.244.1.7:53
	}
	chain post { type nat hook postrouting priority srcnat; ip daddr 192.0.2.1 masquerade; }
}
table ip6 services {
	chain pre { type nat hook prerouting priority dstnat; ip6 daddr { fd10:96::1, fd10:97::1 } udp dport 53 dnat to [fd10:1::7]:53; }
}
`, "nft", "-f", "-")
	atPod, atNode, atWorld := listen(t, s.pod, pod1+":53"), listen(t, s.host, "[::]:53"), listen(t, s.world, "192.0.2.1:53")
	atPod6 := listen(t, s.pod, "[fd10:1::7]:53")
	for _, c := range []struct {
		what   string
		conn   net.PacketConn
		src    string
		closed []string
		open   []string
	}{
		{"this machine", atNode, pod2, []string{"192.0.2.2", "172.17.0.1", "192.168.99.1", "10.96.0.9"}, []string{"10.97.0.9", "10.244.1.1", "100.112.0.1"}},
		{"a pod", atPod, pod2, []string{"10.96.0.1"}, []string{"10.97.0.1", pod1}},
		{"the world", atWorld, pod2, []string{"10.96.0.2", "192.0.2.1"}, []string{"10.97.0.2"}},
		{"this machine, by IPv6", atNode, "fd10:2::7", []string{"2001:db8::2", "fd99::1"}, []string{"fd10:97::9", "fd00:0:0:2::1"}},
		{"a pod, by IPv6", atPod6, "fd10:2::7", []string{"fd10:96::1"}, []string{"fd10:97::1", "fd10:1::7"}},
	} {
		send := func(dst, text string) {
			if netip.MustParseAddr(dst).Is6() {
				s.tun.send(udp6(c.src, dst, 53, text))
			} else {
				s.tun.send(udp(c.src, dst, 53, text))
			}
		}
		for _, dst := range c.open {
			for _, not := range c.closed { // in order: what gets through comes before
				send(not, "to "+not)
			}
			send(dst, "to "+dst)
			if got := datagram(t, c.conn); got != "to "+dst {
				t.Errorf("%s: %q came, want it to %s", c.what, got, dst)
			}
		}
	}
	// Where the kernel follows source routes, the address to which it was sent is not the last one.
	s.run("", "sysctl", "-w", "net.ipv4.conf.all.accept_source_route=1")
	s.tun.send(udpBy(pod2, "100.112.0.1", "192.168.99.1", 53, "by a source route"))
	s.tun.send(udp(pod2, "100.112.0.1", 53, "after it"))
	if got := datagram(t, atNode); got != "after it" {
		t.Errorf("at another address came %q", got)
	}
	// A port of the node leads where it leads at its address in the mesh, and not at others.
	s.tun.send(udp(pod2, "192.0.2.2", 30053, "at another address"))
	s.tun.send(udp(pod2, "100.112.0.1", 30053, "at its address in the mesh"))
	if got := datagram(t, atPod); got != "at its address in the mesh" {
		t.Errorf("by a port of the node came %q", got)
	}
	s.run(`table inet raw { chain pre { type filter hook prerouting priority raw; iifname "tombolo0" notrack; }; }
`, "nft", "-f", "-")
	s.tun.send(udp(pod2, "192.0.2.1", 53, "not followed, to elsewhere"))
	s.tun.send(udp(pod2, "192.0.2.2", 53, "not followed, to another address"))
	s.tun.send(udp(pod2, "100.112.0.1", 53, "not followed"))
	if got := datagram(t, atNode); got != "not followed" {
		t.Errorf("where connections are not followed came %q", got)
	}
	none(t, "went through", atWorld)
	dropped := uint64(0)
	err := s.host.Do(func() error {
		all, err := s.kernel.Counts()
		for _, c := range all {
			if topology.Reason(c.Chain, c.Line) == "destination" {
				dropped += c.Packets
			}
		}
		return err
	})
	if want := uint64(3*4 + 2*1 + 1*2 + 2*2 + 2*1 + 1 + 1 + 2); err != nil || dropped != want {
		t.Errorf("counted %s, %v, want %d", fmt.Sprint(dropped), err, want)
	}
}
