// SPDX-License-Identifier: Apache-2.0

package ipsectunnel

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/mesh/disco"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// mayRaw reports whether packets may go without UDP on a line at all. They do not on the way to a relay.
func (e *Engine) mayRaw(l Line) bool {
	return e.parts.Raw != nil && !l.IsZero() && !l.Remote.Addr().IsLoopback()
}

// usesRaw reports whether a tunnel is one by which packets go without UDP on the line to the peer.
func (p *peer) usesRaw(send int) bool {
	return send >= 0 && p.held[send].line.Raw && p.held[send].line.sameEnds(p.line)
}

// pairLocked gives peers what trials are sealed with: all of them, if this node has another key.
func (e *Engine) pairLocked(key tunnel.Secret, again bool) error {
	if e.parts.Raw == nil {
		return nil
	}
	secret := key.Bytes()
	private, err := ecdh.X25519().NewPrivateKey(secret[:])
	if err != nil {
		return fault.New(fault.CodeInternal, "this node's key").Because(err)
	}
	if again {
		clear(e.hints)
	}
	var errs []error
	for k, p := range e.peers {
		if p.pair != nil && !again {
			continue
		}
		if p.pair, err = disco.NewTrialPair(private, k); err != nil {
			errs = append(errs, fault.Newf(fault.CodeEntryInvalid, "peer %s", k.Short()).Because(err))
			continue
		}
		e.hints[p.pair.Hint] = p
	}
	return errors.Join(errs...)
}

// question is a trial that is to be sent.
type question struct {
	pair  *disco.Pair
	line  Line
	trial disco.Trial
}

// ask asks all peers of which that is due.
func (e *Engine) ask() {
	for _, q := range e.questions(time.Now()) {
		e.send(q)
	}
}

func (e *Engine) questions(now time.Time) (all []question) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.peers {
		if p.pair == nil || !e.mayRaw(p.line) {
			continue
		}
		used, ask := p.usesRaw(e.parts.Limits.decide(now, p.situation).send), false
		rested := p.trial.rests
		p.trial, ask = p.trial.next(now, used, now.Sub(p.seen.lastSent) < trialIdle)
		if p.trial.rests > rested {
			e.log.Debug("packets go in UDP", telemetry.AttrNode, p.key.Short(), "path", p.line.Remote,
				telemetry.AttrReason, p.trial.why)
		}
		if ask {
			var id [8]byte
			rand.Read(id[:]) // it has no errors (crypto/rand)
			p.trial = p.trial.ask(now, binary.BigEndian.Uint64(id[:])|1)
			all = append(all, question{p.pair, p.line, disco.Trial{ID: p.trial.ids[0], Heard: p.trial.receives}})
		}
		if p.trial.passes(now, p.line.Raw, used) != p.line.Raw {
			e.alarm.Ring()
		}
	}
	return all
}

func (e *Engine) send(q question) {
	b, err := q.pair.Seal(nil, rand.Reader, disco.Message{Trial: &q.trial}, 0)
	if err == nil {
		err = e.parts.Raw.Send(q.line.Remote.Addr(), q.line.Local, b)
	}
	if err != nil {
		e.log.Debug("nothing is sent by protocol 50", "path", q.line.Remote.Addr(), telemetry.AttrReason, err)
	}
}

// hear takes a trial of a peer, or an answer. From anybody else it is nothing.
func (e *Engine) hear(from, local netip.Addr, data []byte) {
	h, ok := disco.HintOf(data)
	e.mu.Lock()
	e.heard50++
	p := e.hints[h]
	var pair *disco.Pair
	if ok && p != nil {
		pair = p.pair
	}
	e.mu.Unlock()
	if pair == nil {
		return
	}
	if m, err := pair.Open(data); err == nil && m.Trial != nil {
		if q, ok := e.heard(p, *m.Trial, Line{Local: local, Remote: netip.AddrPortFrom(from, 0)}); ok {
			e.send(q)
		}
	}
}

// heard notes what a peer says, and returns what is to be answered.
func (e *Engine) heard(p *peer, t disco.Trial, at Line) (question, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	if !t.Answer {
		here := at.sameEnds(p.line)
		last := &p.replied[0]
		if here { // what somebody has recorded and sends from elsewhere keeps nothing here from being answered
			last = &p.replied[1]
		}
		if p.gone || now.Sub(*last) < trialEvery/8 {
			return question{}, false
		}
		*last = now
		rests := here && now.Before(p.trial.until)
		return question{p.pair, at, disco.Trial{ID: t.ID, Answer: true, Rests: rests, Heard: p.trial.receives}}, true
	}
	if !at.sameEnds(p.line) { // of a path from before
		return question{}, false
	}
	before := p.trial.answers
	if p.trial = p.trial.answered(now, t); before < trialAnswers && p.trial.answers == trialAnswers {
		e.alarm.Ring()
	}
	return question{}, false
}

// wayLocked is whether packets to a peer go without UDP, and why, or why not.
func (e *Engine) wayLocked(now time.Time, p *peer) (raw bool, why string) {
	switch {
	case p.line.IsZero(), p.line.Remote.Addr().IsLoopback():
		return false, ""
	case e.parts.Raw == nil:
		return false, e.parts.NoRaw
	}
	raw = p.usesRaw(e.parts.Limits.decide(now, p.situation).send)
	return raw, p.trial.reason(now, raw)
}
