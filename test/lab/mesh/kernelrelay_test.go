// SPDX-License-Identifier: Apache-2.0

//go:build guest

package mesh

import (
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
	"github.com/tombolo-io/tombolo/test/lab"
)

// TestEngineRelay: where no UDP passes between two nodes with the kernel's WireGuard, packets go by a hub; they go
// direct when it passes, and back. So between such a node and one of the other engine.
func TestEngineRelay(t *testing.T) { relayOf(t, meshconf.Kernel, meshconf.Userspace) }

// TestIPsecRelay is the same with the kernel's IPsec.
func TestIPsecRelay(t *testing.T) { relayOf(t, meshconf.IPsec, meshconf.IPsec) }

// relayOf plays it between nodes of one engine, and to one of another, which is outside.
func relayOf(t *testing.T, engine, other string) {
	r := ofPair(t, lab.Pair{A: kind(t, "port-restricted"), B: kind(t, "full-cone")})
	set := func(engine string) settings { return settings{mesh: map[string]any{"engine": engine}} }
	for _, with := range []string{engine, other} {
		r.step(with, func(t *testing.T) {
			a, b := r.node(r.grid.A, set(engine)), r.node(r.grid.B, set(with))
			if err := r.grid.Between.On(); err != nil {
				t.Fatal(err)
			}
			together(a, b)
			known(a, b)
			awaitState(a, b, relayed)
			reach(a, b)
			requireRelayShown(t, a, b)
			if err := r.grid.Between.Off(); err != nil {
				t.Fatal(err)
			}
			awaitDirect(a, b)
			reach(a, b)
			playCut(t, a, b, r.grid.Between)
			r.requireNoClearText(a, b)
			for _, n := range []*node{a, b} {
				n.stop()
			}
		})
		if engine == other {
			break
		}
	}
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
