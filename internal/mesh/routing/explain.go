// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// Explanation is how a packet goes, by what the kernel has.
type Explanation struct {
	topology.Way
	Planned bool     // something is wanted; else nothing is known
	Differs []string // steps to what is wanted, the first of them: something is on its way, or was refused
	More    int      // further steps
	Fault   *fault.Fault
	// Ruled says that a policy is asked about what comes from there, and Lines are those of it
	// that look at that address. Caller is the identity that a hub has vouched for there.
	Ruled  bool
	Lines  []string
	Caller string
}

// String is one line for each step.
func (e Explanation) String() string {
	if !e.Planned {
		return "the mesh has not decided yet what to route\n"
	}
	var b strings.Builder
	b.WriteString(e.Way.String())
	if e.Ruled {
		if e.Caller != "" {
			fmt.Fprintf(&b, "a hub has vouched for %s as %s\n", e.Address, e.Caller)
		} else {
			fmt.Fprintf(&b, "no hub has vouched for a name of %s: "+
				"allow rules with callers do not count for it, deny rules with callers do\n", e.Address)
		}
		fmt.Fprintf(&b, "what %s sends to this node is let in by the policy, or dropped, by the first of\n", e.Address)
		for _, line := range append(slices.Clone(e.Lines), "anything else: drop") {
			b.WriteString("  " + line + "\n")
		}
	}
	switch {
	case e.Fault != nil:
		b.WriteString("the kernel could not be read, so this is what is wanted: " + e.Fault.Error() + "\n")
	case len(e.Differs) > 0:
		b.WriteString("the kernel is not what is wanted; it lacks\n")
		for _, s := range e.Differs {
			b.WriteString("  " + s + "\n")
		}
		if e.More > 0 {
			b.WriteString("  and more\n")
		}
	}
	return b.String()
}

type ask struct {
	to     netip.Addr
	answer chan Explanation
}

// Explain says which set, mark, rule, route and peer a new connection of this machine to
// an address takes. It asks Run, which looks at the kernel.
func (r *Routing) Explain(ctx context.Context, to netip.Addr) (Explanation, error) {
	q := ask{to, make(chan Explanation, 1)}
	select {
	case r.asks <- q:
	case <-r.over:
		return Explanation{}, fault.New(fault.CodeNotFound, "the way of a packet").Whyf("the mesh has ended")
	case <-ctx.Done():
		return Explanation{}, context.Cause(ctx)
	}
	select {
	case e := <-q.answer:
		return e, nil
	case <-ctx.Done():
		return Explanation{}, context.Cause(ctx)
	}
}

func (o *owner) explain(to netip.Addr) Explanation {
	if !o.wanted {
		return Explanation{Way: topology.Way{Address: to}}
	}
	e := Explanation{Planned: true}
	state, err := o.kernel.Observe()
	if err != nil {
		state, e.Fault = o.want, fault.From(err)
	}
	e.Way = topology.Explain(state, o.peers, to)
	e.Why = e.Way.About(o.closed, o.problems)
	e.Lines, e.Ruled = ruled(state, e.Way)
	e.Caller = policy.CallerAt(o.lowered.parties, to)
	steps := plan.Diff(state, o.want)
	for i, s := range steps {
		if i == limit.RoutingTold {
			e.More = len(steps) - i
			break
		}
		e.Differs = append(e.Differs, s.String())
	}
	return e
}

// ruled are the lines of the policy that look at what a peer's address sends.
func ruled(s plan.State, w topology.Way) (lines []string, is bool) {
	for _, t := range s.Tables {
		at := slices.IndexFunc(t.Chains, func(c plan.Chain) bool { return c.Name == accessChain })
		if at < 0 || !w.ToPeer {
			continue
		}
		is = true
		for _, line := range t.Chains[at].Lines[:max(0, len(t.Chains[at].Lines)-1)] {
			if looksAt(t.Sets, line, w.Address) {
				lines = append(lines, line.String())
			}
		}
	}
	return lines, is
}

// looksAt reports whether a line is about what an address sends, wherever that goes.
func looksAt(sets []plan.Set, line plan.Line, from netip.Addr) bool {
	only := plan.Line{}
	for _, term := range line {
		switch term.Key {
		case plan.KeySrc4, plan.KeySrc6:
			only = append(only, term)
		case plan.KeyDst4:
			only = append(only, plan.If(plan.KeyFamily, "4"))
		case plan.KeyDst6:
			only = append(only, plan.If(plan.KeyFamily, "6"))
		}
	}
	table := plan.Table{Sets: sets,
		Chains: []plan.Chain{{Name: accessChain, Lines: []plan.Line{append(only, plan.Do("accept"))}}}}
	return table.Walk(accessChain, &plan.Packet{Src: from, Dst: from}).Line != nil
}
