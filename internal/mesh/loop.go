// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"errors"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/internal/link/reach"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/machine"
	"github.com/tombolo-io/tombolo/internal/mesh/routing"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// request is an event with a caller that waits for its outcome.
type request struct {
	event  event
	answer chan outcome
}

// ask has the loop handle an event, and waits for the outcome.
func (m *Mesh) ask(e event) (any, error) {
	r := request{e, make(chan outcome, 1)}
	select {
	case m.asks <- r:
		a := <-r.answer
		return a.value, a.err
	case <-m.over:
		return nil, fault.New(fault.CodeMeshAway, "the mesh ends")
	}
}

// pace says when to look around. What is new within meshGather is one look. Leases that are
// renewed are nothing new: in a large mesh that happens all the time, and the next look takes them along.
type pace struct {
	last  time.Time // of the last look
	by    time.Time // when there must be another; zero: never
	stale bool      // something around may be new
	news  bool      // members may be
}

// due reports whether it is time to look; differ reports whether members have changed since the last look.
func (p *pace) due(now time.Time, differ func() bool) bool {
	p.stale = p.stale || !p.by.IsZero() && !now.Before(p.by)
	switch {
	case now.Sub(p.last) < meshGather || !p.stale && !p.news:
		return false
	case p.stale || differ():
		return true
	}
	if p.news = false; p.by.IsZero() {
		p.by = p.last.Add(meshQuiet)
	}
	return false
}

// looked starts over after a look; again is when the next one is due, 0: not by itself.
func (p *pace) looked(now time.Time, again time.Duration, soon bool) {
	if *p = (pace{last: now, stale: soon}); again > 0 {
		p.by = now.Add(again)
	}
}

// next is when due may have another answer though nothing happens; zero: never.
func (p *pace) next() time.Time {
	if p.stale || p.news {
		return p.last.Add(meshGather)
	}
	return p.by
}

// loop owns the state until ctx ends. It looks around when something may be new: members, health,
// this machine's networks; and it answers requests.
func (m *Mesh) loop(ctx context.Context, p *parts) error {
	defer close(m.over)
	defer m.handle(p, ending{})
	var seen roster.Result // by the last look
	pace := pace{stale: true}
	var known <-chan struct{} // of the result before
	for {
		result, more := m.o.Members.Result()
		pace.news, known = pace.news || more != known, more // also if something else woke us
		if now := time.Now(); pace.due(now, func() bool { return len(roster.Events(seen, result)) > 0 }) {
			_, soon := m.handle(p, looked{m.gather(p, result)})
			seen = result
			s := m.state.Load()
			pace.looked(now, s.again(now), soon)
		}
		var wake <-chan time.Time
		if at := pace.next(); !at.IsZero() {
			wake = time.After(time.Until(at))
		}
		select {
		case <-ctx.Done():
			return nil
		case r := <-m.asks:
			a, soon := m.handle(p, r.event)
			pace.stale = pace.stale || soon
			r.answer <- a
		case <-m.moved:
			for _, w := range p.ways() {
				w.peering.Moved()
			}
			m.attach.Again()
			p.routing.Moved()
			pace.stale = true
		case <-m.look:
			pace.stale = true
		case <-more:
		case <-wake:
		}
	}
}

// handle steps with an event, and with what comes of its effects. soon asks for a look.
func (m *Mesh) handle(p *parts, e event) (a outcome, soon bool) {
	s, do := step(*m.state.Load(), e, time.Now())
	return m.become(p, s, do)
}

// become publishes a state, and carries out what has been decided with it.
func (m *Mesh) become(p *parts, s state, do effects) (a outcome, soon bool) {
	m.state.Store(&s)
	if soon = do.soon; do.answer != nil {
		a = *do.answer
	}
	for _, e := range m.carryOut(p, do) {
		next, more := m.handle(p, e)
		if soon = soon || more; next.value != nil || next.err != nil {
			a = next
		}
	}
	return a, soon
}

// carryOut does what a step has decided, and gives what came of it.
func (m *Mesh) carryOut(p *parts, do effects) (out []event) {
	for _, l := range do.log {
		l.write(m.log)
	}
	if do.overlay != nil {
		out = append(out, overlayWritten{*do.overlay, do.overlay.write(m.cfg.StateDir)})
	}
	if do.pods != nil {
		if err := do.pods.write(m.cfg.StateDir); err != nil {
			m.log.Warn("the ranges of pods are not kept: a start without the API server announces none, or old ones",
				telemetry.AttrCode, fault.From(err).Code, telemetry.AttrReason, err)
		}
	}
	if do.ranges != nil {
		out = append(out, rangesWritten{do.ranges.write(m.cfg.StateDir)})
	}
	if do.policy != nil {
		m.readPolicy(p, *do.policy)
	}
	if do.say != nil {
		m.o.Announcer.Prove(m.state.Load().key.proof)
		out = append(out, announced{m.o.Announcer.Announce(*do.say)})
	}
	if do.plan != nil {
		p.routing.Set(*do.plan)
		for _, w := range p.ways() {
			w.peering.Alone(do.alone)
		}
	}
	if do.tunnels {
		out = append(out, peersSet{p.set(do.peers)})
	}
	if do.reload != nil {
		out = append(out, reloaded{do.reload.next, m.reload(p, *do.reload)})
	}
	if do.rotate {
		next, err := m.rotate(p)
		out = append(out, rotated{next, err})
	}
	if do.refresh {
		for _, w := range p.ways() {
			w.endpoints.Refresh()
		}
	}
	return out
}

