// SPDX-License-Identifier: Apache-2.0

//go:build guest

package mesh

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
)

// TestEngineSizes: the kernel's WireGuard carries packets of all sizes over a path that drops large ones without a word,
// and over IPv6 alone; also after all nodes were killed at one time.
func TestEngineSizes(t *testing.T) { sizesOf(t, meshconf.Kernel) }

// TestIPsecSizes is the same with the kernel's IPsec.
func TestIPsecSizes(t *testing.T) { sizesOf(t, meshconf.IPsec) }

func sizesOf(t *testing.T, engine string) {
	r := ofPlaces(t, "black-hole", "open", "ipv6-only")
	var nodes []*node
	for _, place := range r.grid.All {
		nodes = append(nodes, r.node(place, settings{mesh: map[string]any{"engine": engine}}))
	}
	a, b, c := nodes[0], nodes[1], nodes[2]
	start := func() {
		together(nodes...)
		known(nodes...)
		for _, other := range []*node{a, c} {
			awaitDirect(b, other)
			reach(b, other)
		}
	}
	r.step("traffic", func(*testing.T) { start() })
	r.step("all sizes", func(*testing.T) {
		for _, other := range []*node{a, c} {
			for _, size := range []int{1260, 1320, 1380, 1440, inPieces} {
				for _, to := range []netip.Addr{other.overlay4, other.overlay6} {
					r.eventually(fmt.Sprintf("%d bytes from %s to %s and back", size, b.name, to), nil,
						func() error { return echoed(b.host, to.String(), size) })
				}
			}
		}
	})
	r.step("killed at one time", func(*testing.T) {
		for _, n := range nodes {
			n.kill()
		}
		start()
	})
	r.requireNoClearText(nodes...)
}
