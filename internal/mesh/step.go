// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"log/slog"
	"reflect"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/mesh/peering"
	"github.com/tombolo-io/tombolo/internal/mesh/routing"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// event is something that a node learns, a request, or the result of an effect.
type event any

type (
	looked   struct{ world world }          // a look around
	tunneled struct{ peers topology.Peers } // routing has planned who has a tunnel
	up       struct{}                       // the kernel has had what was wanted
	edited   struct{}                       // a file of the policy has changed
	ending   struct{}                       // the loop ends

	// Requests of the API or of the node's owner.
	forget struct{ node string }
	reload struct{ next Config }
	rotate struct{}

	// Results of effects.
	overlayWritten struct {
		next overlay
		err  error
	}
	rangesWritten struct{ err error }
	announced     struct{ err error }
	peersSet      struct{ err error }
	kernelCleared struct{ err error }
	reloaded      struct {
		next Config
		err  error
	}
	rotated struct {
		next key
		err  error
	}
)

// effects are what a step wants done, in this order. Zero values are nothing to do.
type effects struct {
	log     []line
	overlay *overlay      // to be written; overlayWritten follows
	pods    *assigned     // to be written
	ranges  *knownRanges  // to be written before anything is planned; rangesWritten follows
	policy  *policyRead   // to be put into force
	say     *member.Facts // to be announced; announced follows
	plan    *topology.Input
	alone   bool // with plan: this node is a gateway, and reaches no other node of its cluster
	tunnels bool // peers are to get theirs; peersSet follows
	peers   []peering.Peer
	refresh bool        // endpoints depend on something that is new
	reload  *reloadWith // reloaded follows
	rotate  bool        // rotated follows
	soon    bool        // look at once
	answer  *outcome    // to the request
}

// policyRead are files of the policy between peers, to be read for a cluster.
type policyRead struct {
	files   []string
	cluster string
	edited  bool // they have changed
}

// reloadWith is another configuration, with what it would announce.
type reloadWith struct {
	next Config
	self topology.Input
}

// outcome is the answer to a request.
type outcome struct {
	value any
	err   error
}

// line is one of the log.
type line struct {
	level slog.Level
	text  string
	attrs []any
}

func (l line) write(log *slog.Logger) {
	switch l.level {
	case slog.LevelError:
		log.Error(l.text, l.attrs...)
	case slog.LevelWarn:
		log.Warn(l.text, l.attrs...)
	default:
		log.Info(l.text, l.attrs...)
	}
}

func (do *effects) logs(level slog.Level, text string, attrs ...any) {
	do.log = append(do.log, line{level, text, attrs})
}

func (do *effects) refuse(err error) { do.answer = &outcome{err: err} }

// step decides what follows from an event.
func step(s state, e event, now time.Time) (state, effects) {
	var do effects
	switch e := e.(type) {
	case looked:
		s.look(e.world, now, &do)
	case overlayWritten:
		if err := s.takeOverlay(e, &do); err != nil {
			do.logs(slog.LevelError, "the overlay addresses are not kept", telemetry.AttrReason, err)
		}
		s.follow(now, &do)
	case tunneled:
		s.tellGone(e.peers, &do)
		s.peers, s.planned = e.peers, true
		s.tunnels(&do)
		do.refresh, do.answer = true, &outcome{}
	case peersSet:
		if e.err != nil && s.troubles.tunnels == nil {
			do.logs(slog.LevelWarn, "some peers get no tunnel", telemetry.AttrReason, e.err)
		}
		s.troubles.tunnels = e.err
	case announced:
		if e.err != nil && s.troubles.announced == nil {
			do.logs(slog.LevelError, "what is new of this node is not announced", telemetry.AttrReason, e.err)
		}
		s.troubles.announced = e.err
	case rangesWritten:
		if e.err != nil && s.ranges.failed == nil {
			do.logs(slog.LevelError, "the known ranges are not kept: a restart sends those of nodes that are gone in clear",
				telemetry.AttrCode, fault.From(e.err).Code, telemetry.AttrReason, e.err)
		}
		s.ranges = s.ranges.wrote(e.err)
	case up:
		s.ranges.known.Own = slices.Clone(s.configured().Ranges)
		s.keepRanges(now, &do)
	case ending:
		s.keepRanges(now, &do)
	case edited:
		do.policy = &policyRead{s.set.Policies, s.world.cluster, true}
	case kernelCleared:
		s.troubles.kernel = e.err
	case forget:
		s.forget(e.node, now, &do)
	case reload:
		s.reload(e.next, &do)
	case reloaded:
		s.reloaded(e, now, &do)
	case rotate:
		s.rotate(&do)
	case rotated:
		s.rotated(e, &do)
	}
	return s, do
}

