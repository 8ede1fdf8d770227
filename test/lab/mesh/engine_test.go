// SPDX-License-Identifier: Apache-2.0

//go:build guest

package mesh

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
	"github.com/tombolo-io/tombolo/test/lab"
)

// TestEngineWithoutTheModule: where the kernel has no WireGuard, auto takes the other engine and
// says so, and kernel is refused and leaves nothing.
func TestEngineWithoutTheModule(t *testing.T) {
	r := ofPlaces(t, "open", "open")
	a, b := r.withEngine(0, meshconf.Auto), r.withEngine(1, meshconf.Userspace)
	bare := r.traces(a.host)
	together(a, b)
	a.requireEngine(meshconf.Userspace, "the kernel has no WireGuard")
	b.requireEngine(meshconf.Userspace, "mesh.engine says so")
	a.requireLink("tuntap")
	reach(a, b)
	a.stop()
	r.requireTraces(a, bare)
	a.edit(func(whole map[string]any) { section(whole, "mesh")["engine"] = meshconf.Kernel })
	a.begin()
	if err := a.process.Wait(); err == nil || a.said("load the module wireguard") == 0 {
		t.Errorf("the kernel's engine, of which this kernel has none, ended with %v", err)
	}
	r.requireTraces(a, bare)
}

// TestEngineOfTheKernel: auto takes the kernel's WireGuard where there is one. It carries traffic
// between nodes of both engines, before and after both have new keys, goes on when the program is
// killed, and goes without a trace.
func TestEngineOfTheKernel(t *testing.T) {
	r := ofPlaces(t, "open", "open", "open")
	a, b, c := r.withEngine(0, meshconf.Auto), r.withEngine(1, meshconf.Auto), r.withEngine(2, meshconf.Userspace)
	bare := map[*node]string{}
	for _, n := range []*node{a, b, c} {
		bare[n] = r.traces(n.host)
	}
	together(a, b, c)
	for _, n := range []*node{a, b} {
		n.requireEngine(meshconf.Kernel, "the kernel has WireGuard")
		n.requireLink("wireguard")
	}
	c.requireEngine(meshconf.Userspace, "mesh.engine says so")
	c.requireLink("tuntap")
	everywhere := func(t *testing.T) {
		reach(a, b)
		reach(b, c)
		reach(c, a)
	}
	r.step("traffic", everywhere)
	r.step("new keys", func(t *testing.T) {
		for _, n := range []*node{a, c} {
			_, before := n.mustStatus()
			if out, err := n.verb("keys", "rotate"); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if _, after := n.mustStatus(); after.PublicKey == before.PublicKey {
				t.Errorf("%s has its old key %s", n.name, after.PublicKey)
			}
		}
		everywhere(t)
	})
	r.step("killed", func(t *testing.T) {
		a.kill()
		if err := transfer(b, a, a.overlay4, some); err != nil {
			t.Errorf("the kernel does not carry on alone: %v", err)
		}
		a.begin()
		a.awaitUp()
		a.requireLink("wireguard")
		everywhere(t)
	})
	r.step("no trace", func(t *testing.T) {
		for _, n := range []*node{a, b, c} {
			n.stop()
			r.requireTraces(n, bare[n])
		}
	})
	r.requireNoClearText(a, b, c)
}

// withEngine makes a node with an engine.
func (r *rig) withEngine(place int, engine string) *node {
	r.t.Helper()
	return r.node(r.grid.All[place], settings{mesh: map[string]any{"engine": engine}})
}

// requireEngine checks which engine the status shows, and why, as data and for people.
func (n *node) requireEngine(engine, why string) {
	n.rig.t.Helper()
	var s struct{ Engine, EngineWhy string }
	data, err := n.verb("status", "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(data), &s)
	}
	text, textErr := n.verb("status")
	err = errors.Join(err, textErr)
	if s.Engine != engine || !strings.HasPrefix(s.EngineWhy, why) || !strings.Contains(text, engine) {
		n.rig.t.Errorf("%s runs %s because %q, want %s because %q; its status is (%v)\n%s", n.name, s.Engine, s.EngineWhy,
			engine, why, err, text)
	}
}

// some is how much a transfer has, in bytes: enough for many packets at the guest's speed.
const some = 256 << 10

// reach waits until packets between two nodes come back, and has bytes go both ways.
func reach(a, b *node) {
	r := a.rig
	r.t.Helper()
	for _, way := range []struct{ from, to *node }{{a, b}, {b, a}} {
		f := way.from.flood(way.to.overlay4)
		r.awaitAfter(f, time.Now())
		f.End()
		for _, addr := range []netip.Addr{way.to.overlay4, way.to.overlay6} {
			if err := transfer(way.from, way.to, addr, some); err != nil {
				r.t.Error(err)
			}
		}
	}
}

// requireLink checks what kind of link the kernel has by the mesh's name.
func (n *node) requireLink(kind string) {
	n.rig.t.Helper()
	link, err := n.host.Netlink().LinkByName("tombolo0")
	if err != nil || link.Type() != kind {
		n.rig.t.Errorf("the link of %s is %v (%v), want one of kind %s", n.name, link, err, kind)
	}
}

// traces are all links, addresses, rules, routes and tables of a host.
func (r *rig) traces(h *lab.Host) string {
	r.t.Helper()
	var out []string
	note := func(kind string, what any) { out = append(out, fmt.Sprintf("%s %+v", kind, what)) }
	k := h.Netlink()
	links, err := k.LinkList()
	for _, l := range links {
		note("link", l.Attrs().Name)
	}
	addrs, addrErr := k.AddrList(nil, unix.AF_UNSPEC)
	for _, a := range addrs {
		note("address", a.IPNet)
	}
	rules, ruleErr := k.RuleList(unix.AF_UNSPEC)
	for _, rule := range rules {
		note("rule", rule)
	}
	routes, routeErr := k.RouteListFiltered(unix.AF_UNSPEC, &netlink.Route{}, netlink.RT_FILTER_TABLE)
	for _, route := range routes {
		note("route", route)
	}
	var tables []*nftables.Table
	nftErr := h.Do(func() error {
		conn, err := nftables.New()
		if err == nil {
			tables, err = conn.ListTables()
		}
		return err
	})
	for _, table := range tables {
		note("table", table.Name)
	}
	if err := errors.Join(err, addrErr, ruleErr, routeErr, nftErr); err != nil {
		r.t.Fatal(err)
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// requireTraces checks that a host has what it had before.
func (r *rig) requireTraces(n *node, before string) {
	r.t.Helper()
	if after := r.traces(n.host); after != before {
		r.t.Errorf("%s has left its host with\n%s\nwhich had\n%s", n.name, after, before)
	}
}
