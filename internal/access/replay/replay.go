// SPDX-License-Identifier: Apache-2.0

// Package replay decides the dials of audit records again, by other policies, and
// counts where the verdict differs. It reads no files and dials nothing.
package replay

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/hostname"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// Replay decides recorded dials, and connections at an edge, by policies.
type Replay struct {
	policies  []*policy.Policy
	edge      *policy.EdgeRules
	protected func(cluster string) bool
	result    Result
	differ    map[kind]*Difference
}

// Result counts dials by what the policies would change.
type Result struct {
	Dials       int          `json:"dials"`
	Refused     int          `json:"refused"`  // were allowed
	Admitted    int          `json:"admitted"` // were refused
	Open        int          `json:"open"`     // a name without an address decides nothing
	Unclear     int          `json:"unclear"`  // the destination cannot be read
	Agents      int          `json:"agents"`   // refused by the agent
	Unjudged    int          `json:"unjudged"` // neither a verdict nor a target that was reached
	More        int          `json:"more,omitempty"`
	Differences []Difference `json:"differences"`
}

// Difference is a kind of dial whose verdict changes, and how many there were.
type Difference struct {
	Cluster string `json:"cluster"`
	Flow    string `json:"flow,omitempty"` // of an edge
	Caller  string `json:"caller"`         // at an edge its address
	Target  string `json:"target"`
	Before  string `json:"before"`
	After   string `json:"after"`
	Rule    string `json:"rule,omitempty"`
	Why     string `json:"why"`
	Dials   int    `json:"dials"`
}

// kind is what the dials of a Difference have in common.
type kind struct{ cluster, flow, caller, asked, before, after string }

// mostDifferences bounds the table: records also hold what a hostile caller asked for.
const mostDifferences = 10_000

// New returns a replay without dials. protected says which clusters are so by their tenant at an edge.
func New(policies []*policy.Policy, protected func(cluster string) bool) *Replay {
	return &Replay{
		policies: policies, edge: policy.NewEdgeRules(policies...), protected: protected, differ: map[kind]*Difference{},
	}
}

// Add decides a recorded dial of a hub, or a connection at an edge; other records are left out.
func (r *Replay) Add(rec audit.Record) {
	if rec.At == audit.AtEdge {
		r.addEdge(rec)
		return
	}
	if rec.At != audit.AtHub || rec.Asked == "" || rec.Cluster == "" {
		return
	}
	q, ok := question(rec)
	if !ok {
		r.result.Unclear++
		return
	}
	switch judged(rec) {
	case byAgent:
		r.result.Agents++
		return
	case byNone:
		r.result.Unjudged++
		return
	}
	v := policy.Decide(q, r.policies...)
	r.count(rec.Verdict == audit.Deny, v.Open, v, Difference{Cluster: rec.Cluster, Caller: rec.Caller, Target: rec.Asked})
}

// count compares a verdict with the recorded one; open: it depends on what is not recorded.
func (r *Replay) count(denied, open bool, v policy.Verdict, d Difference) {
	r.result.Dials++
	d.Before, d.After = admin.VerdictAllowed, admin.VerdictDenied
	if denied {
		d.Before = admin.VerdictDenied
	}
	switch {
	case open:
		r.result.Open++
		return
	case v.Allow:
		d.After = admin.VerdictAllowed
	}
	if d.Before == d.After {
		return
	}
	if d.After == admin.VerdictDenied {
		r.result.Refused++
	} else {
		r.result.Admitted++
	}
	key := kind{d.Cluster, d.Flow, d.Caller, d.Target, d.Before, d.After}
	known := r.differ[key]
	if known == nil {
		if len(r.differ) == mostDifferences {
			r.result.More++
			return
		}
		d.Cluster, d.Flow, d.Caller = wire.Clean(d.Cluster), wire.Clean(d.Flow), wire.Clean(d.Caller)
		d.Target, d.Rule, d.Why = wire.Clean(d.Target), v.Rule, v.Why()
		known = &d
		r.differ[key] = known
	}
	known.Dials++
}

