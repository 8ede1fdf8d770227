// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
)

// Table is the hub's policy: what was compiled from each file, found by cluster,
// and the live streams that it is asked about again when it changes.
//
//	file ──Read──► source ──► wide      asked for every cluster
//	                     └──► cluster   asked for those that it names
//
// A changed file is compiled alone and touches only the clusters that it names, so a change
// costs the same with ten clusters and with a hundred thousand.
type Table struct {
	mu         sync.RWMutex
	set        bool   // a policy is configured; without one the agents' own lists are the policy
	generation uint64 // counts the changes
	began      uint64 // the generation in which set was turned
	total      policy.Digest
	sources    map[string]source
	wide       map[string]source
	cluster    map[string][]named // by cluster; few files name one

	live map[id.Cluster]map[Stream]struct{}
}

// source is the policy of one file and the generation in which it came into force.
type source struct {
	*policy.Policy
	generation uint64
}

// named is a source with its file.
type named struct {
	source
	file string
}

// Ruling is a verdict with the version of the policy that gave it, for the record.
type Ruling struct {
	policy.Verdict
	Judged  bool // a policy is configured
	Version Version
}

// Version names what was in force: the number of changes since the hub's start, and a digest
// of the content, which is the same at every hub with the same rules. The version of a
// cluster covers the files that name it and stays while other clusters' files change.
type Version struct {
	generation uint64
	content    policy.Digest
}

// Known says whether a policy was configured.
func (v Version) Known() bool { return v.generation > 0 }

// String is empty if no policy is configured.
func (v Version) String() string {
	if v.generation == 0 {
		return ""
	}
	return strconv.FormatUint(v.generation, 10) + "-" + v.content.String()
}

func NewTable() *Table {
	return &Table{
		sources: map[string]source{}, wide: map[string]source{},
		cluster: map[string][]named{}, live: map[id.Cluster]map[Stream]struct{}{},
	}
}

// Decide answers for one cluster. Without a policy everything is allowed here, and
// judged is false.
func (a *Table) Decide(q policy.Request) Ruling {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.decideLocked(q)
}

func (a *Table) decideLocked(q policy.Request) Ruling {
	if !a.set {
		return Ruling{Verdict: policy.Verdict{Allow: true}}
	}
	var few [8]*policy.Policy
	all := few[:0]
	v := Version{generation: a.began}
	for _, s := range a.wide {
		all = append(all, s.Policy)
		v.add(s)
	}
	for _, s := range a.cluster[q.Cluster] {
		all = append(all, s.Policy)
		v.add(s.source)
	}
	return Ruling{policy.Decide(q, all...), true, v}
}

// eachLocked visits the policies that may concern a cluster.
func (a *Table) eachLocked(cluster string, visit func(source)) {
	for _, s := range a.wide {
		visit(s)
	}
	for _, s := range a.cluster[cluster] {
		visit(s.source)
	}
}

func (a *Table) versionLocked(cluster string) (v Version) {
	if !a.set {
		return v
	}
	v.generation = a.began
	a.eachLocked(cluster, v.add)
	return v
}

func (v *Version) add(s source) {
	v.generation, v.content = max(v.generation, s.generation), v.content.Plus(s.Digest())
}

// Version is that of one cluster.
func (a *Table) Version(cluster string) Version {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.versionLocked(cluster)
}

// Whole is the version of everything in force.
func (a *Table) Whole() Version {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if !a.set {
		return Version{}
	}
	return Version{a.generation, a.total}
}

// Stream is a live stream. It is comparable.
type Stream interface {
	Request() policy.Request // with the address that was dialled
	Allowed(r Ruling)        // by which it lives
	Overrule(r Ruling)       // ends it: a changed policy refuses it
}

// Overruled is a live stream that the changed policy refuses.
type Overruled struct {
	Stream
	Ruling Ruling
}

// Replace puts the policies of some files into force, nil for a file that is gone,
// all at once. It gives the streams that are refused from now on. There is one
// caller at a time.
func (a *Table) Replace(set bool, changed map[string]*policy.Policy) (refused []Overruled) {
	for _, s := range a.swap(set, changed) {
		if r := a.Decide(s.Request()); r.Judged && !r.Allow {
			refused = append(refused, Overruled{s, r})
		}
	}
	return refused
}

