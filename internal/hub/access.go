// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"net/netip"
	"sync"

	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/id"
	"github.com/tombolo-io/tombolo/internal/policy"
	"github.com/tombolo-io/tombolo/internal/splice"
)

// access is the hub's policy: what was compiled from each file, found by cluster,
// and the live streams that it is asked about again when it changes.
//
//	file ──Read──► source ──► wide      asked for every cluster
//	                     └──► cluster   asked for those that it names
//
// A changed file is compiled alone and moves only what it names itself, so a
// change costs the same with ten clusters and with a hundred thousand.
type access struct {
	mu      sync.RWMutex
	set     bool // a policy is configured; without one the agents' own lists are the policy
	sources map[string]*policy.Policy
	wide    map[string]*policy.Policy
	cluster map[string]map[string]*policy.Policy // by cluster, then by file

	live map[id.Cluster]map[*hubStream]struct{}
}

func newAccess() *access {
	return &access{
		sources: map[string]*policy.Policy{}, wide: map[string]*policy.Policy{},
		cluster: map[string]map[string]*policy.Policy{}, live: map[id.Cluster]map[*hubStream]struct{}{},
	}
}

// decide answers for one cluster. Without a policy everything is allowed here,
// and judged is false.
func (a *access) decide(q policy.Request) (v policy.Verdict, judged bool) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.decideLocked(q)
}

func (a *access) decideLocked(q policy.Request) (v policy.Verdict, judged bool) {
	if !a.set {
		return policy.Verdict{Allow: true}, false
	}
	var few [8]*policy.Policy
	all := few[:0]
	for _, p := range a.wide {
		all = append(all, p)
	}
	for _, p := range a.cluster[q.Cluster] {
		all = append(all, p)
	}
	return policy.Decide(q, all...), true
}

// replace puts the policies of some files into force, nil for a file that is
// gone, all at once. It gives the streams that are refused from now on.
func (a *access) replace(set bool, changed map[string]*policy.Policy) (refused []*hubStream) {
	a.mu.Lock()
	defer a.mu.Unlock()
	everywhere := set != a.set
	touched := map[string]bool{}
	for file, next := range changed {
		for _, p := range []*policy.Policy{a.sources[file], next} {
			everywhere = everywhere || p.Wide()
			for _, c := range p.Clusters() {
				touched[c] = true
			}
		}
		a.remove(file)
		a.insert(file, next)
	}
	a.set = set
	for c, streams := range a.live {
		if !everywhere && !touched[c.String()] {
			continue
		}
		for s := range streams {
			if v, judged := a.decideLocked(s.request); judged && !v.Allow {
				refused = append(refused, s)
			}
		}
	}
	return refused
}

func (a *access) remove(file string) {
	for _, c := range a.sources[file].Clusters() {
		delete(a.cluster[c], file)
		if len(a.cluster[c]) == 0 {
			delete(a.cluster, c)
		}
	}
	delete(a.wide, file)
	delete(a.sources, file)
}

func (a *access) insert(file string, p *policy.Policy) {
	if p == nil {
		return
	}
	a.sources[file] = p
	if p.Wide() {
		a.wide[file] = p
	}
	for _, c := range p.Clusters() {
		if p.Wide() {
			break // it is asked for every cluster
		}
		if a.cluster[c] == nil {
			a.cluster[c] = map[string]*policy.Policy{}
		}
		a.cluster[c][file] = p
	}
}

// enter judges a stream whose address is known now, and keeps it in mind if it
// may live. Both happen at once, so that no change falls between them.
func (a *access) enter(c id.Cluster, s *hubStream) (policy.Verdict, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	v, judged := a.decideLocked(s.request)
	if judged && !v.Allow {
		return v, false
	}
	if a.live[c] == nil {
		a.live[c] = map[*hubStream]struct{}{}
	}
	a.live[c][s] = struct{}{}
	return v, true
}

func (a *access) leave(c id.Cluster, s *hubStream) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.live[c], s)
	if len(a.live[c]) == 0 {
		delete(a.live, c)
	}
}

// streams lists a cluster's live streams.
func (a *access) streams(c id.Cluster) []*hubStream {
	a.mu.RLock()
	defer a.mu.RUnlock()
	out := make([]*hubStream, 0, len(a.live[c]))
	for s := range a.live[c] {
		out = append(out, s)
	}
	return out
}

// held sums what the streams of one caller hold.
func (a *access) held(c id.Cluster, caller string) (n int64) {
	for _, s := range a.streams(c) {
		if s.request.Caller == caller {
			n += s.holds()
		}
	}
	return n
}

func (a *access) configured() bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.set
}

// denied is the fault of a verdict.
func denied(v policy.Verdict, q policy.Request) error {
	f := fault.New(fault.CodePolicyDenied, "the hub's policy refuses the destination").Whyf("%s", v.Why()).
		Hint("see which rule decides: tombolo policy explain %s %s --as %s", q.Cluster, destination(q), q.Caller)
	return ruled{f, v.Rule}
}

func destination(q policy.Request) string {
	if q.Name != "" {
		return policy.Target{Name: q.Name, Port: q.Port}.String()
	}
	return netip.AddrPortFrom(q.Addr, q.Port).String()
}

// cut ends streams that a changed policy refuses.
func (h *Hub) cut(streams []*hubStream) {
	for _, s := range streams {
		s.Reset(splice.ResetCode(fault.CodePolicyDenied))
	}
	if len(streams) > 0 {
		h.log.Info("streams ended that the changed policy refuses", "streams", len(streams))
	}
}
