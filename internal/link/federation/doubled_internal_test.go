// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/link/doubled"
)

// TestClashing: it is said of a node which other one counts, and why.
func TestClashing(t *testing.T) {
	own := doubled.Claim{Cluster: "own", Node: "n", Own: true, Accepted: true, Created: time.Unix(7, 0), Key: "k"}
	early := doubled.Claim{Cluster: "b", Node: "n", Accepted: true, Created: time.Unix(7, 0), Key: "k"}
	late := doubled.Claim{Cluster: "c", Node: "n", Accepted: true, Created: time.Unix(7, 0), Key: "k"}
	with := func(c doubled.Claim, change func(*doubled.Claim)) doubled.Claim {
		change(&c)
		return c
	}
	address := func(c *doubled.Claim) { c.Key, c.Addresses = "", []netip.Addr{netip.MustParseAddr("fd00::1")} }
	for name, c := range map[string]struct {
		holder, other doubled.Claim
		want          string
	}{
		"of this cluster": {own, early, "map[b.n:it has the key of node n of this cluster]"},
		"accepted": {early, with(late, func(c *doubled.Claim) { c.Accepted = false }),
			"map[c.n:it has the key of node n of cluster b, which is accepted, and cluster c is not]"},
		"before": {early, with(late, func(c *doubled.Claim) { c.Created = time.Unix(8, 0) }),
			"map[c.n:it has the key of node n of cluster b, which was there before]"},
		"by order": {with(late, func(c *doubled.Claim) { c.Order = 9 }), with(early, func(c *doubled.Claim) { c.Order = 10 }),
			"map[b.n:it has the key of node n of cluster c, which was there before]"},
		"one has an order": {with(late, func(c *doubled.Claim) { c.Order = 9 }), early, "map[b.n:it has the key of node n of " +
			"cluster c, which was there in the same second, and whose order the host cluster has noted]"},
		"by name": {early, late, "map[c.n:it has the key of node n of cluster b, which was there in the same second, and " +
			"whose name comes first]"},
		"marked": {late, with(early, func(c *doubled.Claim) { c.Marked = "it has it" }),
			"map[b.n:it has the key of node n of cluster c, and has lost it before]"},
		"marked, alone": {own, with(early, func(c *doubled.Claim) { c.Key, c.Marked = "other", "it has the key of node n of cluster c" }),
			"map[b.n:the host cluster has noted of this object: it has the key of node n of cluster c; it counts when it is made " +
				"anew, as by 'tombolo mesh keys rotate' on the node]"},
		"an address": {with(own, address), with(early, address),
			"map[b.n:it has the address fd00::1 in the mesh of node n of this cluster]"},
		"both": {with(own, func(c *doubled.Claim) { k := c.Key; address(c); c.Key = k }),
			with(early, func(c *doubled.Claim) { k := c.Key; address(c); c.Key = k }),
			"map[b.n:it has the key of node n of this cluster]"},
	} {
		for _, all := range [][]doubled.Claim{{c.holder, c.other}, {c.other, c.holder}} {
			if got := fmt.Sprint(clashing(all)); got != c.want {
				t.Errorf("%s: %s, want %s", name, got, c.want)
			}
		}
	}
}
