// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	links "github.com/tombolo-io/tombolo/internal/link/check"
	"github.com/tombolo-io/tombolo/internal/link/probe"
	"github.com/tombolo-io/tombolo/internal/link/reach"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// KindLinkCheck is the kind of LinkCheck.
const KindLinkCheck = "LinkCheck"

// LinkCheck is the answer to POST /v1/links/check: what this node has found about linked clusters.
type LinkCheck struct {
	admin.Meta
	Node     string          `json:"node"` // CLUSTER.NODE
	Findings []links.Finding `json:"findings"`
}

// LinkQuestion says what CheckLinks measures.
type LinkQuestion struct {
	Wait time.Duration         // for the first echo to each peer
	Only string                // another cluster; empty: all
	DNS  map[string]netip.Addr // DNS Services whose addresses are not the usual ones, by cluster
}

// CheckLinks measures whether linked clusters are reached from here.
func (m *Mesh) CheckLinks(ctx context.Context, q LinkQuestion) (LinkCheck, error) {
	s, st := m.state.Load(), m.Status()
	if m.parts.Load() == nil {
		return LinkCheck{}, notUp()
	}
	v := s.linked.view
	switch {
	case m.o.Linked == nil:
		return LinkCheck{}, fault.New(fault.CodeNotFound, "this node belongs to no linked cluster").
			Hint("set sources.linked.cluster in its configuration")
	case q.Only != "" && !s.linked.has(q.Only):
		return LinkCheck{}, fault.Newf(fault.CodeNotFound, "no cluster %q is linked with this one", q.Only).
			Hint("'tombolo link list' shows all")
	}
	targets, left := probe.Targets(v, s.linked.plan, q.Only)
	for i := range targets {
		s.aim(&targets[i], st)
		if p := m.parts.Load(); p != nil {
			p.want(targets[i].ID)
		}
	}
	var own []netip.Prefix
	for _, n := range v.Nodes {
		if n.Name == v.Self {
			own = n.Pods
		}
	}
	measured := links.Measured{Link: st.Link, InForce: st.InForce, Left: left, Problems: doubled(v)}
	if st.Fault != nil {
		measured.Why = st.Fault.Fault().Error()
	}
	for _, r := range s.linked.plan.Linked {
		measured.Needs4, measured.Needs6 = measured.Needs4 || r.Addr().Is4(), measured.Needs6 || r.Addr().Is6()
	}
	probe.Machine(&measured, st.Link)
	measured.Before = kernel.NATBefore(s.set.Options.Filter, topology.BeforeSourceNAT)
	measured.Peers, measured.Names = probe.Run(ctx, probe.Task{MTU: st.MTU, Wait: q.Wait, Sources: probe.Within(own),
		Targets: targets, Servers: probe.Servers(v, q.Only, q.DNS)})
	if ctx.Err() != nil {
		return LinkCheck{}, fault.From(ctx.Err())
	}
	after := m.Status() // of tunnels that were made meanwhile
	for i := range measured.Peers {
		show(&measured.Peers[i], targets[i].ID, after)
	}
	return LinkCheck{Meta: meta(KindLinkCheck), Node: v.Self.String(), Findings: links.Judge(measured)}, nil
}

// doubled are the nodes of other clusters that do not count, and why.
func doubled(v reach.View) (out []string) {
	for _, n := range v.Nodes {
		if n.Cluster != v.Self.Cluster && n.Doubled != "" {
			out = append(out, fmt.Sprintf("the ClusterNode %q does not count: %s", n.String(), n.Doubled))
		}
	}
	return out
}

// has reports whether a cluster is linked with this one.
func (l linked) has(cluster string) bool {
	for _, c := range l.view.Clusters {
		if c.Name == cluster && cluster != l.view.Self.Cluster {
			return true
		}
	}
	return false
}

// aim gives a target the addresses of its tunnel.
func (s *state) aim(t *probe.Target, st Status) {
	for id, m := range s.members {
		if m.Facts.Node == t.Name || t.Cluster == s.linked.view.Self.Cluster && t.Cluster+"."+m.Facts.Nodename == t.Name {
			t.ID = id
		}
	}
	p, err := st.Peer(t.ID)
	if t.ID == "" || err != nil || t.Through != "" {
		return
	}
	t.From, t.To = s.overlay.Four, p.Overlay4
	if !t.From.IsValid() || !t.To.IsValid() || t.To.IsUnspecified() {
		t.From, t.To = s.overlay.Six, p.Overlay6
	}
	if len(s.linked.plan.Mapped) == 0 && t.Cluster != s.linked.view.Self.Cluster { // mapped sources go to ranges only
		for _, at := range []netip.Addr{p.Overlay4, p.Overlay6} {
			if at.IsValid() && !at.IsUnspecified() {
				t.Sure = append(t.Sure, at)
			}
		}
	}
}

// show says how the mesh reaches a peer.
func show(to *links.Peer, id string, st Status) {
	if p, err := st.Peer(id); id != "" && err == nil {
		to.State, to.Path, to.Why = p.State, p.Path, p.Why
	}
}

// linkQuestion reads a request's query: wait=5s, cluster=NAME, and dns=NAME=ADDRESS any number of times.
func linkQuestion(r *http.Request) (q LinkQuestion, err error) {
	values := r.URL.Query()
	if q.Wait, err = time.ParseDuration(values.Get("wait")); err != nil || q.Wait <= 0 || q.Wait > limit.MeshPing {
		return q, fault.Newf(fault.CodeRequest, "wait=%.40q is not within 0s and %v", values.Get("wait"), limit.MeshPing)
	}
	q.Only, q.DNS = values.Get("cluster"), map[string]netip.Addr{}
	for _, text := range values["dns"] {
		name, at, _ := strings.Cut(text, "=")
		a, err := netip.ParseAddr(at)
		if err != nil || name == "" {
			return q, fault.Newf(fault.CodeRequest, "dns=%.80q is not NAME=ADDRESS", text)
		}
		q.DNS[name] = a
	}
	return q, nil
}
