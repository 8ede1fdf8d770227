// SPDX-License-Identifier: Apache-2.0

package ipsectunnel

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/ipsec"
	"github.com/tombolo-io/tombolo/internal/mesh/keyexchange"
	"github.com/tombolo-io/tombolo/internal/mesh/rawesp"
)

// beginLocked begins an exchange with a peer, by the line that is wanted.
func (e *Engine) beginLocked(now time.Time, p *peer, why string) {
	ctx, cancel := context.WithTimeout(e.work.Context(), exchangeTime)
	p.busy, p.tried, p.cancel = true, now, cancel
	e.begun++
	p.epoch++
	e.log.Debug("keys are exchanged", telemetry.AttrNode, p.key.Short(), "path", p.line.Remote, telemetry.AttrReason, why)
	if p.seen.asked.IsZero() {
		p.seen.asked = now
	}
	x := &exchange{e: e, p: p, line: p.line, own: true, epoch: p.epoch}
	e.work.Do(func(context.Context) {
		defer cancel()
		err := x.begin(ctx)
		e.mu.Lock()
		defer e.mu.Unlock()
		p.busy, p.cancel = false, nil
		e.begun--
		switch {
		case err == nil || x.complete:
			p.failed, p.fault = 0, nil
		case errors.Is(ctx.Err(), context.Canceled): // another path is wanted, or nobody is there any more
		default:
			p.failed, p.fault = p.failed+1, err
			if x.line.Raw && x.line == p.line { // by UDP there is a tunnel already
				p.trial = p.trial.rest(time.Now(), "no keys are agreed: "+err.Error())
			}
			e.log.Debug("no keys for IPsec", telemetry.AttrNode, p.key.Short(), "path", x.line.Remote,
				telemetry.AttrReason, err)
			e.warnLocked(time.Now(), p)
		}
		e.alarm.Ring()
	})
}

// warnLocked tells once of keys that should have been replaced long ago: after their end nothing passes.
func (e *Engine) warnLocked(now time.Time, p *peer) {
	made := e.agreedLocked(now, p)
	if made.IsZero() || made.Equal(p.warned) || !e.parts.Limits.failsLong(now, made) {
		return
	}
	p.warned = made
	e.log.Warn("no new keys are agreed for IPsec: packets to the peer are lost when the present ones end",
		telemetry.AttrNode, p.key.Short(), "agreed", made.Round(0), "end", made.Add(e.parts.Limits.HardAge).Round(0),
		telemetry.AttrReason, p.fault)
}

// exchange is one with a peer. It is where keys go.
type exchange struct {
	e        *Engine
	p        *peer
	line     Line
	own      bool // this node has begun it
	epoch    uint64
	cipher   ipsec.Cipher
	in       uint32
	complete bool // packets can go both ways
}

func (x *exchange) begin(ctx context.Context) error {
	x.e.mu.Lock()
	id, call := x.e.id, call{from: x.e.own, to: x.p.key}
	x.e.mu.Unlock()
	c, err := x.e.parts.Transport.Dial(ctx, x.line.Remote, x.line.Local, id.Client(x.p.pin))
	if err != nil {
		return err
	}
	x.cipher = cipherOf(c)
	if _, err = c.Write(call.bytes()); err == nil {
		_, err = keyexchange.Initiate(c, id, keyexchange.Offer{Epoch: x.epoch, Life: x.p.life, Raw: x.line.Raw}, x)
	}
	if err != nil {
		return errors.Join(err, c.Close())
	}
	return c.Close() // what the peer has not got is lost with it
}

// answer is the exchange of a connection that a peer has opened.
func (e *Engine) answer(_ context.Context, c Conn) {
	defer c.Close()
	to, local := c.Ends()
	x := &exchange{e: e, line: Line{Local: local.Unmap(), Remote: netip.AddrPortFrom(to.Addr().Unmap(), to.Port())}}
	if err := x.answer(c); err != nil {
		e.log.Debug("an exchange of a peer failed", "path", to, telemetry.AttrReason, err)
	}
}

func (x *exchange) answer(c Conn) error {
	pin, err := keyexchange.Peer(c.ConnectionState())
	if err != nil {
		return err
	}
	call, err := readCall(c)
	if err != nil {
		return err
	}
	e := x.e
	e.mu.Lock()
	p := e.peers[call.from]
	switch {
	case p == nil || p.pin != pin || call.to != e.own:
		e.mu.Unlock()
		return fault.New(fault.CodeNotFound, "keys for a tunnel").
			Whyf("the call is from %s to %s, and nobody has that key and certificate here", call.from.Short(), call.to.Short())
	case p.answers >= mostOfPeer:
		e.mu.Unlock()
		return fault.New(fault.CodeLimit, "keys for a tunnel").Whyf("%d of the peer are under way", mostOfPeer)
	}
	p.answers++
	id := e.id
	e.mu.Unlock()
	x.p, x.cipher = p, cipherOf(c)
	_, err = keyexchange.Respond(c, id, p.life, x)
	e.mu.Lock()
	defer e.mu.Unlock()
	p.answers--
	if !x.complete && x.in != 0 { // nobody has heard of it
		err = errors.Join(err, e.removeLocked(held{Tunnel: keyexchange.Tunnel{In: x.in}, line: x.line}))
	}
	return err
}

// call is what who opens a connection says first: whom it is from, and whom it is for. Anybody can state the pin of
// another node, which then is taken for neither of both.
type call struct{ from, to member.Key }

func (c call) bytes() []byte { return append(c.from[:], c.to[:]...) }

func readCall(from io.Reader) (call, error) {
	var b [2 * len(member.Key{})]byte
	if _, err := io.ReadFull(from, b[:]); err != nil {
		return call{}, fault.New(fault.CodeSessionLost, "keys for a tunnel").Because(err)
	}
	return call{member.Key(b[:len(member.Key{})]), member.Key(b[len(member.Key{}):])}, nil
}

