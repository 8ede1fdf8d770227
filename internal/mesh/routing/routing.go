// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// Kernel is what is changed: package kernel's, which belongs to one goroutine.
type Kernel interface {
	Observe() (plan.State, error)
	Apply([]plan.Step) error
	Check(plan.State) []*fault.Fault
	Counts() ([]kernel.Count, error)
	Settings() []plan.Sysctl
}

// Watch reports the kernel's changes since it was opened.
type Watch interface {
	Filter(ctx context.Context, notify func()) error
	Route(ctx context.Context, notify func()) error
	Close() error
}

// Parts are what routing is made of.
type Parts struct {
	Kernel Kernel
	Watch  func() (Watch, error) // opens one; nil: the kernel is looked at again and again
	// Able says what this process lacks to change the network at all (kernel.Able).
	Able func() []*fault.Fault
	// Local gathers what this machine must reach in clear; nil: what Set says.
	Local func() (topology.Local, error)
	// Options are those of inputs that have none.
	Options topology.Options
	Keep    bool // at the end everything stays
	// Peers gets the peers that have a tunnel, each time that a peer or a range comes or goes,
	// before the kernel sends anything there. It must not wait for Routing.
	Peers func(topology.Peers)
	// Caller is the SPIFFE URI of a peer's certificate, which rules of a policy look at; empty
	// if it has none. nil: nobody has one.
	Caller  func(topology.Peer) string
	Log     *slog.Logger
	Metrics prometheus.Registerer // nil: none
}

// Routing owns the kernel's state of a mesh.
type Routing struct {
	parts   Parts
	metrics *telemetry.Routing

	set, heard, moved chan struct{} // each holds one: what comes again meanwhile is the same
	asks              chan ask
	up, over          chan struct{}

	mu     sync.Mutex
	input  *topology.Input // of the last Set
	rules  *Rules
	status Status
	wanted *plan.State // nil: nothing yet
	// governing are the files that the last Reload has read, or would have: those of the
	// policy, and the lists that they name.
	governing []string
}

// New makes it. Nothing is changed before Run.
func New(p Parts) (*Routing, error) {
	if p.Kernel == nil || p.Log == nil {
		return nil, fault.New(fault.CodeInternal, "routing lacks its kernel or its log")
	}
	r := &Routing{
		parts: p, set: make(chan struct{}, 1), heard: make(chan struct{}, 1),
		moved: make(chan struct{}, 1), asks: make(chan ask),
		up: make(chan struct{}), over: make(chan struct{}),
		status: Status{Dropped: map[string]uint64{}},
	}
	reg := p.Metrics
	if reg == nil {
		reg = prometheus.NewRegistry()
	}
	r.metrics = telemetry.NewRouting(reg, kinds(), topology.Reasons(), r.readings())
	return r, nil
}

// Prepare says everything for which a state cannot be put into force here, before
// anything is changed. It must not be called beside Run.
func (r *Routing) Prepare(in topology.Input) error {
	in = r.complete(in)
	faults := in.Options.Check()
	usable := len(faults) == 0
	if r.parts.Local != nil {
		local, err := r.parts.Local()
		if err != nil {
			faults = append(faults, fault.From(err))
		}
		in.Local = local
	}
	faults = append(faults, standing(in)...)
	var able []*fault.Fault
	if r.parts.Able != nil {
		able = r.parts.Able()
		faults = append(faults, able...)
	}
	// Of a kernel that we may not change there is nothing to ask, nor for what cannot be planned.
	if usable && len(able) == 0 {
		want, err := r.planned(in)
		if err != nil {
			faults = append(faults, fault.From(err))
		}
		faults = append(faults, r.parts.Kernel.Check(want)...)
	}
	return joined(faults)
}

// planned is what an input wants, with the policy that counts.
func (r *Routing) planned(in topology.Input) (plan.State, error) {
	want, peers, _ := topology.Plan(in)
	rules := r.policy()
	if rules == nil {
		return want, nil
	}
	access, err := rules.Access(parties(peers, r.parts.Caller))
	if err != nil {
		return want, err
	}
	in.Access = access
	want, _, _ = topology.Plan(in)
	return want, nil
}

