// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/test/lab"
)

// speaks has a pod say who reaches it.
func (r *linkedRig) speaks(h *lab.Host) error {
	ln, err := h.Listen("tcp", fmt.Sprintf(":%d", tells))
	if err != nil {
		return err
	}
	r.t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				from, _ := netip.ParseAddrPort(c.RemoteAddr().String())
				io.WriteString(c, from.Addr().Unmap().String())
			}()
		}
	}()
	return nil
}

// seenAs is the address by which a machine reaches an address.
func (r *linkedRig) seenAs(from *lab.Host, to string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), refusedWithin)
	defer cancel()
	c, err := from.DialContext(ctx, "tcp", net.JoinHostPort(to, strconv.Itoa(tells)))
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(refusedWithin)); err != nil {
		return "", err
	}
	said, err := io.ReadAll(c)
	return string(said), err
}

// reaches waits until a machine reaches an address, and is seen as it should be.
func (r *linkedRig) reaches(what string, from *lab.Host, to, as string) {
	r.t.Helper()
	begin := time.Now()
	r.eventually(what, nil, func() error {
		got, err := r.seenAs(from, to)
		if err == nil && got != as {
			err = fmt.Errorf("it is seen as %q, want %q", got, as)
		}
		return err
	})
	r.t.Logf("%s after %v", what, time.Since(begin).Round(time.Millisecond))
}

// shares are the ranges of a pod's node.
func (p pod) shares() []string {
	if p.share6 == "" {
		return []string{p.share}
	}
	return []string{p.share, p.share6}
}

// bothFamilies gives a pod an IPv6 address, too.
func (r *rig) bothFamilies(h *lab.Host, p *pod, number int) {
	r.t.Helper()
	gateway := fmt.Sprintf("fd99:0:0:%d::1", number)
	p.addr6, p.share6 = fmt.Sprintf("fd99:0:0:%d::10", number), fmt.Sprintf("fd99:0:0:%d::/64", number)
	err := errors.Join(h.Sysctl("ipv6/conf/all/forwarding", "1"), address6(h, bridge, gateway),
		address6(p.host, "eth0", p.addr6), p.host.Default(gateway))
	if err != nil {
		r.t.Fatal(err)
	}
}

// address6 gives a link one more address, which is usable at once.
func address6(h *lab.Host, link, addr string) error {
	l, err := h.Netlink().LinkByName(link)
	if err != nil {
		return err
	}
	return h.Netlink().AddrAdd(l, &netlink.Addr{Flags: unix.IFA_F_NODAD,
		IPNet: &net.IPNet{IP: net.ParseIP(addr), Mask: net.CIDRMask(64, 128)}})
}

// bothWays has pods of two nodes of the two clusters reach each other by both IP versions, with their own addresses.
func (r *linkedRig) bothWays(how string, one, other pod) {
	r.t.Helper()
	for _, way := range [][2]pod{{one, other}, {other, one}} {
		what := fmt.Sprintf("%s, %s to %s", how, way[0].host.Name(), way[1].host.Name())
		r.reaches(what+" by IPv4", way[0].host, way[1].addr, way[0].addr)
		r.reaches(what+" by IPv6", way[0].host, way[1].addr6, way[0].addr6)
	}
}

// familiesAndNodes has both clusters of type p2p: pods reach each other by IPv6, and a node itself is seen by its
// address in the mesh, by which it is reached too.
func (r *linkedRig) familiesAndNodes(*testing.T) {
	a, d := r.east.nodes[0], r.west.nodes[2]
	podA, podD := r.east.pods[0], r.west.pods[2]
	r.bothWays("node to node", podA, podD)
	for _, n := range []*node{a, d} {
		if err := r.speaks(n.host); err != nil {
			r.t.Fatal(err)
		}
	}
	for _, way := range []struct {
		from, to *node
		pod, own pod
	}{{a, d, podD, podA}, {d, a, podA, podD}} {
		r.reaches(way.from.name+" reaches a pod", way.from.host, way.pod.addr, way.from.overlay4.String())
		if way.from.place.Kind.IPv6 { // without a route to anywhere the kernel does not ask our rules
			r.reaches(way.from.name+" reaches a pod by IPv6", way.from.host, way.pod.addr6, way.from.overlay6.String())
		}
		r.reaches(way.from.name+" reaches a node", way.from.host, way.to.overlay4.String(), way.from.overlay4.String())
		r.eventually("a pod reaches "+way.to.name, nil, func() error {
			_, err := r.seenAs(way.own.host, way.to.overlay4.String())
			return err
		})
	}
}

// familiesAndNodesByGateways: a node that has no tunnel with the one at the other end is seen by the address of the
// last gateway on the way.
func (r *linkedRig) familiesAndNodesByGateways(*testing.T) {
	a, d := r.east.nodes[0], r.west.nodes[2]
	podA, podD := r.east.pods[0], r.west.pods[2]
	r.bothWays("through gateways", podA, podD)
	door := r.doorOf(d, podA.addr)
	r.reaches("a node behind a gateway reaches a pod", d.host, podA.addr, door.overlay4.String())
	r.reaches("a node behind a gateway reaches a pod by IPv6", d.host, podA.addr6, door.overlay6.String())
	door = r.carrier(podD.addr)
	r.reaches("a node reaches a pod behind a gateway", a.host, podD.addr, door.overlay4.String())
	r.reaches("a gateway itself reaches a pod", door.host, podA.addr, door.overlay4.String())
}

// doorOf is the gateway through which a node of the west sends to an address of the east.
func (r *linkedRig) doorOf(n *node, to string) (found *node) {
	r.t.Helper()
	r.eventually(n.name+" knows through whom it reaches "+to, nil, func() error {
		var e explanation
		if n.answer("MeshExplanation", &e, "explain", to); !e.InMesh || e.Peer == nil {
			return errNotYet
		}
		for _, door := range r.west.nodes {
			if door.host.Name() == e.Peer.Node {
				found = door
				return nil
			}
		}
		return fmt.Errorf("it sends to %s", e.Peer.Node)
	})
	return found
}
