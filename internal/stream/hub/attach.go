// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"crypto/subtle"
	"net"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/hub/credentials"
	"github.com/tombolo-io/tombolo/internal/stream/hub/state"
)

// attaching finds the live session of an agent that gave it a secret, and takes
// a place in it for one more connection. A secret that is not there and one of
// another agent's session get the same answer.
func (c *cluster) attaching(agent id.Agent, secret []byte, most int) (*session, *fault.Fault) {
	var found *session
	for _, s := range c.live() {
		if s.agent == agent && len(s.secret) > 0 && subtle.ConstantTimeCompare(s.secret, secret) == 1 {
			found = s
		}
	}
	if found == nil || found.ended.Load() != nil {
		return nil, fault.New(fault.CodeSessionLost, "there is no such session to add a connection to").
			Whyf("this hub holds none of this agent with that secret").Hint("the agent goes on with the connections that it has")
	}
	if !found.reserve(most) {
		return nil, fault.New(fault.CodeLimit, "the session takes no more connections").
			Whyf("it may have %d", most).Hint("the hub's connections and its limit of open files bound them")
	}
	return found, nil
}

// reserve takes a place for a connection that is about to be added.
func (s *session) reserve(most int) bool {
	s.places.Lock()
	defer s.places.Unlock()
	info := s.link.Info()
	if info.Connections+s.coming >= most {
		return false
	}
	s.coming++
	return true
}

// release gives back the place of a connection that will not be added.
func (s *session) release() {
	s.places.Lock()
	defer s.places.Unlock()
	s.coming--
}

// add puts a connection into its place. A concurrent count waits, or would find it
// both coming and there, or neither. The link does not wait for its peer.
func (s *session) add(conn net.Conn) error {
	s.places.Lock()
	defer s.places.Unlock()
	s.coming--
	return s.link.Attach(conn)
}

// attach adds a connection, whose place is taken, to its session, which owns it from then on.
func (ag *agents) attach(a arrival, s *session) error {
	missing := s.missing.Swap(0) // before: this one may be lost at once, too
	if err := s.add(a.conn); err != nil {
		s.missing.Add(missing)
		return err
	}
	// Revoked since it was identified, when the revocation did not see this connection.
	if f := ag.credentials.Refusal(a.who, credentials.IssuedAt(a.leaf())); f != nil {
		s.end(f)
	}
	say := ag.log.Debug
	if missing > 0 {
		say = ag.log.Info // those who saw the loss want to see its repair
	}
	say("connection added", telemetry.AttrCluster, s.cluster.name, telemetry.AttrAgent, s.agent,
		telemetry.AttrPeer, addrText(a.conn),
		"connections", s.link.Info().Connections, "resumed", a.conn.ConnectionState().DidResume)
	return nil
}

// lost notes that a session has lost a connection. One that was not needed any
// more is no news. It may come before the session has its link.
func (ag *agents) lost(s *session, l carrier.Loss) {
	say := ag.log.Debug
	if l.Cause != carrier.CauseLeft {
		say = ag.log.Info
		s.missing.Add(1)
		s.mu.Lock()
		s.losses++
		s.newest = &admin.Loss{Cause: string(l.Cause), Reason: l.Why.Error(), At: ag.now().UTC()}
		s.mu.Unlock()
	}
	say("connection lost", telemetry.AttrCluster, s.cluster.name, telemetry.AttrAgent, s.agent, telemetry.AttrPeer, s.peer,
		telemetry.AttrCause, l.Cause, telemetry.AttrReason, l.Why.Error(), "remain", l.Remain)
	ag.metrics.Losses.WithLabelValues(string(l.Cause)).Inc() // when all else is known
}

// endAgent ends the sessions of an agent that was revoked, with all of their
// connections, and counts them.
func (ag *agents) endAgent(ctx context.Context, who id.Identity) int {
	c, err := ag.clusters.get(who.Cluster)
	if err != nil {
		return 0
	}
	return c.endSessions(ctx, state.RevokedHolder(who.URI()),
		func(s *session) bool { return s.agent.String() == who.Name })
}

// endSessions ends those sessions of a cluster, and counts them.
func (c *cluster) endSessions(ctx context.Context, why *fault.Fault, which func(*session) bool) (n int) {
	g := run.NewGroup(ctx)
	for _, s := range c.live() {
		if which(s) {
			n++
			s.draining.Store(true) // no more dials while it reads the farewell
			g.Do(func(context.Context) { s.end(why) })
		}
	}
	g.Wait()
	return n
}
