// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"

	"github.com/tombolo-io/tombolo/internal/access/authz"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// apiExplain says what each hop would decide, without dialling.
func (ap *api) apiExplain(r *http.Request) (any, error) {
	name, err := parseCluster(r.PathValue("cluster"))
	if err != nil {
		return nil, err
	}
	c, err := ap.clusters.get(name)
	if err != nil {
		return nil, err
	}
	q, err := Question(name.String(), r.URL.Query())
	if err != nil {
		return nil, err
	}
	if q.Flow == policy.FlowBack {
		return ap.explainPort(q), nil
	}
	sessions := c.live()
	out := explanation(q)
	hop := ap.hubHop(q)
	out.Hops = append(out.Hops, hop)
	agents := admin.VerdictDenied
	for _, s := range sessions {
		hop := ap.hopThrough(s, q)
		if better(hop.Verdict, agents) {
			agents = hop.Verdict
		}
		out.Hops = append(out.Hops, hop)
	}
	if len(sessions) == 0 {
		out.Hops = append(out.Hops, admin.Hop{Place: "agent", Name: "-", Verdict: admin.VerdictDenied,
			Why: "no agent is connected"})
	}
	out.Verdict = hop.Verdict
	if !better(agents, hop.Verdict) {
		out.Verdict = agents
	}
	return out, nil
}

// explainPort is apiExplain for an agent that asks for a port of the hub.
func (ap *api) explainPort(q policy.Request) admin.Explanation {
	out := explanation(q)
	port := admin.Hop{Place: "ports", Name: ap.cfg.Name, Verdict: admin.VerdictDenied,
		Why: "the hub's configuration names no such port for the cluster"}
	if p, f := ap.settings.Load().ports.find(q.Cluster, q.Name); f == nil {
		port.Verdict, port.Why = admin.VerdictAllowed, "it leads to "+p.target.String()
	}
	hop := ap.hubHop(q)
	if hop.Version == "" {
		hop.Why = "the hub has no policy: its ports are the policy"
	}
	out.Hops, out.Verdict = []admin.Hop{port, hop}, port.Verdict
	if better(port.Verdict, hop.Verdict) {
		out.Verdict = hop.Verdict
	}
	return out
}

// hopThrough is what the hub would do with one agent, and the agent by its own list.
func (ap *api) hopThrough(s *session, q policy.Request) admin.Hop {
	own := q
	own.Own = ap.own.From(s.peer)
	hop := agentHop(s.agent.String(), s.ranges, q)
	// what the hub says once it knows through whom
	if r := ap.access.DecideThrough(s.ranges, own); own.MeetsOwn() && !r.Allow {
		hop.Verdict, hop.Rule, hop.Why = admin.VerdictDenied, r.Rule, "the hub does not ask this agent: "+r.Why()
	} else if _, err := ap.dials.askable(s, q); err != nil {
		f := fault.From(err)
		hop.Verdict, hop.Rule, hop.Why = admin.VerdictDenied, "", f.What+": "+f.Why
	}
	return hop
}

// hubHop is what the hub decides before it picks an agent.
func (p *parts) hubHop(q policy.Request) admin.Hop {
	q.Own = p.own.FromAfar()
	r := p.access.Decide(q)
	hop := hopOf("hub", p.cfg.Name, r.Verdict)
	hop.Version = r.Version.String()
	if !r.Judged {
		hop.Why = "the hub has no policy: the agents' own lists are the policy"
	}
	return hop
}

