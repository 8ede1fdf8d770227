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
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// Replay decides recorded dials by policies.
type Replay struct {
	policies []*policy.Policy
	result   Result
	differ   map[kind]*Difference
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
	Caller  string `json:"caller"`
	Target  string `json:"target"`
	Before  string `json:"before"`
	After   string `json:"after"`
	Rule    string `json:"rule,omitempty"`
	Why     string `json:"why"`
	Dials   int    `json:"dials"`
}

// kind is what the dials of a Difference have in common.
type kind struct{ cluster, caller, asked, before, after string }

// mostDifferences bounds the table: records also hold what a hostile caller asked for.
const mostDifferences = 10_000

// New returns a replay without dials.
func New(policies []*policy.Policy) *Replay {
	return &Replay{policies: policies, differ: map[kind]*Difference{}}
}

// Add decides a recorded dial of a hub; other records are left out.
func (r *Replay) Add(rec audit.Record) {
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
	r.result.Dials++
	v := policy.Decide(q, r.policies...)
	before, after := admin.VerdictAllowed, admin.VerdictDenied
	if rec.Verdict == audit.Deny {
		before = admin.VerdictDenied
	}
	switch {
	case v.Allow:
		after = admin.VerdictAllowed
	case v.Open:
		r.result.Open++
		return
	}
	if before == after {
		return
	}
	if after == admin.VerdictDenied {
		r.result.Refused++
	} else {
		r.result.Admitted++
	}
	key := kind{rec.Cluster, rec.Caller, rec.Asked, before, after}
	d := r.differ[key]
	if d == nil {
		if len(r.differ) == mostDifferences {
			r.result.More++
			return
		}
		d = &Difference{
			Cluster: wire.Clean(rec.Cluster), Caller: wire.Clean(rec.Caller), Target: wire.Clean(rec.Asked),
			Before: before, After: after, Rule: v.Rule, Why: v.Why(),
		}
		r.differ[key] = d
	}
	d.Dials++
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
			cmp.Compare(x.Caller, y.Caller), cmp.Compare(x.Target, y.Target))
	})
	return out
}

// question is what the hub was asked when it wrote the record.
func question(rec audit.Record) (q policy.Request, ok bool) {
	t, err := policy.ParseTarget(rec.Asked)
	if err != nil {
		return q, false
	}
	q = policy.Request{
		Cluster: rec.Cluster, Caller: rec.Caller, Egress: rec.Egress, Flow: policy.FlowDial, Name: t.Name, Addr: t.Addr,
		Port: t.Port,
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
	byAgent              // the agent's own list refused, or the target was a listener of hub or agent
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
