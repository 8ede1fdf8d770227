// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"errors"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel"
	"github.com/tombolo-io/tombolo/internal/mesh/routing"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// What happens before the loop runs. Nobody else changes the state then.

// Preflight says why the node cannot run here, before others learn of it and before anything is
// changed: what the kernel lacks, or something else uses.
func (m *Mesh) Preflight(ctx context.Context) (err error) {
	names := routing.Names(m.cfg.Options)
	k, err := kernel.New(names)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	r, err := routing.New(routing.Parts{Kernel: k, Able: func() []*fault.Fault { return able(ctx, &m.cfg) },
		Options: m.cfg.Options, Log: m.log, Local: m.around})
	if err != nil {
		return err
	}
	if err := r.Reload(m.cfg.Policies, m.attach.Cluster()); err != nil {
		return err
	}
	s := *m.state.Load() // of which nothing is kept
	s.world = m.gather(nil, roster.Result{})
	s.overlay = s.overlay.choose(s.choice(roster.Result{}), time.Now())
	_, err = m.names.prepare(k, names, func() error { return r.Prepare(s.plan(time.Now())) })
	return err
}

// Introduce has the discovery client announce from its first word on who this node was when it
// ran last, and must come before that runs: a member whose key is not known takes no part, and
// what others send to its ranges would go in clear until the mesh is up. A node that has never run
// announces nothing yet.
func (m *Mesh) Introduce() {
	s := *m.state.Load()
	if !s.overlay.Six.IsValid() {
		return
	}
	s.world = m.gather(nil, roster.Result{})
	var do effects
	s.judgePods(time.Now(), &do)
	s.announce(&do)
	m.become(nil, s, do)
}

// settle makes sure that there are overlay addresses, in the cluster of the others. A node that has
// none yet, or was of another cluster, first waits a moment for the members.
func (m *Mesh) settle(ctx context.Context) error {
	s := *m.state.Load()
	var waiting []string
	o := s.overlay
	complete := o.Six.IsValid() && (o.Four.IsValid() || !m.cfg.Options.Overlay4.IsValid())
	if !complete || !s.cluster().ranHere(s.before) {
		waiting = m.awaitMembers(ctx)
	}
	m.o.Members.Merged() // what was heard while we waited is not gathered any longer
	result, more := m.o.Members.Result()
	for result.Self.ID == "" { // not even the cache has been read: what a killed run left closed would open
		select {
		case <-more:
		case <-ctx.Done():
			return nil
		}
		result, more = m.o.Members.Result()
	}
	s.world = m.gather(nil, result)
	v := s.evidence(result, waiting, true).judge()
	if len(v.refused) > 0 {
		return joined(v.refused)
	}
	var do effects
	s.doubts = warn(s.doubts, v.doubts, &do)
	if v.alone != "" {
		m.log.Info("no other member is known", "secrets", s.clusters(), telemetry.AttrReason, v.alone)
	}
	next, write := s.nextOverlay(time.Now())
	if !write {
		s.overlay = next
	} else if err := s.takeOverlay(overlayWritten{next, next.write(m.cfg.StateDir)}, &do); err != nil {
		return err
	}
	m.become(nil, s, do)
	return nil
}

// awaitMembers waits a moment for the members, and names the sources that have not said all that they know.
func (m *Mesh) awaitMembers(ctx context.Context) (waiting []string) {
	if waiting = m.o.Members.AwaitSettled(ctx, meshSettle); len(waiting) > 0 {
		m.log.Warn("the node starts before all members are known", "sources", waiting)
	}
	return waiting
}

// untaken refuses a start with a range that another member has, which this node did not have when
// it ran last: with what it has had it starts again, whatever others say. Nobody knows us by a key
// yet: nothing of it was routed to us.
func (s *state) untaken() error {
	if s.set.Shared {
		return nil
	}
	return routing.Taken(topology.Taken(s.against(s.facts()), s.ranges.known.Own))
}

// joined is nil without faults.
func joined(faults []*fault.Fault) error {
	errs := make([]error, len(faults))
	for i, f := range faults {
		errs[i] = f
	}
	return errors.Join(errs...)
}
