// SPDX-License-Identifier: Apache-2.0

//go:build guest

package mesh

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// newIPsecLinked is three linked clusters whose nodes all have the kernel's IPsec.
func newIPsecLinked(t *testing.T) *linkedRig {
	t.Helper()
	l := labtest.New(t, "mesh")
	open := kind(t, "open")
	g, err := lab.NewPlaces(l, kind(t, "port-restricted"), open, open, open, open)
	if err != nil {
		t.Fatal(err)
	}
	r := linkedRigOf(bareRig(t, l, g), [][]*lab.Place{g.All[:1], g.All[1:4], g.All[4:]},
		linkedOptions{engine: meshconf.IPsec})
	for _, n := range r.all() {
		n.edit(func(whole map[string]any) {
			section(whole, "mesh")["ipsec"] = map[string]any{"esp": meshconf.ESPAuto}
		})
	}
	return r
}

// masquerades are those of network plugins at all nodes, off.
func (r *linkedRig) masquerades() (all []*lab.Filter) {
	for _, n := range r.all() {
		all = append(all, n.host.Masquerade("tombolo0"), n.host.Masquerade(bridge))
	}
	return all
}

// switched has filters be in force, or none of them.
func (r *linkedRig) switched(all []*lab.Filter, change func(*lab.Filter) error) {
	r.t.Helper()
	for _, f := range all {
		if err := change(f); err != nil {
			r.t.Fatal(err)
		}
	}
}

// without has a step run while filters are off: the masquerade of a link does not know which sources are nodes.
func (r *linkedRig) without(all []*lab.Filter, step func(*testing.T)) func(*testing.T) {
	return func(t *testing.T) {
		r.switched(all, (*lab.Filter).Off)
		step(t)
		r.switched(all, (*lab.Filter).On)
	}
}

func byGateways() map[string]any { return map[string]any{"networkType": "gateway"} }

// TestIPsecLinkedClusters: three linked clusters with the kernel's IPsec, node to node and through gateways. On no cable
// is a packet between them in clear, whatever happens.
func TestIPsecLinkedClusters(t *testing.T) {
	r := newIPsecLinked(t)
	r.clusters(p2p(), p2p(), p2p())
	r.mirror()
	masquerades := r.masquerades()
	r.switched(masquerades, (*lab.Filter).On)
	r.south.nodes[0].edit(func(whole map[string]any) { section(whole, "mesh")["keep"] = true })
	heard := r.heardAtFirst()
	together(r.all()...)
	r.shows(r.east.nodes[0], "west.b", "west.c", "west.d", "south.e")
	for _, n := range r.west.nodes {
		r.shows(n, "east.a", "south.e")
	}
	r.shows(r.south.nodes[0], "east.a", "west.b", "west.c", "west.d")
	keys := espKeys{}
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"node to node", r.ipsecNodeToNode},
		{"IPv6 and nodes themselves", r.familiesAndNodes},
		{"through gateways", r.ipsecThroughGateways},
		{"IPv6 and nodes themselves, through gateways", r.without(masquerades, r.familiesAndNodesByGateways)},
		{"a Service", r.service},
		{"a gateway is killed", r.killedAndExplained},
		{"mapped ranges", r.mapped},
		{"phases", func(*testing.T) { r.pass(r.ipsecPhases(keys)) }},
		{"who listens decrypts nothing", func(t *testing.T) { r.observed(t, keys) }},
		{"nothing in clear", func(*testing.T) { r.nothingInClear(heard) }},
	} {
		if !r.step(step.name, step.do) {
			return // what comes then would only wait
		}
	}
}

