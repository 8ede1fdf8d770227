// SPDX-License-Identifier: Apache-2.0

//go:build guest

package mesh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// TestEngineSwitch: two of three nodes, one of them behind a NAT, are moved from WireGuard to IPsec one by one, and
// back. Packets and TCP connections between all of them continue after each step, nothing of it is heard in clear, and
// the status says what carries each peer's packets, and why.
func TestEngineSwitch(t *testing.T) {
	l := labtest.New(t, "mesh")
	open := kind(t, "open")
	g, err := lab.NewPlaces(l, open, kind(t, "port-restricted"), open)
	if err != nil {
		t.Fatal(err)
	}
	r := bareRig(t, l, g)
	r.startDiscovery()
	var nodes []*node
	for i := range 3 {
		n := r.withEngine(i, meshconf.Userspace)
		n.edit(func(whole map[string]any) { section(whole, "mesh")["keep"] = true })
		nodes = append(nodes, n)
	}
	t.Cleanup(func() {
		for _, n := range nodes {
			if t.Failed() {
				t.Logf("%s has %s", n.name, n.xfrm())
			}
		}
	})
	together(nodes...)
	var all []*pairTraffic
	for i, n := range nodes {
		all = append(all, r.begin(n, nodes[(i+1)%len(nodes)]))
	}
	for _, p := range all {
		r.awaitAfter(p.packets, time.Now())
	}
	for _, engine := range []string{meshconf.IPsec, meshconf.Userspace} {
		for _, n := range nodes[:2] {
			r.step(n.name+" to "+engine, func(t *testing.T) {
				n.stop()
				n.edit(func(whole map[string]any) { section(whole, "mesh")["engine"] = engine })
				together(n)
				up := time.Now()
				n.requireEngine(engine, "mesh.engine says so")
				for _, p := range all {
					took := r.awaitAfter(p.packets, up)
					if p.from == n || p.to == n {
						t.Attr("figure", fmt.Sprintf("%s to %s: packets pass %v after the start", p.from.name, p.to.name,
							took.Round(time.Millisecond)))
					}
					r.eventually(p.String()+" continues", nil, p.continues)
				}
				r.requireCarried(nodes)
			})
		}
	}
	r.step("only", func(t *testing.T) {
		a, b := nodes[0], nodes[2]
		a.stop()
		a.edit(func(whole map[string]any) {
			section(whole, "mesh")["engine"], section(whole, "mesh")["ipsec"] = meshconf.IPsec, map[string]any{"only": true}
		})
		together(a)
		r.eventually("it refuses "+b.name, a.role, func() error { return a.says(b, "runs engine wireguard") })
		r.eventually(b.name+" says why", b.role, func() error { return b.says(a, "mesh.ipsec.only") })
	})
	r.step("the port is busy", func(t *testing.T) { nodes[2].busy() })
	r.requireNoClearText(nodes...)
}

// busy moves a node from the kernel's WireGuard to IPsec, whose port another program has: the link that was kept stays.
// Then the port is the link's own, which is in nobody's way.
func (n *node) busy() {
	t := n.rig.t
	t.Helper()
	set := func(engine string, port int, ipsec map[string]any) {
		n.edit(func(whole map[string]any) {
			mesh := section(whole, "mesh")
			mesh["engine"], mesh["port"], mesh["ipsec"] = engine, port, ipsec
		})
	}
	n.stop()
	set(meshconf.Kernel, 4500, nil)
	together(n)
	n.stop()
	kept, err := n.host.Netlink().LinkByName("tombolo0")
	if err != nil || kept.Type() != "wireguard" {
		t.Fatalf("the link that was kept is %v: %v", kept, err)
	}
	other, err := n.host.ListenUDP("udp4", ":4501")
	if err != nil {
		t.Fatal(err)
	}
	set(meshconf.IPsec, 51820, map[string]any{"port": 4501})
	if said, _ := refused(t, n, false); !strings.Contains(said, "address_in_use") {
		t.Errorf("with a busy port it ended with\n%s", said)
	}
	if now, err := n.host.Netlink().LinkByName("tombolo0"); err != nil || now.Attrs().Index != kept.Attrs().Index {
		t.Errorf("the link that was kept is %v: %v", now, err)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	set(meshconf.IPsec, 51820, nil)
	together(n)
	n.requireLink("xfrm")
}

// pairTraffic is what goes all the time from one node to another and back: packets, and a TCP connection.
type pairTraffic struct {
	from, to *node
	packets  *lab.Flood
	stream   net.Conn
	said     int
}

func (p *pairTraffic) String() string {
	return fmt.Sprintf("the connection of %s to %s", p.from.name, p.to.name)
}

func (r *rig) begin(from, to *node) *pairTraffic {
	r.t.Helper()
	p := &pairTraffic{from: from, to: to, packets: from.flood(to.overlay4)}
	r.eventually(p.String()+" begins", nil, func() (err error) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		p.stream, err = from.host.DialContext(ctx, "tcp", netip.AddrPortFrom(to.overlay6, echo).String())
		return err
	})
	r.t.Cleanup(func() { p.stream.Close() })
	return p
}

// continues says something by the connection, and hears it again: it is the one of the start.
func (p *pairTraffic) continues() error {
	p.said++
	text := fmt.Appendf(nil, "%s%06d", marker, p.said)
	if err := p.stream.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := p.stream.Write(text); err != nil {
		return err
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(p.stream, got); err != nil {
		return err
	}
	if !bytes.Equal(got, text) {
		return fmt.Errorf("%q came back for %q", got, text)
	}
	return nil
}

// requireCarried checks that each node says what carries each other one's packets: IPsec if both run it.
func (r *rig) requireCarried(nodes []*node) {
	r.t.Helper()
	for i, n := range nodes {
		r.eventually(n.name+" says what carries its peers", n.role, func() error {
			s, err := n.status()
			if all := strings.Join(s.Warnings, "\n"); strings.Contains(all, "diver") {
				return errors.New(all)
			}
			for _, p := range s.Peers {
				at := slices.IndexFunc(nodes, func(o *node) bool { return o.host.Name() == p.Node })
				want, why := carriedBy(n, nodes[at])
				if p.Engine != want || p.EngineWhy != why || p.State != direct {
					err = errors.Join(err, fmt.Errorf("%s is %s by %s (%s), want %s (%s)", p.Node, p.State, p.Engine, p.EngineWhy,
						want, why))
				}
			}
			return err
		})
		next := nodes[(i+1)%len(nodes)]
		text, err := n.verb("explain", next.overlay4.String())
		want, why := carriedBy(n, next)
		if err != nil || !strings.Contains(text, why) || strings.Contains(text, "\nipsec: from") != (want == "ipsec") {
			r.t.Errorf("explain of %s (%v) says of %s:\n%s", n.name, err, next.name, text)
		}
	}
}

// carriedBy is what carries a node's packets to another one, and why not what both run.
func carriedBy(n, other *node) (engine, why string) {
	switch own, peer := n.started.Engine == meshconf.IPsec, other.started.Engine == meshconf.IPsec; {
	case own && peer:
		return "ipsec", ""
	case own:
		why = "it does not run ipsec"
	case peer:
		why = "it runs ipsec, and this node does not"
	}
	return "wireguard", why
}

// says checks for words in what a node says of another one, which it does not reach.
func (n *node) says(other *node, words string) error {
	p, err := n.peer(other)
	if err == nil && (p.State != "down" || !strings.Contains(p.Why, words)) {
		err = errors.New(p.State + ": " + p.Why)
	}
	return err
}