// addEdge decides a recorded connection at an edge. Its record has no port: where rules tell ports apart, the verdict
// is open.
func (r *Replay) addEdge(rec audit.Record) {
	flow := rec.Egress
	if rec.Cluster == "" || !slices.Contains(policy.EdgeFlows(), flow) {
		if rec.Count > 0 && rec.Cluster != "" {
			r.result.Unjudged += int(rec.Count) // refusals without a record of their own
		}
		return
	}
	source, err := netip.ParseAddrPort(rec.Source)
	if err != nil {
		addr, err := netip.ParseAddr(rec.Source) // as ext-authz writes it
		if err != nil {
			r.result.Unclear++
			return
		}
		source = netip.AddrPortFrom(addr, 0)
	}
	if rec.Verdict == "" && rec.Resolved == "" && rec.Code != telemetry.Outcome("") &&
		rec.Code != string(fault.CodePolicyDenied) {
		r.result.Unjudged++
		return
	}
	w := policy.EdgeWay{Cluster: rec.Cluster, Flow: flow}
	if name, err := hostname.Parse(rec.Asked); err == nil { // else a destination, which rules do not name
		w.Name = name
	}
	protected := r.protected(rec.Cluster)
	v, open := r.edge.Decide(w, source.Addr(), protected), false
	for _, other := range r.edge.Ways(rec.Cluster, flow) {
		at := w
		at.Port = other.Port
		open = open || r.edge.Decide(at, source.Addr(), protected).Allow != v.Allow
	}
	denied := rec.Verdict == audit.Deny || rec.Code == string(fault.CodePolicyDenied)
	r.count(denied, open, v, Difference{
		Cluster: rec.Cluster, Flow: flow, Caller: source.Addr().Unmap().String(), Target: rec.Asked,
	})
}

// Result returns the counts, and the differences with the new refusals first, then the
// most frequent.
func (r *Replay) Result() Result {
	out := r.result
	out.Differences = []Difference{}
	for _, d := range r.differ {
		out.Differences = append(out.Differences, *d)
	}
	slices.SortFunc(out.Differences, func(x, y Difference) int {
		return cmp.Or(cmp.Compare(y.After, x.After), cmp.Compare(y.Dials, x.Dials), cmp.Compare(x.Cluster, y.Cluster),
			cmp.Compare(x.Flow, y.Flow), cmp.Compare(x.Caller, y.Caller), cmp.Compare(x.Target, y.Target))
	})
	return out
}

// question is what the hub was asked when it wrote the record.
func question(rec audit.Record) (q policy.Request, ok bool) {
	if policy.FlowOf(rec.Caller) == policy.FlowBack {
		q = policy.Request{Cluster: rec.Cluster, Caller: rec.Caller, Flow: policy.FlowBack}
		q.Name, ok = wire.ParsePort(rec.Asked)
		if at, err := netip.ParseAddrPort(rec.Source); err == nil {
			q.Source = at.Addr().Unmap()
		}
		return q, ok
	}
	t, err := policy.ParseTarget(rec.Asked)
	if err != nil {
		return q, false
	}
	q = policy.Request{
		Cluster: rec.Cluster, Caller: rec.Caller, Egress: rec.Egress, Flow: policy.FlowOf(rec.Caller),
		Name: t.Name, Addr: t.Addr, Port: t.Port,
	}
	if rec.Peer != nil {
		q.Local, q.UID = true, rec.Peer.UID
	}
	if at, err := netip.ParseAddrPort(rec.Resolved); err == nil {
		q.Addr = at.Addr().Unmap()
	}
	if at, err := netip.ParseAddrPort(rec.Source); err == nil {
		q.Source = at.Addr().Unmap()
	}
	return q, true
}

// judge is who gave the verdict of a record, if the hub's policy cannot change it.
type judge uint8

const (
	byHub   judge = iota // the hub's policy, or its absence
	byAgent              // the agent's own list refused, no such port was there, or the target was a listener of ours
	byNone               // it was turned away earlier, or for another reason
)

// judged says who decided. A refusal by a hub's policy names the policy's version. A
// hub without a policy passes everything to the agent, and records no verdict.
func judged(rec audit.Record) judge {
	denied := rec.Verdict == audit.Deny || rec.Code == string(fault.CodePolicyDenied)
	switch {
	case denied && rec.Policy == "":
		return byAgent
	case rec.Verdict == "" && rec.Resolved == "":
		return byNone
	}
	return byHub
}
