// SPDX-License-Identifier: Apache-2.0

//go:build guest

package mesh

import (
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
	"github.com/tombolo-io/tombolo/test/lab"
)

// TestEngineRelay: where no UDP passes between two nodes with the kernel's WireGuard, packets go by a hub; they go
// direct when it passes, and back. So between such a node and one of the other engine.
func TestEngineRelay(t *testing.T) { relayOf(t, meshconf.Kernel, meshconf.Kernel, meshconf.Userspace) }

// TestIPsecRelay is the same with the kernel's IPsec.
func TestIPsecRelay(t *testing.T) { relayOf(t, meshconf.IPsec, meshconf.IPsec) }

// relayOf plays it between a node and others, each of an engine and behind a NAT. No two of them have a direct way at
// first.
func relayOf(t *testing.T, engine string, others ...string) {
	r := ofPlaces(t, append([]string{"port-restricted"}, slices.Repeat([]string{"full-cone"}, len(others))...)...)
	of := func(i int, engine string) *node {
		return r.node(r.grid.All[i], settings{mesh: map[string]any{"engine": engine}})
	}
	a := of(0, engine)
	all, cuts := []*node{a}, map[*node]*lab.Filter{}
	for i, engine := range others {
		n := of(i+1, engine)
		all, cuts[n] = append(all, n), r.grid.Cut(a.place, r.grid.All[i+1])
		if err := cuts[n].On(); err != nil {
			t.Fatal(err)
		}
	}
	together(all...)
	known(all...)
	byRelay := func(t *testing.T) {
		for n := range cuts {
			awaitState(a, n, relayed)
			reach(a, n)
			requireRelayShown(t, a, n)
		}
	}
	r.step("by the relay", byRelay)
	r.step("after a kill", func(t *testing.T) {
		a.kill() // what the kernel has leads to a port that is nobody's any more
		together(a)
		byRelay(t)
	})
	for _, cut := range cuts { // of all at once: they need the same seconds
		if err := cut.Off(); err != nil {
			t.Fatal(err)
		}
	}
	for n, cut := range cuts {
		r.step("direct, and back, with "+n.started.Engine, func(t *testing.T) {
			awaitDirect(a, n)
			reach(a, n)
			playCut(t, a, n, cut)
		})
	}
	r.requireNoClearText(all...)
}

// requireRelayShown checks that people see by which way packets go.
func requireRelayShown(t *testing.T, a, b *node) {
	t.Helper()
	for verb, arg := range map[string]string{"status": b.host.Name(), "explain": b.overlay4.String()} {
		if text, err := a.verb(verb, arg); err != nil || !strings.Contains(text, "relay") {
			t.Errorf("mesh %s (%v) does not say that packets go by the relay:\n%s", verb, err, text)
		}
	}
}
