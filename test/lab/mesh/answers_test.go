// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/test/lab"
)

// answer asks a node a verb with -o json, whose answer is of a kind.
func (n *node) answer(kind string, into any, args ...string) {
	n.rig.t.Helper()
	out, err := n.verb(append(args, "-o", "json")...)
	if err != nil {
		n.rig.t.Fatal(err)
	}
	var meta struct{ Kind, APIVersion string }
	if err := json.Unmarshal([]byte(out), &meta); err != nil || meta.Kind != kind || meta.APIVersion != "tombolo.dev/v1alpha1" {
		n.rig.t.Fatalf("%q is no %s: %v\n%s", args, kind, err, out)
	}
	if err := json.Unmarshal([]byte(out), into); err != nil {
		n.rig.t.Fatalf("%q: %v\n%s", args, err, out)
	}
}

// ask runs a program on the node's machine that prints JSON.
func (n *node) ask(into any, words ...string) {
	n.rig.t.Helper()
	out, err := n.rig.command(n.host, nil, words[0], words[1:]...)
	if err != nil {
		n.rig.t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(out), into); err != nil {
		n.rig.t.Fatalf("%q: %v\n%s", words, err, out)
	}
}

// TestMeshHairpin: what netcheck says of the NAT is what it is built to do.
func TestMeshHairpin(t *testing.T) {
	for _, on := range []bool{true, false} {
		t.Run(fmt.Sprint(on), func(t *testing.T) {
			t.Parallel()
			k := kind(t, "port-restricted")
			r := ofPair(t, lab.Pair{A: k, B: kind(t, "open")})
			if err := r.grid.A.NAT.Off(); err != nil {
				t.Fatal(err)
			}
			nat, err := r.grid.A.Router.Translate("wan", lab.Translation{Mapping: lab.Independent, Filtering: lab.AddressDependent, Hairpin: on})
			if err != nil {
				t.Fatal(err)
			}
			if err := nat.On(); err != nil {
				t.Fatal(err)
			}
			a := r.node(r.grid.A, settings{})
			together(a)
			want, says := "no", "no: nodes behind this NAT reach each other by their own addresses only"
			if on {
				want, says = "yes", "yes: nodes behind this NAT reach each other by its outer address"
			}
			type netcheck struct {
				Report struct {
					UDP, Hairpin string
					Relays       []struct {
						Name          string
						LatencyMillis *float64
					}
				}
				Text string
			}
			r.eventually("netcheck tells the hairpin", a.role, func() error { // an answer may come too late
				var n netcheck
				a.answer("MeshNetcheck", &n, "netcheck")
				if !on && n.Report.Hairpin == "yes" {
					t.Fatalf("there is no hairpin, and netcheck says\n%s", n.Text)
				}
				if n.Report.UDP != "yes" || n.Report.Hairpin != want || !strings.Contains(n.Text, says) {
					return fmt.Errorf("hairpin is %v, and netcheck says UDP %s, hairpin %s\n%s",
						on, n.Report.UDP, n.Report.Hairpin, n.Text)
				}
				if l := n.Report.Relays; len(l) != 1 || l[0].Name == "" || l[0].LatencyMillis == nil {
					return fmt.Errorf("it does not say how far the relay is: %+v\n%s", l, n.Text)
				}
				return nil
			})
		})
	}
}

// explanation is what tests read of `tombolo mesh explain -o json`.
type explanation struct {
	Address netip.Addr
	InMesh  bool
	Set     string
	Element string
	Mark    string
	Rule    string
	Table   int
	Route   string
	Peer    *peerStatus
	Text    string
}

// way is where the kernel sends a packet.
type way struct{ Dev, Table, PrefSrc string }

// table is its number; ip leaves out that of the main one.
func (w way) table() int {
	if w.Table == "" {
		return 254
	}
	n, err := strconv.Atoi(w.Table)
	if err != nil {
		return -1
	}
	return n
}

