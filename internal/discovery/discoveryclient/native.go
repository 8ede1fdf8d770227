// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"google.golang.org/grpc"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/proto/discovery"
)

// nativeVersion is the version of the native protocol that this client speaks.
const nativeVersion = 1

// attending is a session of the native protocol (docs/reference/discovery-wire.md, section 3).
//
//	Challenge ─▶ Proof ─▶ Welcome ─▶ Snapshot... ─▶ listed
//	                         └─▶ Put ─▶ Ack or Refusal, and again with each change
type attending struct {
	c       *subscription
	s       *session
	stream  grpc.BidiStreamingClient[discovery.FromMember, discovery.FromService]
	number  uint64         // of the session, for what it says of leases
	as      seal.MemberKey // who attends; zero: it only watches
	proven  bool
	welcome bool
	listed  bool
	telling bool             // it counts for presence
	refuses bool             // our own Put was not taken, as the service can take none
	closed  bool             // it says that it takes none
	settled bool             // the service knows which members are not there
	settles <-chan time.Time // when that is taken for granted
	sent    uint64           // the version that was put last
	told    bool             // what was put was answered
	retry   <-chan time.Time // of a Put that was refused
	bounds  bounds
	next    *time.Timer // by when the next frame of the beginning must have come
}

func (c *subscription) attendNative(ctx context.Context, conn grpc.ClientConnInterface, s *session) error {
	g := run.NewGroup(ctx)
	defer func() { g.Stop(); g.Wait() }()
	stream, err := discovery.NewDiscoveryClient(conn).Attend(g.Context())
	if err != nil {
		return err
	}
	frames := receive(g, stream.Recv)
	a := &attending{c: c, s: s, stream: stream, number: c.native.sessions.Add(1), next: time.NewTimer(helloTimeout)}
	defer a.next.Stop()
	if c.self != nil {
		defer c.self.granted(a, 0)
	}
	defer a.away()
	for {
		word, changed := c.self.current()
		if err := a.put(word); err != nil {
			return err
		}
		if a.listed && (word.entries == nil || a.told) {
			s.isReady()
		}
		select {
		case r := <-frames:
			if r.err != nil {
				return r.err
			}
			c.status.contact()
			if err := a.take(r.frame); err != nil {
				return err
			}
		case <-changed:
		case <-a.retry:
			a.sent, a.retry = 0, nil
		case <-a.settles:
			a.settle(true)
		case <-a.next.C:
			return fault.Newf(fault.CodeServiceAway, "the discovery service %s stopped answering", c.service.Name).
				Whyf("there was no answer for %v", helloTimeout).Hint("see whether a discovery service answers at this address")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// take reads a frame; one that it does not know is passed over.
func (a *attending) take(f *discovery.FromService) error {
	switch {
	case f.GetChallenge() != nil:
		return a.prove(f.GetChallenge())
	case f.GetWelcome() != nil && a.proven:
		a.begin(f.GetWelcome())
	case f.GetSnapshot() != nil && a.welcome:
		a.hear(f.GetSnapshot().GetEntries(), !a.listed)
		a.next.Reset(snapshotTimeout)
		if f.GetSnapshot().GetLast() {
			a.listed = true
			a.next.Stop()
			a.settle(f.GetSnapshot().GetSettled())
			a.stand()
		}
	case f.GetStanding() != nil && a.listed:
		a.closed = f.GetStanding().GetClosed()
		a.settle(f.GetStanding().GetSettled())
		a.stand()
	case f.GetChange() != nil && a.welcome:
		a.hear(f.GetChange().GetEntries(), false)
		a.expired(f.GetChange().GetExpired())
	case f.GetAck() != nil:
		a.refuses = false
		a.stand()
		if f.GetAck().GetVersion() == a.sent && a.sent != 0 {
			a.told = true
			a.c.wasTaken(a.as.ID())
			if word, _ := a.c.self.current(); word.leaving && word.version == a.sent {
				a.c.status.took(0)
				a.c.hasLeft()
			} else {
				a.c.status.took(a.c.self.ttl)
			}
		}
	case f.GetRefusal() != nil:
		return a.refused(f.GetRefusal())
	case f.GetDrain() != nil:
		a.c.log.Info("the discovery service drains: attending another one first", "service", a.c.service.Name)
		a.s.drain()
	}
	return nil
}

// settle notes whether the service knows which members are not there. One that never says so,
// because it is older than Standing, is taken to know after the longest grace.
func (a *attending) settle(yes bool) {
	a.settled, a.settles = yes, nil
	if !yes {
		a.settles = time.After(returnGraceSlow)
	}
	a.c.status.settled(yes)
}

// stand counts the session for presence while the service has sent its list and accepts
// entries: while it accepts none, no lease can be renewed.
func (a *attending) stand() {
	telling := a.listed && !a.refuses && !a.closed
	if telling == a.telling {
		return
	}
	a.telling = telling
	if here := a.c.native.presence(a.c.keys.Cluster(), a.c.service.Name); telling {
		here.tells(time.Now(), graceOf(a.settled))
	} else {
		here.ends(time.Now())
	}
	a.c.changed()
}

// away notes that this session no longer reports anything.
func (a *attending) away() {
	a.listed = false
	a.stand()
}

func (a *attending) prove(ch *discovery.Challenge) error {
	if a.proven {
		return fault.Newf(fault.CodeFrameInvalid, "the discovery service %s challenges twice", a.c.service.Name)
	}
	word, _ := a.c.self.current()
	a.as, a.proven = word.id.key, true
	proof, err := a.c.prove(ch, a.as)
	if err != nil {
		return err
	}
	return a.send(proof)
}

// prove answers a challenge as a member, or as a watcher.
func (c *subscription) prove(ch *discovery.Challenge, as seal.MemberKey) (*discovery.FromMember, error) {
	if ch.GetVersionMin() > nativeVersion || ch.GetVersionMax() < nativeVersion {
		return nil, fault.Newf(fault.CodeVersion, "the discovery service %s speaks other versions", c.service.Name).
			Whyf("it speaks %d to %d, this node %d", ch.GetVersionMin(), ch.GetVersionMax(), nativeVersion).
			Hint("update the older of the two")
	}
	member := &as
	if as.IsZero() {
		member = nil
	}
	p, err := seal.Prove(c.keys, member, ch.GetNonce(), c.agent)
	if err != nil {
		return nil, err
	}
	p.Version = nativeVersion
	return &discovery.FromMember{Frame: &discovery.FromMember_Proof{Proof: p}}, nil
}

func (a *attending) begin(w *discovery.Welcome) {
	a.welcome, a.bounds = true, boundsOf(w)
	if a.c.self != nil && a.bounds.ttl >= shortestLease {
		a.c.self.granted(a, a.bounds.ttl)
	}
	a.next.Reset(snapshotTimeout)
	at, err := seal.ParseAddr(w.GetObservedIp())
	if err != nil || w.GetObservedPort() > 65535 {
		at = netip.Addr{}
	}
	a.c.speaksNative()
	a.c.status.attending(ProtocolNative, netip.AddrPortFrom(at, uint16(w.GetObservedPort())))
}

func (a *attending) hear(entries []*discovery.Entry, listed bool) {
	c, now := a.c, time.Now()
	from := heardFrom{name: c.service.Name, listed: listed, at: now, session: a.number}
	news, renewed := false, false
	for _, e := range entries {
		id, how, err := c.native.hear(now, c.keys, from, e)
		switch how {
		case heardNews, heardRenewed:
			news, renewed = news || how == heardNews, renewed || how == heardRenewed
			if e.GetRemoved() {
				c.log.Debug("a member says farewell", "service", c.service.Name, "id", id.String(), "version", e.GetVersion())
			}
			if !a.as.IsZero() && id == a.as.ID() {
				if err := c.self.raise(now, e.GetVersion(), true); err != nil {
					c.log.Warn("this member's own entry cannot be renewed", telemetry.AttrReason, err)
				}
			}
		case heardStale, heardFull:
			c.passed(how, nil)
		case heardJunk:
			c.passed(how, err)
		}
	}
	switch {
	case news:
		c.changed()
	case renewed:
		c.renewed()
	}
}

// passed counts what was ignored.
func (c *subscription) passed(how hearing, err error) {
	c.metrics.Passed.WithLabelValues(string(how)).Inc()
	c.status.passed(how)
	c.log.Debug("passed over what a discovery service says", "service", c.service.Name, "what", string(how),
		telemetry.AttrReason, junkReason(err))
}

// junkReason is why something is not taken, for a log.
func junkReason(err error) string {
	if f := fault.From(err); f != nil {
		return f.Error()
	}
	return ""
}

// put announces what is new.
func (a *attending) put(w word) error {
	if !a.welcome || w.entries == nil || w.version == a.sent || a.retry != nil {
		return nil
	}
	if w.id.key.ID() != a.as.ID() { // another session speaks for the new key, and takes over
		a.s.isReady()
		a.s.drain()
		return nil
	}
	mine := w.under(a.c.keys.Cluster())
	if mine == nil { // the secret was given up: this session is about to end
		return nil
	}
	a.sent = w.version
	entry, refused := a.bounds.fit(a.c, a.as, mine)
	if refused != nil {
		a.told = true
		if a.c.status.refused(refused) {
			a.c.log.Warn("this member is not announced at a discovery service", "service", a.c.service.Name,
				telemetry.AttrCode, refused.Code, telemetry.AttrReason, refused.Error())
		}
		if w.leaving {
			a.c.hasLeft() // nothing is there
		}
		return nil
	}
	return a.send(&discovery.FromMember{Frame: &discovery.FromMember_Put{Put: &discovery.Put{Entry: entry}}})
}

func (a *attending) send(f *discovery.FromMember) error { return a.stream.Send(f) }

// refused takes a refusal: of the proof, which ends the session; of an old version, which is
// answered with a newer one; or of an entry that the service does not accept, which is tried
// again later.
func (a *attending) refused(r *discovery.Refusal) error {
	f := a.c.refusal(r)
	switch {
	case r.GetVersion() == 0:
		return f
	case r.GetVersion() != a.sent:
		return nil // of a Put that was followed by another one
	case f.Code == fault.CodeEntryStale && r.GetKnown() >= a.sent:
		err := a.c.self.raise(time.Now(), r.GetKnown(), false)
		if err == nil {
			a.told = a.told || !a.c.self.answerDue().IsZero() // it is answered later; the session continues
			return nil
		}
		f = fault.From(err)
	}
	wait := announceRetry
	if a.refuses = passing(f.Code); a.refuses { // our lease runs meanwhile
		wait = min(wait, min(a.c.self.ttl, a.bounds.ttl)/10)
	}
	a.stand()
	a.told, a.retry = true, time.After(wait)
	a.c.status.refused(f)
	a.c.log.Warn("a discovery service does not take what is announced", "service", a.c.service.Name,
		telemetry.AttrCode, f.Code, telemetry.AttrReason, f.Error())
	return nil
}

// passing reports whether a refusal is due to the state of the service, not to the entry.
func passing(code fault.Code) bool {
	switch fault.ClassOf(code) {
	case fault.Unavailable, fault.Timeout, fault.Upstream:
		return true
	}
	return false
}

// refusal is a service's refusal, fit to be shown.
func (c *subscription) refusal(r *discovery.Refusal) *fault.Fault {
	return fault.New(fault.Code(shown(r.GetCode())),
		fmt.Sprintf("the discovery service %s refuses: %s", c.service.Name, shown(r.GetWhat()))).
		Whyf("%s", shown(r.GetWhy())).Hint("%s", shown(r.GetNext()))
}