// readPolicy puts the policy between peers into force that is meant for this node's cluster: that
// of its certificate. Without one, no allow rule that names clusters is meant for it, and each deny
// rule is.
func (m *Mesh) readPolicy(p *parts, of policyRead) {
	err := p.routing.Reload(of.files, of.cluster)
	switch {
	case err != nil:
		f := fault.From(err)
		m.log.Error("the new policy between peers is refused; the last good one stays", telemetry.AttrCode, f.Code,
			telemetry.AttrReason, f.Explain())
	case of.edited:
		m.log.Info("policy between peers loaded", "files", of.files)
	}
}

// reload puts into force what other packages hold of the next configuration. What is refused changes nothing.
func (m *Mesh) reload(p *parts, of reloadWith) error {
	if err := p.routing.Announced(of.self); err != nil {
		return err
	}
	cluster := m.attach.Cluster()
	if _, err := routing.ReadAccess(of.next.Policies, cluster); err != nil {
		return p.routing.Reload(of.next.Policies, cluster) // which shows the reason in the status
	}
	if err := m.attach.Reload(attachConfig(of.next)); err != nil {
		return err
	}
	defer ring(m.files)
	return p.routing.Reload(of.next.Policies, cluster)
}

// rotate gives WireGuard another key, and this node another certificate. Both are on disk before they are used: after a
// crash the node has the one or the other.
func (m *Mesh) rotate(p *parts) (key, error) {
	was := m.state.Load().key
	next, err := drawKey()
	if err != nil {
		return key{}, err
	}
	private, err := next.private()
	if err != nil {
		return key{}, err
	}
	if err := next.write(m.cfg.StateDir); err != nil {
		return key{}, errors.Join(err, was.write(m.cfg.StateDir))
	}
	for _, w := range p.ways() {
		if err := w.peering.Rotate(private, next.certificate.signer); err != nil {
			return key{}, errors.Join(err, was.write(m.cfg.StateDir))
		}
	}
	return next, nil
}

// gather looks around; p is nil before the mesh is up. What cannot be read stays as it was.
func (m *Mesh) gather(p *parts, result roster.Result) world {
	before := m.state.Load()
	w := world{
		result: result, under: map[string][]seal.ClusterID{}, attending: m.o.Services.Attending(),
		unopened: m.o.Services.Unopened(), pods: m.pods.Load(), linked: m.linked(),
		cluster: m.attach.Cluster(), hubs: m.attach.Hubs(),
		health: map[string]topology.Health{}, certified: map[string]vouched{}, pairs: map[string]seal.Keys{},
	}
	for i := range result.Members {
		if file := result.Members[i].Pair.File; file != "" {
			if k, ok := m.o.Listed.PairKeys(file); ok {
				w.pairs[file] = k
			}
		}
		id := result.Members[i].ID
		if under := m.o.Members.Under(id); len(under) > 0 {
			w.under[id] = under
		}
	}
	var err error
	if w.interfaces, err = machine.Addresses(); err != nil {
		m.log.Warn("the addresses of this machine cannot be read", telemetry.AttrReason, err)
		w.interfaces = before.world.interfaces
	}
	w.nic = findNIC(w.linked.NIC, w.interfaces, m.cfg.Options.Link)
	if w.local, err = m.around(); err != nil {
		m.log.Warn("what this machine must reach in clear cannot be read", telemetry.AttrReason, err)
		w.local = before.world.local
	}
	if p == nil {
		return w
	}
	down := false
	for _, h := range p.healths() {
		down = down || h.Down
		if t := (topology.Health{Down: h.Down, Idle: h.Idle, Doubt: h.Doubt, Alone: h.Alone, MTU: h.MTU, At: h.At}); t.Down ||
			t.Idle || t.Doubt || t.Alone || t.MTU > 0 || len(t.At) > 0 {
			w.health[h.ID] = t
		}
		if h.Certified {
			w.certified[h.ID] = vouched{h.Key, h.Name}
		}
	}
	m.o.Listed.Suspect(down)
	w.port, w.has = p.carrier.Port(), p.carrier.Has
	w.addresses, w.endpoints = p.endpoints.Addresses(), p.reached()
	return w
}

// linked is what is known of linked clusters; nothing, for a node of none.
func (m *Mesh) linked() reach.View {
	if m.o.Linked == nil {
		return reach.View{}
	}
	return m.o.Linked.View()
}

// around is what this machine itself must reach in clear.
func (m *Mesh) around() (topology.Local, error) {
	o := m.cfg.Options
	return routing.Around{Link: o.Link, Mark: o.Marks.Own, Resolvers: routing.ResolverFiles(),
		Services: m.state.Load().needs(m.attach.Addresses())}.Local()
}