// TestMeshExplainIsTrue: what explain says of an address is what the kernel does with it: the
// set has it, what output marks goes by that rule, table and link, and to that peer.
func TestMeshExplainIsTrue(t *testing.T) {
	t.Parallel()
	r := ofPlaces(t, "open", "port-restricted", "open")
	podB := r.podBehind(r.grid.All[1], bridge, 2)
	a := r.node(r.grid.All[0], settings{})
	b, c := r.node(r.grid.All[1], settings{ranges: []string{podB.share}}), r.node(r.grid.All[2], settings{ranges: []string{"10.98.0.0/16"}})
	together(a, b, c)
	known(a, b, c)
	awaitDirect(a, b)
	awaitDirect(a, c)
	for _, to := range []struct {
		addr string
		peer *node // nobody: it goes by the machine's own routes
	}{
		{podB.addr, b}, {b.overlay4.String(), b}, {b.overlay6.String(), b}, {"10.98.255.255", c}, {c.overlay6.String(), c},
		{lab.HubAddr, nil}, {lab.HubAddr6, nil}, {"10.97.255.255", nil},
	} {
		r.step(to.addr, func(*testing.T) { requireExplained(a, netip.MustParseAddr(to.addr), to.peer, b, c) })
	}
}

// requireExplained compares one explanation with the kernel.
func requireExplained(n *node, to netip.Addr, peer *node, peers ...*node) {
	t := n.rig.t
	t.Helper()
	var e explanation
	n.answer("MeshExplanation", &e, "explain", to.String())
	has := n.setsWith(to)
	if e.Address != to || e.InMesh != (peer != nil) || (e.Set != "") != (peer != nil) {
		t.Errorf("%+v, and it is in the mesh: %v", e, peer != nil)
	}
	if peer == nil {
		if ways := n.route(to, ""); len(has) > 0 || ways.Dev == link || e.Mark != "" || e.Peer != nil {
			t.Errorf("%+v: sets %q have it, and it goes by %+v", e, has, ways)
		}
		return
	}
	if element, is := has[e.Set]; !is || element != e.Element {
		t.Errorf("it says %q of set %q, and of the sets have it %q", e.Element, e.Set, has)
	}
	if e.Peer == nil || e.Peer.Node != peer.host.Name() || e.Peer.State != direct {
		t.Errorf("it says peer %+v, and not %s", e.Peer, peer.name)
	}
	// Addresses in the mesh are the link's own; ranges are reached with a mark only.
	own := to == peer.overlay4 || to == peer.overlay6
	if own != (e.Mark == "") || own != (e.Rule == "") {
		t.Errorf("it says mark %q and rule %q", e.Mark, e.Rule)
	}
	marked, plain := n.route(to, e.Mark), n.route(to, "")
	if marked.Dev != link || marked.table() != e.Table || (plain.Dev == link) != own || !strings.Contains(e.Route, "dev "+link+" table "+fmt.Sprint(e.Table)) {
		t.Errorf("with mark %s it goes by %+v, without one by %+v; it says table %d and %q", e.Mark, marked, plain, e.Table, e.Route)
	}
	if from, err := netip.ParseAddr(marked.PrefSrc); err != nil || from != n.overlay4 && from != n.overlay6 {
		t.Errorf("it goes from %q, and the node is %s and %s", marked.PrefSrc, n.overlay4, n.overlay6)
	}
	if !own {
		n.requireRule(to, e)
	}
	// What this machine sends there comes to that peer, and to nobody else.
	before := map[*node]int{}
	for _, p := range peers {
		before[p] = p.received()
	}
	f := n.flood(to)
	n.rig.eventually("packets come to "+peer.name, peer.role, func() error {
		if peer.received() < before[peer]+5 {
			return errNotYet
		}
		return nil
	})
	f.End()
	for _, p := range peers {
		if got := p.received() - before[p]; p != peer && got > 0 {
			t.Errorf("%d packets to %s came to %s", got, to, p.name)
		}
	}
}