// swap gives the live streams that the change may concern. They are judged afterwards, so
// that dials do not wait for it; streams that enter meanwhile are judged by the new policy.
func (a *Table) swap(set bool, changed map[string]*policy.Policy) (asked []Stream) {
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
		a.removeLocked(file)
		a.insertLocked(file, next)
	}
	if !moved {
		a.generation--
	}
	a.set = set
	take := func(streams map[Stream]struct{}) {
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

func (a *Table) removeLocked(file string) {
	old := a.sources[file]
	for _, c := range old.Clusters() {
		rest := slices.DeleteFunc(a.cluster[c], func(s named) bool { return s.file == file })
		if a.cluster[c] = rest; len(rest) == 0 {
			delete(a.cluster, c)
		}
	}
	a.total = a.total.Minus(old.Digest())
	delete(a.wide, file)
	delete(a.sources, file)
}

func (a *Table) insertLocked(file string, p *policy.Policy) {
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
		a.cluster[c] = append(a.cluster[c], named{s, file})
	}
}

// Enter judges a stream now that its address is known, and keeps it if it may live. Both
// happen under one lock, so that no change of the policy falls between them.
func (a *Table) Enter(c id.Cluster, s Stream) (Ruling, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.decideLocked(s.Request())
	if r.Judged && !r.Allow {
		return r, false
	}
	s.Allowed(r)
	if a.live[c] == nil {
		a.live[c] = map[Stream]struct{}{}
	}
	a.live[c][s] = struct{}{}
	return r, true
}

func (a *Table) Leave(c id.Cluster, s Stream) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.live[c], s)
	if len(a.live[c]) == 0 {
		delete(a.live, c)
	}
}

// Streams lists a cluster's live streams.
func (a *Table) Streams(c id.Cluster) []Stream {
	a.mu.RLock()
	defer a.mu.RUnlock()
	out := make([]Stream, 0, len(a.live[c]))
	for s := range a.live[c] {
		out = append(out, s)
	}
	return out
}

func (a *Table) Configured() bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.set
}

// Denied is the fault of a verdict.
func Denied(r Ruling, q policy.Request) error {
	f := fault.New(fault.CodePolicyDenied, "the hub's policy refuses the destination").Whyf("%s", r.Why())
	if r.Judged {
		f = f.Hint("see which rule decides: tombolo policy explain %s %s --as %s", q.Cluster, Destination(q), q.Caller)
	} else {
		f = f.Hint("if it is meant, name exactly this address and port in the agent's --allow")
	}
	return Refusal{f, r}
}

// Refusal is a refusal with the ruling that made it.
type Refusal struct {
	error
	Ruling Ruling
}

func (r Refusal) Unwrap() error { return r.error }

func Destination(q policy.Request) string {
	if q.Flow == policy.FlowBack {
		return q.Name
	}
	if q.Name != "" {
		return policy.Target{Name: q.Name, Port: q.Port}.String()
	}
	return netip.AddrPortFrom(q.Addr, q.Port).String()
}

// Naming lists the policy files that name a cluster.
func (a *Table) Naming(cluster string) []string {
	a.mu.RLock()
	defer a.mu.RUnlock()
	var files []string
	for _, s := range a.cluster[cluster] {
		files = append(files, s.file)
	}
	slices.Sort(files)
	return files
}

// DecideThrough judges a request that goes through an agent which allows these ranges. Where no
// policy is configured the agent's own list is the policy, for the hub's own listeners too.
func (a *Table) DecideThrough(ranges []string, q policy.Request) Ruling {
	r := a.Decide(q)
	if r.Judged || !q.MeetsOwn() {
		return r
	}
	p, _ := policy.CompileAllow(ranges)
	r.Verdict = policy.Decide(q, p)
	return r
}

// Protects reports whether a rule protects one of the edge's flows of a cluster.
func (a *Table) Protects(cluster, flow string) (is bool) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	a.eachLocked(cluster, func(s source) { is = is || s.Protects(cluster, flow) })
	return is
}

// Names reports whether a rule for one of the edge's flows names the cluster, and not only all clusters.
func (a *Table) Names(cluster string) (is bool) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	a.eachLocked(cluster, func(s source) { is = is || s.Names(cluster) })
	return is
}

// Guards lists the rules that protect a flow of a cluster.
func (a *Table) Guards(cluster, flow string) (out []policy.Guard) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	a.eachLocked(cluster, func(s source) { out = append(out, s.Guards(cluster, flow)...) })
	slices.SortFunc(out, func(a, b policy.Guard) int { return strings.Compare(a.Rule, b.Rule) })
	return out
}
