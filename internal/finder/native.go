// SPDX-License-Identifier: Apache-2.0

package finder

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"google.golang.org/grpc"

	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/limit"
	"github.com/tombolo-io/tombolo/internal/run"
	"github.com/tombolo-io/tombolo/internal/seal"
	"github.com/tombolo-io/tombolo/internal/tell"
	"github.com/tombolo-io/tombolo/proto/discovery"
)

// nativeVersion is the version of the native protocol that this client speaks.
const nativeVersion = 1

// attending is a session of the native protocol (docs/reference/discovery.md, section 3).
//
//	Challenge ─▶ Proof ─▶ Welcome ─▶ Snapshot... ─▶ listed
//	                         └─▶ Put ─▶ Ack or Refusal, and again with each change
type attending struct {
	c       *client
	s       *session
	stream  grpc.BidiStreamingClient[discovery.FromMember, discovery.FromService]
	proven  bool
	welcome bool
	listed  bool
	sent    uint64           // the version that was put last
	told    bool             // what was put was answered
	retry   <-chan time.Time // of a Put that was refused
	next    *time.Timer      // by when the next frame of the beginning must have come
}

func (c *client) attendNative(ctx context.Context, conn grpc.ClientConnInterface, s *session) error {
	g := run.NewGroup(ctx)
	defer func() { g.Stop(); g.Wait() }()
	stream, err := discovery.NewDiscoveryClient(conn).Attend(g.Context())
	if err != nil {
		return err
	}
	type received struct {
		frame *discovery.FromService
		err   error
	}
	frames := make(chan received)
	g.Do(func(ctx context.Context) {
		for {
			f, err := stream.Recv()
			select {
			case frames <- received{f, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	})
	a := &attending{c: c, s: s, stream: stream, next: time.NewTimer(limit.FinderHello)}
	defer a.next.Stop()
	for {
		word, changed := c.self.current()
		if err := a.put(word); err != nil {
			return err
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
			if word, _ := c.self.current(); a.listed && (word.entries == nil || a.told) {
				s.isReady()
			}
		case <-changed:
		case <-a.retry:
			a.sent, a.retry = 0, nil
		case <-a.next.C:
			return fault.Newf(fault.CodeServiceAway, "the discovery service %s does not go on", c.service.Name).
				Whyf("there was no answer for %v", limit.FinderHello).Hint("see whether a discovery service answers at this address")
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
		a.next.Reset(limit.FinderSnapshot)
		if f.GetSnapshot().GetLast() {
			a.listed = true
			a.next.Stop()
			a.c.status.settled(f.GetSnapshot().GetSettled())
		}
	case f.GetChange() != nil && a.welcome:
		a.hear(f.GetChange().GetEntries(), false)
		for _, raw := range f.GetChange().GetExpired() {
			if len(raw) == len(seal.MemberID{}) && a.c.native.expired(a.c.service.Name, seal.MemberID(raw)) {
				a.c.changed()
			}
		}
	case f.GetAck() != nil:
		if f.GetAck().GetVersion() == a.sent {
			a.told = true
			a.c.status.refused(nil)
			if word, _ := a.c.self.current(); word.leaving && word.version == a.sent {
				a.c.hasLeft()
			}
		}
	case f.GetRefusal() != nil:
		return a.refused(f.GetRefusal())
	case f.GetDrain() != nil:
		a.s.drain()
	}
	return nil
}

func (a *attending) prove(ch *discovery.Challenge) error {
	if ch.GetVersionMin() > nativeVersion || ch.GetVersionMax() < nativeVersion {
		return fault.Newf(fault.CodeVersion, "the discovery service %s speaks other versions", a.c.service.Name).
			Whyf("it speaks %d to %d, this node %d", ch.GetVersionMin(), ch.GetVersionMax(), nativeVersion).Hint("update the older of the two")
	}
	if a.proven {
		return fault.Newf(fault.CodeFrameInvalid, "the discovery service %s challenges twice", a.c.service.Name)
	}
	var member *seal.MemberKey
	if a.c.self != nil {
		member = &a.c.self.key
	}
	p, err := seal.Prove(a.c.keys, member, ch.GetNonce(), a.c.agent)
	if err != nil {
		return err
	}
	p.Version, a.proven = nativeVersion, true
	return a.send(&discovery.FromMember{Frame: &discovery.FromMember_Proof{Proof: p}})
}

func (a *attending) begin(w *discovery.Welcome) {
	a.welcome = true
	a.next.Reset(limit.FinderSnapshot)
	at, err := seal.ParseAddr(w.GetObservedIp())
	if err != nil || w.GetObservedPort() > 65535 {
		at = netip.Addr{}
	}
	a.c.status.attending(ProtocolNative, netip.AddrPortFrom(at, uint16(w.GetObservedPort())))
}

func (a *attending) hear(entries []*discovery.Entry, listed bool) {
	c, now := a.c, time.Now()
	news := false
	for _, e := range entries {
		id, how, err := c.native.hear(now, c.keys, heardFrom{name: c.service.Name, listed: listed, at: now}, e)
		switch how {
		case heardNews:
			news = true
			if c.self != nil && id == c.self.key.ID() {
				if err := c.self.raise(now, e.GetVersion(), true); err != nil {
					c.log.Warn("this member's own entry cannot be renewed", tell.AttrReason, err)
				}
			}
		case heardStale, heardFull:
			c.passed(how, nil)
		case heardJunk:
			c.passed(how, err)
		}
	}
	if news {
		c.changed()
	}
}

// passed counts what was not taken.
func (c *client) passed(how hearing, err error) {
	c.metrics.Passed.WithLabelValues(string(how)).Inc()
	c.status.passed(how)
	c.log.Debug("passed over what a discovery service says", "service", c.service.Name, "what", string(how), tell.AttrReason, junkReason(err))
}

// put announces what is new.
func (a *attending) put(w word) error {
	if !a.welcome || w.entries == nil || w.version == a.sent || a.retry != nil {
		return nil
	}
	a.sent = w.version
	return a.send(&discovery.FromMember{Frame: &discovery.FromMember_Put{Put: &discovery.Put{Entry: w.entries[a.c.secret]}}})
}

func (a *attending) send(f *discovery.FromMember) error { return a.stream.Send(f) }

// refused takes a refusal: of the proof, which is the end; of an old version, of
// which there is a newer one to be told; of what the service does not take, which
// is tried again later.
func (a *attending) refused(r *discovery.Refusal) error {
	f := fault.New(fault.Code(shown(r.GetCode())), fmt.Sprintf("the discovery service %s refuses: %s", a.c.service.Name, shown(r.GetWhat()))).
		Whyf("%s", shown(r.GetWhy())).Hint("%s", shown(r.GetNext()))
	switch {
	case r.GetVersion() == 0:
		return f
	case r.GetVersion() != a.sent:
		return nil // of a Put that was followed by another one
	case f.Code == fault.CodeEntryStale && r.GetKnown() >= a.sent:
		err := a.c.self.raise(time.Now(), r.GetKnown(), false)
		if err == nil {
			return nil
		}
		f = fault.From(err)
	}
	a.told, a.retry = true, time.After(limit.FinderRetry)
	a.c.status.refused(f)
	a.c.log.Warn("a discovery service does not take what is announced", "service", a.c.service.Name, tell.AttrCode, f.Code, tell.AttrReason, f.Error())
	return nil
}