// Question makes a request of what an operator asks: target, as, uid, egress and
// from, the parameters of GET /v1/clusters/{cluster}/explain. Its errors are faults.
func Question(cluster string, asked url.Values) (policy.Request, error) {
	if _, err := parseCluster(cluster); err != nil {
		return policy.Request{}, err
	}
	if q := (policy.Request{Cluster: cluster, Caller: asked.Get("as"), Flow: policy.FlowOf(asked.Get("as")),
		Name: asked.Get("target")}); q.Flow == policy.FlowBack {
		if err := wire.CheckPort(q.Name); err != nil {
			return q, fault.New(fault.CodeRequest, "the port cannot be read").Because(err).
				Hint("an agent asks for a port of the hub: write its name, such as registry")
		}
		return from(q, asked.Get("from"))
	}
	t, err := policy.ParseTarget(asked.Get("target"))
	if err != nil {
		return policy.Request{}, fault.New(fault.CodeRequest, "the destination cannot be read").Because(err).
			Hint("write HOST:PORT")
	}
	q := policy.Request{
		Cluster: cluster, Caller: asked.Get("as"), Egress: asked.Get("egress"), Flow: policy.FlowOf(asked.Get("as")),
		Name: t.Name, Addr: t.Addr, Port: t.Port,
	}
	if uid := asked.Get("uid"); uid != "" {
		n, err := strconv.ParseUint(uid, 10, 32)
		if err != nil {
			return q, fault.Newf(fault.CodeRequest, "the user %q cannot be read", uid).Hint("write a numeric user id")
		}
		q.Local, q.UID = true, uint32(n)
	}
	return from(q, asked.Get("from"))
}

// from adds the caller's address, if one is given.
func from(q policy.Request, source string) (policy.Request, error) {
	if source == "" {
		return q, nil
	}
	var err error
	if q.Source, err = netip.ParseAddr(source); err != nil {
		return q, fault.New(fault.CodeRequest, "the caller's address cannot be read").Because(err).
			Hint("write an IP address")
	}
	return q, nil
}

// Explain is what policies decide without a running hub.
func Explain(q policy.Request, policies ...*policy.Policy) admin.Explanation {
	out := explanation(q)
	hop := hopOf("hub", "-", policy.Decide(q, policies...))
	var content policy.Digest
	for _, p := range policies {
		if p.Wide() || slices.Contains(p.Clusters(), q.Cluster) {
			content = content.Plus(p.Digest())
		}
	}
	hop.Version = content.String()
	out.Hops = []admin.Hop{hop}
	out.Verdict = out.Hops[0].Verdict
	return out
}

func explanation(q policy.Request) admin.Explanation {
	out := admin.Explanation{Meta: meta("Explanation"), Cluster: q.Cluster, Target: authz.Destination(q),
		Caller: q.Caller, Egress: q.Egress}
	if q.Source.IsValid() {
		out.Source = q.Source.String()
	}
	return out
}

func hopOf(place, name string, v policy.Verdict) admin.Hop {
	hop := admin.Hop{Place: place, Name: name, Verdict: admin.VerdictDenied, Rule: v.Rule, Why: v.Why()}
	switch {
	case v.Allow:
		hop.Verdict = admin.VerdictAllowed
	case v.Open:
		hop.Verdict = admin.VerdictOpen
	}
	return hop
}

// agentHop is what an agent would say by the list that it has told the hub. Its
// own listeners are not known here, and a long list is shown in part.
func agentHop(name string, ranges []string, q policy.Request) admin.Hop {
	told := slices.DeleteFunc(slices.Clone(ranges), func(s string) bool { return s == untold })
	p, _ := policy.CompileAllow(told)
	q.Own = nil
	hop := hopOf("agent", name, policy.Decide(q, p))
	if len(told) < len(ranges) && hop.Verdict == admin.VerdictDenied {
		hop.Verdict = admin.VerdictOpen
		hop.Why = fmt.Sprintf("none of the first %d ranges of this agent's list, which the hub keeps, allows it", len(told))
	}
	return hop
}

// better says whether one verdict lets more through than another.
func better(a, b string) bool {
	rank := map[string]int{admin.VerdictDenied: 0, admin.VerdictOpen: 1, admin.VerdictAllowed: 2}
	return rank[a] > rank[b]
}
