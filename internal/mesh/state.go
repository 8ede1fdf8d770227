// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"iter"
	"net/netip"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/internal/link/reach"
	"github.com/tombolo-io/tombolo/internal/link/report"
	"github.com/tombolo-io/tombolo/internal/mesh/endpoint"
	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
	"github.com/tombolo-io/tombolo/internal/mesh/nat"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// state is all that a node knows and has decided. The loop owns it: step makes the next state, and
// the loop publishes it. What is published stays as it is, so that everybody may read it.
type state struct {
	cfg     *Config                   // of the start; it stays
	id      string                    // member id
	set     meshconf.Config           // settings in force
	base    member.Facts              // what the configuration announces
	secrets iter.Seq2[int, seal.Keys] // of the cluster, the newest first
	before  trace                     // of an earlier run
	key     key                       // of WireGuard
	overlay overlay                   // addresses of this node in the mesh
	ranges  rangeMemory               // of all members, kept for when they are gone
	pods    podRanges                 // of this node's pods
	world   world                     // as the last look found it
	members map[string]*roster.Member // in the last plan, by id
	self    member.Facts              // likewise
	peers   topology.Peers            // those with a tunnel
	planned bool                      // peers are known
	reads   *string                   // the cluster for which the policy was read last
	said    *member.Facts             // what was announced last
	doubts  []*fault.Fault            // whether this is the cluster of the others
	linked  linked                    // clusters, by the last look
	troubles
}

// troubles are what did not succeed, for the status.
type troubles struct {
	tunnels   error // some peers have no tunnel
	announced error // the announcement is refused
	kernel    error // something with earlier names stays in the kernel
	overlay   error // the secrets beside the overlay addresses are not on disk
}

func (t troubles) all() []error { return []error{t.tunnels, t.announced, t.kernel, t.overlay} }

// world is what a node sees around itself. Each look gathers it again.
type world struct {
	result    roster.Result
	under     map[string][]seal.ClusterID // secrets under which services know a member, by its id
	pairs     map[string]seal.Keys        // of secrets that a member shares with this node alone, by file
	attending []string                    // services that report members now
	unopened  map[string]int              // entries that no secret opens, by service
	linked    reach.View                  // linked clusters
	pods      *assigned                   // what Kubernetes said last of this machine's Node; nil: nothing

	interfaces []nat.Address
	local      topology.Local
	nic        *report.NIC // that leads to other clusters

	cluster string   // of the certificate
	hubs    []string // at which this node is
	port    uint16   // of WireGuard

	addresses []netip.Addr      // of this machine, as others may try them
	endpoints []member.Endpoint // likewise
	has       func(netip.Addr) bool
	health    map[string]topology.Health
	certified map[string]vouched // peers for whose names a hub has vouched, by id
}

// vouched is what a hub has vouched for: that the holder of the key has the name.
type vouched struct {
	key  member.Key
	name string
}

// links are the networks of this machine's interfaces.
func (w world) links(mesh string) []netip.Prefix {
	var out []netip.Prefix
	for _, a := range w.interfaces {
		if a.Interface != mesh && a.Up && !a.Prefix.IsSingleIP() && !a.Prefix.Addr().IsLinkLocalUnicast() &&
			!a.Prefix.Addr().IsLoopback() {
			out = append(out, a.Prefix.Masked())
		}
	}
	return out
}

// clusters are the ids of the secrets, the newest first.
func (s *state) clusters() []string {
	var out []string
	for _, k := range s.secrets {
		out = append(out, k.Cluster().String())
	}
	return out
}

// cluster is the one that this node belongs to.
func (s *state) cluster() ownCluster { return ownCluster{s.cfg.ClusterID, s.clusters()} }

// lazy reports whether idle peers are left alone. With IPsec a packet alone would not wake them.
func (s *state) lazy() bool {
	return len(s.members) > s.set.LazyAbove && s.cfg.engine() != meshconf.IPsec
}

// again is in how long something changes though nothing happens; 0: never.
func (s *state) again(now time.Time) time.Duration {
	in := s.ranges.again(now.Round(0))
	if at := s.linked.again(); !at.IsZero() {
		if left := max(at.Sub(now), time.Millisecond); in == 0 || left < in {
			in = left
		}
	}
	return in
}

// inside is all that lies in the mesh.
func (s *state) inside() []netip.Prefix {
	out := s.overlay.ranges()
	for _, p := range s.peers {
		out = append(out, p.Allowed...)
	}
	return out
}

// servers are the STUN servers that the socket of WireGuard may ask.
func (s *state) servers(hubs []string) []endpoint.Server {
	return serversOf(s.set.STUN, hubs, s.cfg.Services)
}

// needs are the services that this node needs outside of the mesh, as far as an operator has
// written down their addresses: what a name means is a resolver's word, which must not decide
// what is sent in clear.
func (s *state) needs(hubs []string) []topology.Service {
	return append(servicesOf(s.set.STUN, hubs, s.cfg.Services), s.cfg.Needs...)
}

// evidence is what is known of the cluster that this node is in; waiting are the sources that have
// not answered yet. A start looks at names, too.
func (s *state) evidence(r roster.Result, waiting []string, names bool) evidence {
	e := evidence{
		secrets: s.clusters(), id: s.cfg.ClusterID, before: s.before, members: sightings(r.Members, names, s.key.public),
		unopened: s.world.unopened, waiting: waiting, nobody: s.cfg.Sourceless,
	}
	if !s.base.Overlay6.IsValid() {
		e.named = s.cluster().named()
	}
	return e
}

// choice is what the overlay addresses depend on.
func (s *state) choice(r roster.Result) choice {
	c := s.cluster().choice()
	c.pool, c.six, c.four, c.others = s.cfg.Options.Overlay4, s.base.Overlay6, s.base.Overlay4, r.Members
	return c
}