// look takes over what is around this node. Addresses that are new are on disk before anybody
// hears of them.
func (s *state) look(w world, now time.Time, do *effects) {
	s.world = w
	next, write := s.nextOverlay(now)
	if write {
		do.overlay = &next
		return
	}
	s.overlay = next
	s.follow(now, do)
}

// nextOverlay are the overlay addresses by what is known now, and whether that is to be written.
func (s *state) nextOverlay(now time.Time) (next overlay, write bool) {
	next = s.overlay.choose(s.choice(s.world.result), now)
	return next, !next.sameAddresses(s.overlay) || s.troubles.overlay != nil ||
		!slices.Equal(next.Clusters, s.overlay.Clusters)
}

// takeOverlay takes addresses that were written, or not. What is not on disk is not used: after a
// restart the node would have other addresses. It gives the error of a node that has none then.
func (s *state) takeOverlay(e overlayWritten, do *effects) error {
	was := s.overlay
	moves := !e.next.sameAddresses(was)
	if e.err != nil && moves {
		return e.err
	}
	if e.err != nil && s.troubles.overlay == nil { // a full disk keeps no node from going on
		do.logs(slog.LevelWarn, "the secrets of this node are not kept beside its overlay addresses",
			telemetry.AttrReason, e.err)
	}
	s.overlay, s.troubles.overlay = e.next, e.err
	if moves {
		logMove(s.overlay, was.Gave, do)
	}
	return nil
}

// logMove logs that this node has other overlay addresses than before.
func logMove(o overlay, before *gave, do *effects) {
	if o.Gave != nil && o.Gave != before {
		f := o.Gave.fault()
		do.logs(slog.LevelWarn, "this node takes another overlay address", telemetry.AttrCode, f.Code,
			telemetry.AttrReason, f.Error(), "overlay6", o.Six, "overlay4", o.Four)
		return
	}
	do.logs(slog.LevelWarn, "this node takes other overlay addresses", "overlay6", o.Six, "overlay4", o.Four)
}

// follow decides with what a look has found.
func (s *state) follow(now time.Time, do *effects) {
	var v verdict
	v.secret(s.evidence(s.world.result, nil, false))
	s.doubts = warn(s.doubts, append(v.refused, v.doubts...), do)
	s.learn(now, do)
	if cluster := s.world.cluster; s.reads == nil || *s.reads != cluster {
		s.reads = &cluster // refused or not: a bad file is read again when it has changed
		do.policy = &policyRead{s.set.Policies, cluster, false}
	}
	s.judgePods(now, do)
	in := s.plan(now)
	do.plan, do.alone = &in, s.linked.alone.is
	s.announce(do)
	s.tunnels(do)
}

// warn logs the doubts that are new.
func warn(before, now []*fault.Fault, do *effects) []*fault.Fault {
	for _, f := range now {
		if !slices.ContainsFunc(before, func(o *fault.Fault) bool { return o.Code == f.Code && o.What == f.What }) {
			do.logs(slog.LevelWarn, "this node may be in another cluster than it should", telemetry.AttrCode, f.Code,
				telemetry.AttrReason, f.Explain())
		}
	}
	return now
}