// ipsecNodeToNode has all clusters of type p2p.
func (r *linkedRig) ipsecNodeToNode(t *testing.T) {
	podA, podD, podE := r.east.pods[0], r.west.pods[2], r.south.pods[0]
	r.nodeToNode(t)
	r.bothWays("node to node", podA, podE)
	r.bothWays("node to node", podE, podD)
	r.keysTo(r.east.nodes[0], podD.addr, "west.d")
	e := r.south.nodes[0]
	r.eventually("packets of e to west.d go without UDP", e.role, func() error {
		s, err := e.status()
		for _, p := range s.Peers {
			for _, a := range p.SecurityAssociations {
				if p.Node == "west.d" && a.Sends && a.Raw {
					return nil
				}
			}
		}
		return cmp.Or(err, errNotYet)
	})
	r.bothWays("node to node, without UDP", podE, podD)
}

// ipsecThroughGateways has the west and the south be of type gateway.
func (r *linkedRig) ipsecThroughGateways(*testing.T) {
	a, d, podA, podD, podE := r.east.nodes[0], r.west.nodes[2], r.east.pods[0], r.west.pods[2], r.south.pods[0]
	r.gateways("b", "c", "e")
	r.clusters(p2p(), byGateways(), byGateways())
	r.noPeers(a, "west.d")
	r.bothWays("through gateways", podA, podD)
	r.bothWays("through gateways", podE, podD)
	r.shows(a, "west.b", "west.c", "south.e")
	r.shows(d, "b", "c")
	r.keysTo(a, podD.addr, "west.b", "west.c")
}

// killedAndExplained kills the gateway that carries what flows. Statuses say so, and when it is back.
func (r *linkedRig) killedAndExplained(t *testing.T) {
	a, podA, podD := r.east.nodes[0], r.east.pods[0], r.west.pods[2]
	f := r.flood(podA.host, netip.MustParseAddr(podD.addr))
	defer f.End()
	r.awaitAfter(f, time.Now())
	through := r.carrier(podD.addr)
	name := "west." + through.host.Name()
	through.kill()
	begin := time.Now()
	t.Logf("packets pass %v after %s was killed", r.awaitAfter(f, begin).Round(time.Millisecond), through.name)
	r.eventually("a's status says that "+name+" is down, and why", a.role, func() error {
		s, err := a.status()
		for _, p := range s.Peers {
			if p.Node == name && (p.State != down || p.Why == "") {
				err = fmt.Errorf("it is %s, %q", p.State, p.Why)
			}
		}
		return err
	})
	if now := r.carrier(podD.addr); now == through {
		t.Errorf("a still sends through %s", name)
	} else {
		r.keysTo(a, podD.addr, "west."+now.host.Name())
	}
	through.begin()
	through.awaitUp()
	r.shows(a, "west.b", "west.c", "south.e")
}

// shows waits until a node's status shows that it has tunnels with some peers, which carry packets, and with no others.
func (r *linkedRig) shows(n *node, peers ...string) {
	r.t.Helper()
	r.eventually(n.name+" has tunnels with "+strings.Join(peers, ", "), n.role, func() error {
		s, err := n.status()
		if err != nil {
			return err
		}
		var has []string
		for _, p := range s.Peers {
			sends := slices.ContainsFunc(p.SecurityAssociations, func(a association) bool { return a.Sends })
			if p.State != direct || !sends || p.Why != "" {
				return fmt.Errorf("%s is %s, %q, by %+v", p.Node, p.State, p.Why, p.SecurityAssociations)
			}
			has = append(has, p.Node)
		}
		for _, name := range peers {
			if !slices.ContainsFunc(has, func(p string) bool { return p == name }) {
				return fmt.Errorf("it has %v", has)
			}
		}
		return nil
	})
}

// keysTo checks that a node explains by which keys packets go to an address, and through whom: one of some nodes.
func (r *linkedRig) keysTo(n *node, to string, through ...string) {
	r.t.Helper()
	text, err := n.verb("explain", to)
	said := slices.ContainsFunc(through, func(name string) bool { return strings.Contains(text, name) })
	if err != nil || !said || !strings.Contains(text, "ipsec: from ") {
		r.t.Errorf("explain %s (%v) does not say that it goes through one of %q by keys:\n%s", to, err, through, text)
	}
}