// cipherOf is the cipher of packets that both ends of a connection have agreed on.
func cipherOf(c Conn) ipsec.Cipher {
	if keyexchange.ChaCha(c.ConnectionState()) {
		return ipsec.ChaCha
	}
	return ipsec.AES
}

// Offered refuses a tunnel without UDP of which this node does not want to know.
func (x *exchange) Offered(o keyexchange.Offer) error {
	x.e.mu.Lock()
	defer x.e.mu.Unlock()
	if x.line.Raw = o.Raw; !o.Raw {
		return nil
	}
	if !x.e.mayRaw(x.line) || x.line.sameEnds(x.p.line) && time.Now().Before(x.p.trial.until) {
		return fault.New(fault.CodeRequest, "keys for a tunnel").Whyf("packets do not go without UDP here")
	}
	return nil
}

// SPI is one by which this node receives from nobody else.
func (x *exchange) SPI() (uint32, error) {
	x.e.mu.Lock()
	defer x.e.mu.Unlock()
	for {
		var b [4]byte
		if _, err := rand.Read(b[:]); err != nil {
			return 0, err
		}
		if spi := binary.BigEndian.Uint32(b[:]); spi >= lowestSPI && spi != rawesp.SPI && !x.e.spis[spi] {
			return spi, nil
		}
	}
}

// Receive has this node receive by a new key.
func (x *exchange) Receive(spi uint32, k keyexchange.Key) error {
	e, p := x.e, x.p
	e.mu.Lock()
	defer e.mu.Unlock()
	if p.gone {
		return gone()
	}
	s := ipsec.State{Name: ipsec.Name{To: x.line.Local, SPI: spi}, Peer: p.id, From: x.line.Remote.Addr(),
		Cipher: x.cipher, Key: ipsec.NewKey(*k.Get()), Limits: e.parts.Limits.hard()}
	if !x.line.Raw {
		s.FromPort, s.ToPort = x.line.Remote.Port(), e.parts.Port
	}
	if err := e.parts.Kernel.Add(s); err != nil {
		return err
	}
	x.in, e.spis[spi] = spi, true
	if x.own {
		// The peer may send by it from the offer on, whatever becomes of this end: it stays until another one takes its
		// place.
		p.held = append(p.held, held{Tunnel: keyexchange.Tunnel{In: spi, Epoch: x.epoch}, line: x.line, cipher: x.cipher,
			own: true, half: true, made: time.Now(), mute: true})
		e.boundLocked(p)
	}
	return nil
}

// Send has this node send by a new key, in place of what it has sent by.
func (x *exchange) Send(t keyexchange.Tunnel, k keyexchange.Key) error {
	e, p := x.e, x.p
	e.mu.Lock()
	defer e.mu.Unlock()
	if p.gone {
		return gone()
	}
	if !p.lives.take(t.Life) {
		return fault.New(fault.CodeSessionLost, "keys for a tunnel").Whyf("the peer has forgotten the exchange meanwhile")
	}
	s := ipsec.State{Name: ipsec.Name{To: x.line.Remote.Addr(), SPI: t.Out}, Peer: p.id, From: x.line.Local,
		Sends: true, Cipher: x.cipher, Key: ipsec.NewKey(*k.Get()), Limits: e.parts.Limits.hard()}
	if !x.line.Raw {
		s.FromPort, s.ToPort = e.parts.Port, x.line.Remote.Port()
	}
	err := e.parts.Kernel.Add(s)
	if err != nil {
		return err
	}
	x.complete = true
	now := time.Now()
	p.held = supersede(p.held, held{Tunnel: t, line: x.line, cipher: x.cipher, own: x.own, made: now}, now)
	if len(p.left) > 0 && p.leftEnds.IsZero() {
		p.leftEnds = now.Add(grace)
	}
	p.seen.shook(now)
	e.boundLocked(p)
	if _, moved := e.stepLocked(now, p); moved {
		e.stale = true // for tick, which asks the kernel once for all peers
	}
	// The kernel may choose any state from and to the same addresses: the older ones go, now that there is a new one.
	for i := range p.held {
		if h := &p.held[i]; h.mute && h.Out != 0 {
			err = errors.Join(err, e.parts.Kernel.Remove(ipsec.Name{To: h.line.Remote.Addr(), SPI: h.Out}))
			h.Out = 0
		}
	}
	p.left = slices.DeleteFunc(p.left, func(s ipsec.Seen) bool {
		sends := s.To == x.line.Remote.Addr() && s.From == x.line.Local
		if sends {
			err = errors.Join(err, e.parts.Kernel.Remove(s.Name))
			delete(e.spis, s.SPI)
		}
		return sends
	})
	e.alarm.Ring()
	return err
}

// boundLocked has a peer have no more tunnels than it may: of those by which nothing is sent the oldest goes.
func (e *Engine) boundLocked(p *peer) {
	for len(p.held) > mostHeld {
		i := max(0, slices.IndexFunc(p.held, func(h held) bool { return h.mute || !h.ends.IsZero() }))
		if err := e.removeLocked(p.held[i]); err != nil {
			e.log.Warn("a state of IPsec stays", telemetry.AttrReason, err)
		}
		p.held = slices.Delete(p.held, i, i+1)
	}
}

func gone() error {
	return fault.New(fault.CodeNotFound, "keys for a tunnel").Whyf("the peer has gone, or has another certificate")
}

func (l Limits) hard() ipsec.Limits {
	return ipsec.Limits{Bytes: l.HardBytes, Packets: l.HardPackets, Age: l.HardAge}
}