// learn takes over the ranges of the members that are there.
func (s *state) learn(now time.Time, do *effects) {
	was := s.ranges.known
	var write bool
	if s.ranges, write = s.ranges.learn(s.world.result, now.Round(0), s.set.ClosedFor); write {
		do.ranges = &s.ranges.known
	}
	closed := s.ranges.known.newlyClosed(was)
	for _, l := range closed[:min(len(closed), limit.RoutingTold)] {
		do.logs(slog.LevelWarn, "a member, or its key, is gone: its ranges are closed, and packets to them are lost",
			"node", l.Node, "id", l.ID, "ranges", l.Ranges)
	}
}

// keepRanges has what is known of ranges written, if the file is another one.
func (s *state) keepRanges(now time.Time, do *effects) {
	s.ranges.tried = now.Round(0)
	if s.ranges.unwritten() {
		known := s.ranges.known
		do.ranges = &known
	}
}

// announce has what is new of this node announced.
func (s *state) announce(do *effects) {
	m := s.member()
	if s.said != nil && s.troubles.announced == nil && reflect.DeepEqual(*s.said, m) {
		return
	}
	s.said, do.say = &m, &m
}

// forget opens the ranges of a member that is gone: packets to it go by this machine's own routes
// from then on.
func (s *state) forget(node string, now time.Time, do *effects) {
	known, opened, err := s.ranges.known.forget(node)
	if err != nil {
		do.refuse(err)
		return
	}
	s.ranges.known = known
	s.keepRanges(now, do)
	do.logs(slog.LevelWarn, "closed ranges are opened", "node", node, "ranges", opened)
	do.soon, do.answer = true, &outcome{value: Forgotten{Meta: meta(KindForgotten), Node: node, Ranges: opened}}
}

// reload judges another configuration before anything of it is in force.
func (s *state) reload(next Config, do *effects) {
	facts := s.saying().over(next.Announce)
	facts.ID, facts.Ranges = s.id, next.Announce.Ranges
	if !next.Shared {
		before := slices.Concat(s.ranges.known.Own, s.base.Ranges)
		if err := routing.Taken(topology.Taken(s.against(facts), before)); err != nil {
			do.refuse(err)
			return
		}
	}
	do.reload = &reloadWith{next, topology.Input{Self: facts}}
}

// reloaded takes over what a running node can of another configuration; the answer names the
// settings that wait for the next start.
func (s *state) reloaded(e reloaded, now time.Time, do *effects) {
	if e.err != nil {
		do.refuse(e.err)
		return
	}
	fixed := s.cfg.Config.Fixed(e.next.Config)
	if name := s.base.Node; name != e.next.Announce.Node { // the certificate has it
		fixed, e.next.Announce.Node = append(fixed, "node.name"), name
	}
	s.secrets, s.set, s.base = e.next.Keys, s.set.Take(e.next.Config), e.next.Announce
	s.ranges.known.Own = slices.Clone(s.configured().Ranges)
	s.keepRanges(now, do)
	do.refresh, do.soon, do.answer = true, true, &outcome{value: fixed}
}

// rotate begins to replace the key of this node.
func (s *state) rotate(do *effects) {
	if len(s.cfg.Services) > 0 && len(s.world.attending) == 0 {
		do.refuse(fault.New(fault.CodeServiceAway, "the key is not rotated").
			Whyf("no discovery service would bring the new key to the other members").
			Hint("try again when 'tombolo mesh status' warns of no service any more"))
		return
	}
	do.rotate = true
}

func (s *state) rotated(e rotated, do *effects) {
	if e.err != nil {
		do.refuse(e.err)
		return
	}
	was := s.key
	s.key = e.next
	s.announce(do)
	do.soon, do.answer = true, &outcome{value: Rotated{meta(KindRotation), e.next.public.String(), was.public.String(),
		e.next.certificate.pin.String(), len(s.peers)}}
}
