// SPDX-License-Identifier: Apache-2.0

//go:build guest

package mesh

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// modprobe is the kernel's setting of who loads a module that it asks for.
const modprobe = "/proc/sys/kernel/modprobe"

// TestEngine: auto takes the kernel's WireGuard where there is one, which it has the kernel load,
// and the other engine where there is none. Both carry traffic to nodes of both, with old keys and
// new ones, and go without a trace.
func TestEngine(t *testing.T) {
	l := labtest.New(t, "mesh")
	open := kind(t, "open")
	g, err := lab.NewPlaces(l, open, open, open)
	if err != nil {
		t.Fatal(err)
	}
	r := bareRig(t, l, g)
	r.startDiscovery()
	a, b, c := r.withEngine(0, meshconf.Auto), r.withEngine(1, meshconf.Auto), r.withEngine(2, meshconf.Userspace)
	bare := map[*node]string{}
	for _, n := range r.nodes {
		bare[n] = r.traces(n.host)
	}
	r.step("without the module", func(t *testing.T) {
		helper, err := os.ReadFile(modprobe)
		if err = errors.Join(err, os.WriteFile(modprobe, []byte("\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
		a.without(bare[a], c)
		if err := os.WriteFile(modprobe, helper, 0o600); err != nil {
			t.Fatal(err)
		}
	})
	together(a, b)
	for _, n := range []*node{a, b} {
		n.requireEngine(meshconf.Kernel, "the kernel has WireGuard")
		n.requireLink("wireguard")
	}
	a.requireShown()
	everywhere := func(t *testing.T) {
		reach(a, b)
		reach(b, c)
		reach(c, a)
	}
	r.step("traffic", everywhere)
	r.step("new keys", func(t *testing.T) {
		for _, n := range []*node{a, c} {
			n.rotate()
			if after, err := n.status(); err != nil || after.PublicKey == n.started.PublicKey {
				t.Errorf("%s has its old key %s (%v)", n.name, after.PublicKey, err)
			}
		}
		everywhere(t)
	})
	r.step("killed", func(t *testing.T) {
		a.kill()
		if err := transfer(b, a, a.overlay4, some); err != nil {
			t.Errorf("the kernel does not carry on alone: %v", err)
		}
		together(a)
		a.requireLink("wireguard")
		reach(a, b)
	})
	r.step("no trace", func(t *testing.T) {
		for _, n := range r.nodes {
			n.stop()
			r.requireTraces(n, bare[n])
		}
	})
	r.requireNoClearText(r.nodes...)
}

// without is a node of engine auto on a kernel without WireGuard, beside another node: it takes
// the other engine and says so. Told to have the kernel's it refuses, and leaves nothing.
func (n *node) without(bare string, other *node) {
	n.rig.t.Helper()
	together(n, other)
	n.requireEngine(meshconf.Userspace, "the kernel has no WireGuard")
	n.requireLink("tuntap")
	n.requireShown()
	other.requireEngine(meshconf.Userspace, "mesh.engine says so")
	reach(n, other)
	n.stop()
	n.rig.requireTraces(n, bare)
	set := func(engine string) {
		n.edit(func(whole map[string]any) { section(whole, "mesh")["engine"] = engine })
	}
	set(meshconf.Kernel)
	if said, _ := refused(n.rig.t, n, false); !strings.Contains(said, "load the module wireguard") {
		n.rig.t.Errorf("the kernel's engine, of which this kernel has none, ended with\n%s", said)
	}
	n.rig.requireTraces(n, bare)
	set(meshconf.Auto)
}

// withEngine makes a node with an engine, and without a hub: there is no relay then.
func (r *rig) withEngine(place int, engine string) *node {
	r.t.Helper()
	return r.node(r.grid.All[place], settings{mesh: map[string]any{"engine": engine}, sources: map[string]any{
		"services": []any{map[string]any{"url": discoveryAt4, "pin": r.pin, "name": "lab"}},
	}})
}

// requireEngine checks which engine the node said it runs when it was up, and why.
func (n *node) requireEngine(engine, why string) {
	n.rig.t.Helper()
	if s := n.started; s.Engine != engine || !strings.HasPrefix(s.EngineWhy, why) {
		n.rig.t.Errorf("%s runs %s because %q, want %s because %q", n.name, s.Engine, s.EngineWhy, engine, why)
	}
}

// requireShown checks that people see it, too.
func (n *node) requireShown() {
	n.rig.t.Helper()
	line := fmt.Sprintf("\nengine %s: %s\n", n.started.Engine, n.started.EngineWhy)
	if text, err := n.verb("status"); err != nil || !strings.Contains(text, line) {
		n.rig.t.Errorf("the status (%v) has no line %q:\n%s", err, line, text)
	}
}

// some is how much a transfer has, in bytes: enough for many packets at the guest's speed.
const some = 64 << 10

// reach waits until packets between two nodes come back, and has bytes go there and back, by IPv4
// from one and by IPv6 from the other.
func reach(a, b *node) {
	r := a.rig
	r.t.Helper()
	f := a.flood(b.overlay4)
	r.awaitAfter(f, time.Now())
	f.End()
	if err := errors.Join(transfer(a, b, b.overlay4, some), transfer(b, a, a.overlay6, some)); err != nil {
		r.t.Error(err)
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
	var states []netlink.XfrmState
	var policies []netlink.XfrmPolicy
	xfrmErr := h.Do(func() (err error) { // k has no socket of XFRM
		if states, err = netlink.XfrmStateList(netlink.FAMILY_ALL); err == nil {
			policies, err = netlink.XfrmPolicyList(netlink.FAMILY_ALL)
		}
		return err
	})
	for _, s := range states { // of their keys nothing is printed
		note("state", fmt.Sprint(s.Dst, s.Spi))
	}
	for _, p := range policies {
		note("policy", fmt.Sprint(p.Src, p.Dst, p.Dir))
	}
	if errors.Is(xfrmErr, unix.EPROTONOSUPPORT) { // this kernel has no IPsec
		xfrmErr = nil
	}
	if err := errors.Join(err, addrErr, ruleErr, routeErr, nftErr, xfrmErr); err != nil {
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
