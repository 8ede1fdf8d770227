// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"fmt"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/hub/state"
)

// statusOf lists who was revoked of one cluster only, unless that is empty.
func (ap *api) statusOf(cluster string) admin.Status {
	out := admin.Status{
		Meta: meta("Status"),
		Hub: admin.HubStatus{
			Version: ap.cfg.Version, Since: ap.since.UTC(), TrustDomain: ap.credentials.CA().TrustDomain(), Listen: ap.listen,
			Advertise: ap.advertise, CAPin: trust.Pin(ap.credentials.CA().Certificate()), Draining: ap.draining.Load(),
		},
		Clusters: []admin.ClusterStatus{},
	}
	ap.inForce(&out)
	stun := admin.STUN(ap.stun.Status())
	out.Hub.STUN = &stun
	var err error
	if out.Hub.WireGuard, err = ap.wireGuardStatus(); err != nil {
		out.Warnings = append(out.Warnings, err.Error())
	}
	for _, c := range ap.clusters.all() {
		cs := ap.clusterStatus(c)
		cs.Sockets, cs.Agents = ap.sockets.Of(c.name), c.agents()
		cs.Relay, cs.Ports = c.relay.Status(false), ap.portsOf(c)
		if cs.Agents == nil {
			cs.Agents = []admin.AgentStatus{}
		}
		for _, a := range cs.Agents {
			cs.Streams += a.Streams
		}
		out.Warnings = append(out.Warnings, shared(c)...)
		out.Clusters = append(out.Clusters, cs)
	}
	out.Warnings = append(out.Warnings, ap.memory.Advice()...)
	certs, err := ap.state.Certificates()
	if err != nil {
		out.Warnings = append(out.Warnings, err.Error())
	}
	out.Warnings = append(out.Warnings, expiring(certs, ap.now())...)
	out.Revoked, out.RevokedMore = ap.revokedIdentities(certs, cluster)
	return out
}

// inForce adds the policy and the memory.
func (p *parts) inForce(out *admin.Status) {
	if p.access.Configured() {
		st := p.policies.Status()
		st.Version = p.access.Whole().String()
		out.Policy = &st
	}
	memory := p.memory.Status()
	out.Hub.Memory = &memory
}

// clusterStatus is what is known of a cluster without its agents and sockets.
func (p *parts) clusterStatus(c *cluster) admin.ClusterStatus {
	return admin.ClusterStatus{Name: c.name.String(), Policy: p.access.Version(c.name.String()).String(),
		LimitHits: c.accounts.Hits(), Pressed: c.accounts.Pressed()}
}

// portsOf lists the ports of a cluster.
func (ap *api) portsOf(c *cluster) (out []admin.PortStatus) {
	own := ap.settings.Load().ports.of(c.name.String())
	if len(own) == 0 {
		return nil
	}
	live := map[string]int{}
	for _, s := range ap.access.Streams(c.name) {
		if q := s.Request(); q.Flow == policy.FlowBack {
			live[q.Name]++
		}
	}
	for _, p := range own {
		out = append(out, admin.PortStatus{Name: p.name, Target: p.target.String(), Streams: live[p.name]})
	}
	return out
}

// shared warns of identities that several processes use. Several sessions of one
// process are the rule while a renewed certificate takes over.
func shared(c *cluster) (out []string) {
	processes := map[string]map[string]bool{}
	for _, s := range c.live() {
		name := s.agent.String()
		if processes[name] == nil {
			processes[name] = map[string]bool{}
		}
		processes[name][s.instance] = true
	}
	for name, all := range processes {
		if len(all) > 1 {
			out = append(out, fmt.Sprintf("cluster %s: %d processes use the identity of agent %s; give each its own (a "+
				"copied state directory?)", c.name, len(all), name))
		}
	}
	slices.Sort(out)
	return out
}

// expiring warns of client certificates that end soon: kube-apiserver never
// loads its own again by itself.
func expiring(certs []state.Certificate, now time.Time) []string {
	var out []string
	for _, c := range certs {
		who, err := id.ParseURI(c.Identity)
		left := c.Expires.Sub(now)
		if err != nil || who.Role != id.RoleClient || !c.Revoked.IsZero() || left > limit.ExpiryWarning {
			continue
		}
		when := fmt.Sprintf("ends in %d days", int(left.Hours()/24))
		if left <= 0 {
			when = "has ended"
		}
		out = append(out, fmt.Sprintf("client certificate %s of cluster %s %s; issue a new one (tombolo egress-config %s "+
			"--mode connect-tls) and restart kube-apiserver", c.Serial, who.Cluster, when, who.Cluster))
	}
	return out
}

// firstClientEnd is when the first unrevoked client certificate ends, as a Unix time; 0 if there is none.
func firstClientEnd(certs []state.Certificate) float64 {
	first := 0.0
	for _, c := range certs {
		who, err := id.ParseURI(c.Identity)
		if err != nil || who.Role != id.RoleClient || !c.Revoked.IsZero() {
			continue
		}
		if end := float64(c.Expires.Unix()); first == 0 || end < first {
			first = end
		}
	}
	return first
}
