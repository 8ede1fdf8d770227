// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"maps"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// Status is how it stands.
type Status struct {
	InForce  bool         // the kernel has what is wanted, as far as is known
	Since    time.Time    // since when InForce is what it is
	Fault    *fault.Fault // why it is not in force; nil where nothing was wanted yet
	Tries    int          // that have failed since it was in force
	Differs  []plan.Step  // that would mend it, as the last try found; none where the kernel cannot be read
	Watching bool         // the kernel reports its changes
	Blind    *fault.Fault // why it does not

	Peers, Ranges int                // that are routed
	Problems      []topology.Problem // the first of them
	Count         int                // all of them
	Kinds         map[topology.Kind]int

	Applied uint64            // times that the kernel was changed
	Steps   uint64            // of them together
	Repairs uint64            // of them that put something back
	Dropped map[string]uint64 // packets, by reason
	Local   topology.Local
	Policy  PolicyStatus
}

// PolicyStatus is the policy between peers.
type PolicyStatus struct {
	Files []string // in force; nil: there is none
	Rules int
	Fault *fault.Fault // of files that were refused since: what is in force stays
	// Closed says why the rules cannot be put into force for the peers there are: no new
	// connection is let in.
	Closed *fault.Fault
}

func (p *PolicyStatus) fill(r *Rules) {
	*p = PolicyStatus{}
	if r != nil {
		p.Files, p.Rules = r.files, r.Size()
	}
}

// Status is safe to call at any time.
func (r *Routing) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.status
	out.Dropped, out.Kinds = maps.Clone(out.Dropped), maps.Clone(out.Kinds)
	out.Problems = slices.Clone(out.Problems)
	return out
}

// kinds are the values of the label kind.
func kinds() []string {
	var out []string
	for _, k := range topology.Kinds() {
		out = append(out, string(k))
	}
	return out
}

func (r *Routing) readings() telemetry.RoutingReadings {
	read := func(f func(*Status) float64) func() float64 {
		return func() float64 {
			r.mu.Lock()
			defer r.mu.Unlock()
			return f(&r.status)
		}
	}
	flag := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	return telemetry.RoutingReadings{
		InForce:  read(func(s *Status) float64 { return flag(s.InForce) }),
		Watching: read(func(s *Status) float64 { return flag(s.Watching) }),
		Ranges:   read(func(s *Status) float64 { return float64(s.Ranges) }),
		Problems: func(kind string) float64 {
			return read(func(s *Status) float64 { return float64(s.Kinds[topology.Kind(kind)]) })()
		},
		Dropped: func(reason string) float64 {
			return read(func(s *Status) float64 { return float64(s.Dropped[reason]) })()
		},
	}
}

// news are the problems that came and those that are gone.
func news(before, now []topology.Problem) (fresh, gone []topology.Problem) {
	known := make(map[topology.Problem]bool, len(before))
	for _, p := range before {
		known[p] = true
	}
	for _, p := range now {
		if !known[p] {
			fresh = append(fresh, p)
		}
		delete(known, p)
	}
	for _, p := range before {
		if known[p] {
			gone = append(gone, p)
		}
	}
	return fresh, gone
}

// problems shows which there are, and logs what came and went.
func (o *owner) tellProblems(now []topology.Problem) {
	fresh, gone := news(o.problems, now)
	o.problems = now
	for i, p := range fresh {
		if i == limit.RoutingTold {
			o.log.Warn("more of the mesh does not count; the status lists it", "problems", len(fresh)-i)
			break
		}
		o.log.Warn("a member or a range does not count", telemetry.AttrCode, p.Fault().Code, telemetry.AttrReason, p.String())
	}
	for i, p := range gone {
		if i == limit.RoutingTold {
			o.log.Info("more problems of the mesh are gone", "problems", len(gone)-i)
			break
		}
		o.log.Info("a problem of the mesh is gone", telemetry.AttrReason, p.String())
	}
	count := map[topology.Kind]int{}
	for _, p := range now {
		count[p.Kind]++
	}
	o.r.write(func(s *Status) {
		s.Problems, s.Count, s.Kinds = now[:min(len(now), limit.RoutingProblems)], len(now), count
	})
}

func kindOf(o plan.Object) string {
	switch o.(type) {
	case plan.Link:
		return "link"
	case plan.Address:
		return "address"
	case plan.Route:
		return "route"
	case plan.Rule:
		return "rule"
	case plan.Sysctl:
		return "sysctl"
	case plan.TableName:
		return "table"
	case plan.SetName:
		return "set"
	case plan.Elements:
		return "elements"
	}
	return "chain"
}