// standing are the faults of this node that hold whatever others do: another member has
// its key, or it announces what nobody may. What another member says of itself keeps no
// node from starting.
func standing(in topology.Input) []*fault.Fault {
	_, _, problems := topology.Plan(in)
	var out []*fault.Fault
	for _, p := range problems {
		if p.Kind == topology.Self {
			out = append(out, p.Fault())
		}
	}
	if f := topology.PoolFault(in); f != nil {
		out = append(out, f)
	}
	return append(out, announced(in)...)
}

// announced are the faults of what this node announces, whoever else is there.
func announced(in topology.Input) (out []*fault.Fault) {
	in.Members, in.Closed = nil, nil
	pool, _ := topology.Pool(in) // which is nothing that it announces
	_, _, problems := topology.Plan(in)
	for _, p := range problems {
		if p.Kind == topology.Refused && p.Member == in.Self.ID && p != pool {
			out = append(out, p.Fault().Hint("announce another range on this node, or smaller ones that leave out "+
				"what is named: announce.ranges in its configuration"))
		}
	}
	return out
}

// Taken are the faults of ranges of this node that another member has (topology.Taken).
func Taken(problems []topology.Problem) error {
	var out []*fault.Fault
	for _, p := range problems {
		out = append(out, p.Fault().Hint("announce another range on this node, or take it from the other one; "+
			"if both are to have it, set mesh.shared: one of them has it then, and the other when that is gone"))
	}
	return joined(out)
}

// Announced says why a node that runs must not announce what Self says: Prepare would
// refuse its next start.
func (r *Routing) Announced(in topology.Input) error {
	in = r.complete(in)
	if r.parts.Local != nil {
		local, err := r.parts.Local()
		if err != nil {
			return err
		}
		in.Local = local
	}
	return joined(announced(in))
}

// joined is nil without faults.
func joined(faults []*fault.Fault) error {
	errs := make([]error, len(faults))
	for i, f := range faults {
		errs[i] = f
	}
	return errors.Join(errs...)
}

func (r *Routing) complete(in topology.Input) topology.Input {
	if in.Options.Link == "" {
		in.Options = r.parts.Options
	}
	return in
}

// Set says what the mesh looks like from now on. Many at once are one; the input must
// not be changed any more.
func (r *Routing) Set(in topology.Input) {
	r.mu.Lock()
	r.input = &in
	r.mu.Unlock()
	ring(r.set)
}

// Use puts a policy between peers into force; nil is none.
func (r *Routing) Use(rules *Rules) {
	r.mu.Lock()
	r.rules = rules
	r.status.Policy.fill(rules)
	r.mu.Unlock()
	ring(r.set)
}

// Reload reads the files of the policy and puts it into force. If one of them is refused
// everything stays as it was, and the status says so until they are good.
func (r *Routing) Reload(files []string, cluster string) error {
	rules, read, err := readAccess(files, cluster)
	f := fault.From(err)
	r.mu.Lock()
	r.governing = read
	r.mu.Unlock()
	if f != nil {
		r.metrics.Policies.WithLabelValues(telemetry.Outcome(f.Code)).Inc()
		r.mu.Lock()
		r.status.Policy.Fault = f
		r.mu.Unlock()
		return err
	}
	r.metrics.Policies.WithLabelValues(telemetry.Outcome("")).Inc()
	r.Use(rules)
	return nil
}

// Governing are the files whose change may change the policy.
func (r *Routing) Governing() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.governing)
}

func (r *Routing) policy() *Rules {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rules
}

// Moved says that addresses or gateways of this machine may have changed.
func (r *Routing) Moved() { ring(r.moved) }

// Up is closed once the kernel has had what was wanted for the first time.
func (r *Routing) Up() <-chan struct{} { return r.up }

// Wanted is what the kernel is to have. It must not be changed; without a plan yet ok is false.
func (r *Routing) Wanted() (want plan.State, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wanted == nil {
		return plan.State{}, false
	}
	return *r.wanted, true
}

// ring does not wait: one that rings already says it.
func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// last is what Set said last; nil before the first.
func (r *Routing) last() *topology.Input {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.input
}

// write changes the status.
func (r *Routing) write(f func(*Status)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.status)
}

// rested is how long to wait after a change that took so long.
func rested(took, least, most time.Duration, share int) time.Duration {
	return max(least, min(most, time.Duration(share)*took))
}
