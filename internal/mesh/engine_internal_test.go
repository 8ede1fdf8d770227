// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
)

// TestTheEngineIsSwitchedOnOneDirectory: the key, the addresses and what is known of others are
// those of the run before, with the other engine and back; what is announced differs in what
// that engine can do alone.
func TestTheEngineIsSwitchedOnOneDirectory(t *testing.T) {
	dir := t.TempDir()
	now := time.Now().Round(0)
	there := roster.Result{Members: []roster.Member{ranged("b", "nb", "10.2.0.0/16"), ranged("c", "nc", "10.3.0.0/16")}}
	ranges := []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}
	var first member.Facts
	var known []knownMember
	for i, engine := range []string{meshconf.Userspace, meshconf.Kernel, meshconf.Userspace} {
		m, k := newRoom(t, dir, func(c *Config) {
			c.Engine, c.Announce = engine, member.Facts{Node: "a", Ranges: ranges}
		})
		if i > 0 { // from the disk, before anybody was heard
			if got := m.state.Load().ranges.known; len(got.Members) != 2 || !slices.EqualFunc(got.Members, known, func(a, b knownMember) bool {
				return a.ID == b.ID && slices.Equal(a.Ranges, b.Ranges) && slices.Equal(a.Keys, b.Keys)
			}) || !slices.Equal(got.Own, ranges) {
				t.Errorf("with %s it knows %+v, before %+v", engine, got, known)
			}
		}
		k.result = there
		do := turn(m, seen(m, k, there), now.Add(time.Duration(i)*time.Minute))
		turn(m, up{}, now.Add(time.Duration(i)*time.Minute))
		said, status := k.last(t), m.Status()
		if said.Mesh != limit.MeshVersion || status.Engine != engine {
			t.Errorf("with %s it speaks the paths' version %d; its engine is %s", engine, said.Mesh, status.Engine)
		}
		if i == 0 {
			first, known = said, m.state.Load().ranges.known.Members
		}
		if !sameMember(said, first) || said.Key.IsZero() || !said.Overlay6.IsValid() || !said.Overlay4.IsValid() || !slices.Equal(k.now, []member.Key{first.Key}) {
			t.Errorf("with %s it says %+v and proves %v, at first %+v", engine, said, k.now, first)
		}
		if in := do.plan; len(in.Members) != 2 || len(in.Closed) > 0 {
			t.Errorf("with %s it plans with %+v", engine, in)
		}
	}
}

// TestTheEngineIsChosen where the configuration leaves it to the kernel; what is configured is not asked about.
func TestTheEngineIsChosen(t *testing.T) {
	none := fault.New(fault.CodeUnsupported, "WireGuard in the kernel")
	for _, c := range []struct {
		configured string
		lacks      *fault.Fault
		want       string
	}{
		{meshconf.Auto, nil, meshconf.Kernel},
		{meshconf.Auto, none, meshconf.Userspace},
		{meshconf.Kernel, none, meshconf.Kernel},
		{meshconf.Userspace, nil, meshconf.Userspace},
		{meshconf.IPsec, none, meshconf.IPsec},
	} {
		got := chooseEngine(c.configured, func() *fault.Fault {
			if c.configured != meshconf.Auto {
				t.Error("the kernel is asked though the engine is configured")
			}
			return c.lacks
		})
		if got.name != c.want || got.why == "" {
			t.Errorf("%s, with %v lacking: %+v", c.configured, c.lacks, got)
		}
	}
	m, _ := newRoom(t, t.TempDir(), func(c *Config) { c.Engine = meshconf.Auto })
	s := m.state.Load()
	if st := m.Status(); st.Engine == meshconf.Auto || st.EngineWhy == "" {
		t.Errorf("the status says %s because %q", st.Engine, st.EngineWhy)
	}
	if waiting := s.cfg.Config.Fixed(s.set); len(waiting) > 0 {
		t.Errorf("the same configuration waits for a start: %v", waiting)
	}
}