// received is how many packets have come out of the mesh at a node.
func (n *node) received() int {
	n.rig.t.Helper()
	var links []struct {
		Stats64 struct{ Rx struct{ Packets int } }
	}
	if n.ask(&links, "ip", "-j", "-s", "link", "show", link); len(links) != 1 {
		n.rig.t.Fatalf("the links %s: %+v", link, links)
	}
	return links[0].Stats64.Rx.Packets
}

// link is the mesh's.
const link = "tombolo0"

// route is where the kernel sends a packet with a mark; without one, what the machine's own
// routes say.
func (n *node) route(to netip.Addr, mark string) way {
	n.rig.t.Helper()
	words := []string{"ip", "-j", "route", "get", to.String()}
	if mark != "" {
		words = append(words, "mark", mark)
	}
	var all []way
	n.ask(&all, words...)
	if len(all) != 1 {
		n.rig.t.Fatalf("%q: %+v", words, all)
	}
	return all[0]
}

// requireRule looks for the rule that is said.
func (n *node) requireRule(to netip.Addr, e explanation) {
	n.rig.t.Helper()
	family := "-6"
	if to.Is4() {
		family = "-4"
	}
	var rules []struct {
		Priority      int
		Fwmark, Table string
	}
	n.ask(&rules, "ip", "-j", family, "rule", "list")
	for _, r := range rules {
		if r.Fwmark == e.Mark && r.Table == fmt.Sprint(e.Table) {
			if !strings.Contains(e.Rule, fmt.Sprint(r.Priority)) {
				n.rig.t.Errorf("it says %q, and the rule is %+v", e.Rule, r)
			}
			return
		}
	}
	n.rig.t.Errorf("it says mark %s, %q and table %d, and of the rules %+v none is so", e.Mark, e.Rule, e.Table, rules)
}

// setsWith are the sets of the mesh's table that have an address, with the element that does,
// as the kernel tells them.
func (n *node) setsWith(to netip.Addr) map[string]string {
	n.rig.t.Helper()
	var all struct {
		Nftables []struct {
			Set *struct {
				Name string            `json:"name"`
				Elem []json.RawMessage `json:"elem"`
			} `json:"set"`
		} `json:"nftables"`
	}
	n.ask(&all, "nft", "-j", "list", "table", "inet", "tombolo_mesh")
	sets := map[string]string{}
	for _, o := range all.Nftables {
		if o.Set == nil {
			continue
		}
		for _, e := range o.Set.Elem {
			if from, last, text := spanOf(e); from.BitLen() == to.BitLen() && from.Compare(to) <= 0 && to.Compare(last) <= 0 {
				sets[o.Set.Name] = text
			}
		}
	}
	return sets
}

// spanOf are the first and the last address of an element of a set, and how it is written;
// nothing of what has no addresses (libnftables-json(5)).
func spanOf(element json.RawMessage) (from, last netip.Addr, text string) {
	if one := ""; json.Unmarshal(element, &one) == nil {
		from, _ = netip.ParseAddr(one)
		return from, from, one
	}
	var more struct {
		Prefix struct {
			Addr netip.Addr
			Len  int
		}
		Range []netip.Addr
		Elem  struct{ Val json.RawMessage }
	}
	if json.Unmarshal(element, &more) != nil {
		return from, last, ""
	}
	switch {
	case more.Prefix.Addr.IsValid():
		p := netip.PrefixFrom(more.Prefix.Addr, more.Prefix.Len)
		r := plan.RangeOf(p)
		return r.From, r.To, p.String()
	case len(more.Range) == 2:
		return more.Range[0], more.Range[1], more.Range[0].String() + "-" + more.Range[1].String()
	case more.Elem.Val != nil:
		return spanOf(more.Elem.Val)
	}
	return from, last, ""
}
