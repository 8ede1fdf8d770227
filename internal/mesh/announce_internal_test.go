// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/member"
)

// TestIntroduced: the first word of a node that has run before has its key, with the proof,
// its addresses in the mesh and its ranges; one that never ran says nothing before it knows.
func TestIntroduced(t *testing.T) {
	dir := t.TempDir()
	ranges := []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}
	room := func() (*Mesh, *knower) {
		return newRoom(t, dir, func(c *Config) { c.Announce = member.Facts{Node: "a", Ranges: ranges} })
	}
	m, k := room()
	if m.Introduce(); len(k.said) > 0 || len(k.now) > 0 {
		t.Errorf("before it ever ran it says %+v", k.said)
	}
	prefix := member.Overlay6("x")
	o := overlay{Clusters: m.state.Load().clusters(), ID: m.cfg.ID, Prefix: prefix, Six: prefix.Addr().Next(), Four: netip.MustParseAddr("100.112.0.1")}
	if err := o.write(dir); err != nil {
		t.Fatal(err)
	}
	m, k = room()
	m.Introduce()
	s := k.last(t)
	if s.Key != m.state.Load().key.public || !slices.Equal(k.now, []member.Key{s.Key}) || s.Overlay6 != o.Six || s.Overlay4 != o.Four || !slices.Equal(s.Ranges, ranges) {
		t.Errorf("its first word is %+v, proven are %v", s, k.now)
	}
}
