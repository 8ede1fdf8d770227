// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"slices"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// TestEveryEngineHasProbesAndTheRelay, and says so.
func TestEveryEngineHasProbesAndTheRelay(t *testing.T) {
	for engine, want := range map[string]member.Engine{meshconf.Kernel: member.WireGuard, meshconf.Userspace: member.WireGuard,
		meshconf.IPsec: member.IPsec} {
		s := &state{cfg: &Config{Config: meshconf.Config{Engine: engine}}}
		s.world.hubs, s.world.cluster = []string{"h"}, "c"
		if said := s.saying(); said.mesh != limit.MeshVersion || len(said.hubs) != 1 || said.engine != want {
			t.Errorf("%s: %+v", engine, said)
		}
	}
	out := saying{}.over(member.Facts{})
	if out.Mesh != 0 || out.RelayCluster != "" || out.Relays != nil {
		t.Errorf("it says %+v", out)
	}
}

// TestTheKernelHasNoOffloadsOfOurs, and says why.
func TestTheKernelHasNoOffloadsOfOurs(t *testing.T) {
	all := inKernel{}.Offloads()
	if len(all) != 4 || slices.ContainsFunc(all, func(o tunnel.Offload) bool { return o.On || o.Why == "" || o.Name == "" }) {
		t.Errorf("%+v", all)
	}
}

func TestStrays(t *testing.T) {
	var s strays
	for _, c := range []struct{ all, expected, want uint64 }{
		{500, 0, 0}, {510, 10, 0}, {512, 11, 0}, {512, 12, 0}, {514, 12, 0}, {514, 12, 2}, {515, 14, 2}, {520, 15, 2},
		{520, 15, 5}, {520, 20, 5},
	} {
		if got := s.without(c.all, c.expected); got != c.want {
			t.Errorf("of %d packets, %d of them expected: %d, want %d", c.all, c.expected, got, c.want)
		}
	}
}
