// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// TestWhereOthersSeeTheKernelsWireGuard: public addresses, once each, with its own port.
func TestWhereOthersSeeTheKernelsWireGuard(t *testing.T) {
	var all []netip.Addr
	for _, s := range []string{"::ffff:203.0.113.9", "203.0.113.9", "10.0.0.1", "127.0.0.1", "100.64.3.4", "2001:db8::1", "fe80::1", "fd7f:175a:b97c:5602::1", "100.112.0.9"} {
		all = append(all, netip.MustParseAddr(s))
	}
	all = append(all, netip.Addr{})
	inside := []netip.Prefix{netip.MustParsePrefix("100.112.0.9/32")}
	var got []string
	for _, e := range outer(all, inside, 51820) {
		if e.Kind != member.KindMapped {
			t.Errorf("%v is of kind %v", e.Addr, e.Kind)
		}
		got = append(got, e.Addr.String())
	}
	if want := []string{"203.0.113.9:51820", "100.64.3.4:51820", "[2001:db8::1]:51820"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestAKernelNodeSaysThatItHasNoProbes, and no relay.
func TestAKernelNodeSaysThatItHasNoProbes(t *testing.T) {
	for engine, want := range map[string]uint32{meshconf.Kernel: 0, meshconf.Userspace: limit.MeshVersion} {
		s := &state{cfg: &Config{Config: meshconf.Config{Engine: engine}}}
		s.world.endpoints, s.world.hubs, s.world.cluster = nil, []string{"h"}, "c"
		if said := s.saying(); s.probes() != (want > 0) || said.mesh != want || (len(said.hubs) > 0) != (want > 0) {
			t.Errorf("%s: %+v", engine, said)
		}
		if said := s.saying(); said.engine != member.WireGuard {
			t.Errorf("%s: other members take it for %v", engine, said.engine)
		}
	}
	out := saying{}.over(member.Facts{})
	if out.Mesh != 0 || out.RelayCluster != "" || out.Relays != nil {
		t.Errorf("it says %+v", out)
	}
}

// TestOthersLearnOfIPsec: they could not reach a node that runs it by WireGuard.
func TestOthersLearnOfIPsec(t *testing.T) {
	cfg := Config{Config: meshconf.Config{Engine: meshconf.IPsec}}
	if s := (&state{cfg: &cfg}); s.saying().engine != member.IPsec {
		t.Errorf("other members take it for %v", s.saying().engine)
	}
}

// TestTheKernelHasNoOffloadsOfOurs, and says why.
func TestTheKernelHasNoOffloadsOfOurs(t *testing.T) {
	all := inKernel{}.Offloads()
	if len(all) != 4 || slices.ContainsFunc(all, func(o tunnel.Offload) bool { return o.On || o.Why == "" || o.Name == "" }) {
		t.Errorf("%+v", all)
	}
}
