// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"fmt"
	"net/netip"
	"sync"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
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
	mu         sync.RWMutex
	set        bool   // a policy is configured; without one the agents' own lists are the policy
	generation uint64 // counts the changes
	began      uint64 // the generation in which set was turned
	total      policy.Digest
	sources    map[string]source
	wide       map[string]source
	cluster    map[string]map[string]source // by cluster, then by file

	live map[id.Cluster]map[*hubStream]struct{}
}

// source is the policy of one file and the generation in which it came into force.
type source struct {
	*policy.Policy
	generation uint64
}

// ruling is a verdict with the version of the policy that gave it, for the record.
type ruling struct {
	policy.Verdict
	judged  bool // a policy is configured
	version version
}

// version names what was in force: a count of changes since the hub's start, and a
// digest of the content that is the same at every hub with the same rules. That of
// a cluster is of the files that speak of it, with the newest generation of theirs,
// and stays the same while other clusters' files change.
type version struct {
	generation uint64
	content    policy.Digest
}

// String is empty if no policy is configured.
func (v version) String() string {
	if v.generation == 0 {
		return ""
	}
	return fmt.Sprintf("%d-%s", v.generation, v.content)
}

func newAccess() *access {
	return &access{
		sources: map[string]source{}, wide: map[string]source{},
		cluster: map[string]map[string]source{}, live: map[id.Cluster]map[*hubStream]struct{}{},
	}
}

// decide answers for one cluster. Without a policy everything is allowed here, and
// judged is false.
func (a *access) decide(q policy.Request) ruling {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.decideLocked(q)
}

func (a *access) decideLocked(q policy.Request) ruling {
	if !a.set {
		return ruling{Verdict: policy.Verdict{Allow: true}}
	}
	var few [8]*policy.Policy
	all := few[:0]
	a.each(q.Cluster, func(s source) { all = append(all, s.Policy) })
	return ruling{policy.Decide(q, all...), true, a.versionLocked(q.Cluster)}
}

// each gives the policies that may speak of a cluster.
func (a *access) each(cluster string, visit func(source)) {
	for _, s := range a.wide {
		visit(s)
	}
	for _, s := range a.cluster[cluster] {
		visit(s)
	}
}

func (a *access) versionLocked(cluster string) (v version) {
	if !a.set {
		return v
	}
	v.generation = a.began
	a.each(cluster, func(s source) {
		v.generation, v.content = max(v.generation, s.generation), v.content.Plus(s.Digest())
	})
	return v
}

// version is that of one cluster.
func (a *access) version(cluster string) version {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.versionLocked(cluster)
}

// whole is the version of everything in force.
func (a *access) whole() version {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if !a.set {
		return version{}
	}
	return version{a.generation, a.total}
}

// overruled is a live stream that is refused from now on.
type overruled struct {
	stream *hubStream
	ruling ruling
}

// replace puts the policies of some files into force, nil for a file that is gone,
// all at once. It gives the streams that are refused from now on. There is one
// caller at a time.
func (a *access) replace(set bool, changed map[string]*policy.Policy) (refused []overruled) {
	for _, s := range a.swap(set, changed) {
		if r := a.decide(s.request); r.judged && !r.Allow {
			refused = append(refused, overruled{s, r})
		}
	}
	return refused
}

// swap gives the live streams that the change may concern. They are judged after it,
// so that dials do not wait for that; who enters meanwhile is judged by what is new.
func (a *access) swap(set bool, changed map[string]*policy.Policy) (asked []*hubStream) {
	a.mu.Lock()
	defer a.mu.Unlock()
	everywhere := set != a.set
	touched := map[id.Cluster]bool{}
	moved := everywhere
	a.generation++ // taken back if nothing moves
	if everywhere {
		a.began = a.generation
	}
	for file, next := range changed {
		if old, there := a.sources[file]; there && next != nil && old.Digest() == next.Digest() {
			continue // it was written as it was, or read twice
		}
		moved = true
		for _, p := range []*policy.Policy{a.sources[file].Policy, next} {
			everywhere = everywhere || p.Wide()
			for _, c := range p.Clusters() {
				if name, err := id.ParseCluster(c); err == nil { // else there is none of that name
					touched[name] = true
				}
			}
		}
		a.remove(file)
		a.insert(file, next)
	}
	if !moved {
		a.generation--
	}
	a.set = set
	take := func(streams map[*hubStream]struct{}) {
		for s := range streams {
			asked = append(asked, s)
		}
	}
	if everywhere {
		for _, streams := range a.live {
			take(streams)
		}
		return asked
	}
	for c := range touched {
		take(a.live[c])
	}
	return asked
}

func (a *access) remove(file string) {
	old := a.sources[file]
	for _, c := range old.Clusters() {
		delete(a.cluster[c], file)
		if len(a.cluster[c]) == 0 {
			delete(a.cluster, c)
		}
	}
	a.total = a.total.Minus(old.Digest())
	delete(a.wide, file)
	delete(a.sources, file)
}

func (a *access) insert(file string, p *policy.Policy) {
	if p == nil {
		return
	}
	s := source{p, a.generation}
	a.sources[file] = s
	a.total = a.total.Plus(p.Digest())
	if p.Wide() { // it is asked for every cluster
		a.wide[file] = s
		return
	}
	for _, c := range p.Clusters() {
		if a.cluster[c] == nil {
			a.cluster[c] = map[string]source{}
		}
		a.cluster[c][file] = s
	}
}

// enter judges a stream whose address is known now, and keeps it in mind if it
// may live. Both happen at once, so that no change falls between them.
func (a *access) enter(c id.Cluster, s *hubStream) (ruling, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.decideLocked(s.request)
	if r.judged && !r.Allow {
		return r, false
	}
	s.rule, s.policy = r.Rule, r.version
	if a.live[c] == nil {
		a.live[c] = map[*hubStream]struct{}{}
	}
	a.live[c][s] = struct{}{}
	return r, true
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

func (a *access) configured() bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.set
}

// denied is the fault of a verdict.
func denied(r ruling, q policy.Request) error {
	f := fault.New(fault.CodePolicyDenied, "the hub's policy refuses the destination").Whyf("%s", r.Why())
	if r.judged {
		f = f.Hint("see which rule decides: tombolo policy explain %s %s --as %s", q.Cluster, destination(q), q.Caller)
	} else {
		f = f.Hint("if it is meant, name exactly this address and port in the agent's --allow")
	}
	return ruled{f, r}
}

func destination(q policy.Request) string {
	if q.Name != "" {
		return policy.Target{Name: q.Name, Port: q.Port}.String()
	}
	return netip.AddrPortFrom(q.Addr, q.Port).String()
}

// cut ends streams that a changed policy refuses, each with the ruling in its record.
func (h *Hub) cut(refused []overruled) {
	for _, r := range refused {
		s := r.stream
		s.against.Store(&r.ruling)
		h.log.Debug("a stream ends that the changed policy refuses", telemetry.AttrCluster, s.request.Cluster, telemetry.AttrTarget, destination(s.request),
			telemetry.AttrCaller, s.request.Caller, telemetry.AttrReason, r.ruling.Why())
		s.Reset(splice.ResetCode(fault.CodePolicyDenied))
	}
	if len(refused) > 0 {
		h.log.Info("streams ended that the changed policy refuses", "streams", len(refused), "version", h.access.whole().String())
	}
}
