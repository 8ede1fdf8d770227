// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/link/reach"
)

// TestDoubled: whoever is there first counts, and the own cluster before all others.
func TestDoubled(t *testing.T) {
	const self = "own"
	node := func(cluster, node string, at int64, key byte, overlays ...string) claim {
		c := claim{Name: reach.Name{Cluster: cluster, Node: node}, counts: cluster != "refused", created: time.Unix(at, 0)}
		if key != 0 {
			c.key = member.Key{key}
		}
		for _, o := range overlays {
			c.overlays = append(c.overlays, netip.MustParseAddr(o))
		}
		return c
	}
	for name, c := range map[string]struct {
		all  []claim
		want string
	}{
		"all differ":         {[]claim{node("a", "x", 1, 1, "fd00::1"), node("b", "x", 2, 2, "fd00::2")}, "map[]"},
		"the later key":      {[]claim{node("a", "x", 2, 1), node("b", "y", 1, 1)}, "map[a.x:it has the key of node y of cluster b, which was there before]"},
		"the later address":  {[]claim{node("a", "x", 2, 1, "fd00::1"), node("b", "y", 1, 2, "fd00::1")}, "map[a.x:it has the address fd00::1 in the mesh of node y of cluster b, which was there before]"},
		"at the same time":   {[]claim{node("b", "x", 1, 1), node("a", "y", 1, 1)}, "map[b.x:it has the key of node y of cluster a, which was there before]"},
		"the own, and later": {[]claim{node("a", "x", 1, 1), node(self, "y", 2, 1)}, "map[a.x:it has the key of node y of this cluster]"},
		"in one cluster":     {[]claim{node("a", "x", 1, 1), node("a", "y", 2, 1)}, "map[]"},
		"of a refused cluster, and older": {[]claim{node("refused", "x", 1, 1, "fd00::1"), node("b", "y", 2, 1), node("c", "z", 3, 2, "fd00::1")},
			"map[refused.x:it has the key of node y of cluster b, which was there before]"},
		"without a key": {[]claim{node("a", "x", 1, 0), node("b", "y", 2, 0)}, "map[]"},
		"refused, and claims more": {[]claim{node("a", "x", 1, 1), node("b", "y", 2, 1, "fd00::7"), node("c", "z", 3, 3, "fd00::7")},
			"map[b.y:it has the key of node x of cluster a, which was there before]"},
	} {
		for range 2 {
			if got := fmt.Sprint(doubled(self, c.all)); got != c.want {
				t.Errorf("%s: %s, want %s", name, got, c.want)
			}
			slices.Reverse(c.all) // in which order they come does not matter
		}
	}
}
