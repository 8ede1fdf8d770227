// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/mesh/relayproto"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
	pb "github.com/tombolo-io/tombolo/proto"
)

// conn is one connection that the hub has welcomed.
type conn struct {
	link     *link
	hub      *hub // known from the handshake on
	tls      *tls.Conn
	buf      []byte // what was read and not taken
	have     int
	records  []byte // of the writer
	greeting relayproto.Greeting
	since    time.Time

	done     chan struct{} // closed when it has ended and that is noted
	end      atomic.Pointer[fault.Fault]
	drained  chan struct{} // closed when the hub drains
	draining atomic.Bool
	leaving  atomic.Bool // another one has its place
	rtt      atomic.Int64
	pinged   atomic.Int64 // when the open ping was sent, in ns since since; 0: none
}

// open dials, shakes hands and reads the welcome.
func (l *link) open(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, limit.Handshake)
	defer cancel()
	cfg, err := l.client.cfg.TLS()
	if err != nil {
		return nil, err
	}
	raw, err := l.client.cfg.Dial(ctx, l.address)
	if err != nil {
		return nil, away(l.address, err)
	}
	c := &conn{link: l, buf: make([]byte, limit.RelayRead), done: make(chan struct{}), drained: make(chan struct{})}
	cfg = cfg.Clone()
	cfg.ServerName = trust.ServerName(l.address)
	verify := cfg.VerifyConnection
	cfg.VerifyConnection = func(s tls.ConnectionState) error {
		if err := verify(s); err != nil {
			return err
		}
		h, err := l.client.claim(l, s)
		c.hub = h
		return err
	}
	c.tls = tls.Client(raw, cfg)
	stop := run.OnDone(ctx, func() { raw.Close() })
	err = c.greet(ctx)
	stop()
	if err != nil {
		raw.Close()
		return nil, away(l.address, err)
	}
	c.since = time.Now()
	return c, nil
}

// away codes a failure to reach a hub; what the hub or its certificate said passes.
func away(address string, err error) error {
	var held *heldError
	if errors.As(err, &held) {
		return held
	}
	var f *fault.Fault
	if errors.As(err, &f) {
		return f
	}
	return fault.Newf(fault.CodeHubAway, "the relay of the hub cannot be reached at %s", address).Because(err).
		Hint("check the address, the way through firewalls (TCP), and that the hub runs")
}

func (c *conn) greet(ctx context.Context) error {
	if err := c.tls.HandshakeContext(ctx); err != nil {
		return err
	}
	if p := c.tls.ConnectionState().NegotiatedProtocol; p == "" {
		return fault.New(fault.CodeVersion, "the hub does not speak our protocol of the relay").
			Hint("it may be older than this node")
	}
	for {
		body, err := c.first()
		if err != nil {
			return err
		}
		if body == nil {
			continue
		}
		c.greeting, err = relayproto.ParseWelcome(body)
		return err
	}
}

// first reads one frame; nil for one that is no welcome and may be ignored.
func (c *conn) first() (welcome []byte, err error) {
	for {
		kind, body, rest, need, err := relayproto.Next(c.buf[:c.have])
		if err != nil {
			return nil, broken(err)
		}
		if need == 0 {
			body = append([]byte(nil), body...)
			c.have = copy(c.buf, rest)
			switch kind {
			case relayproto.Welcome:
				return body, nil
			case relayproto.End:
				return nil, ended(body)
			}
			return nil, nil
		}
		n, err := c.tls.Read(c.buf[c.have:])
		if c.have += n; err != nil && n == 0 {
			return nil, err
		}
	}
}

func broken(err error) error {
	return fault.New(fault.CodeFrameInvalid, "a frame of the hub cannot be read").Because(err)
}

// ended is what a hub says at the end, as a fault.
func ended(body []byte) error {
	r, err := relayproto.ParseEnd(body)
	if err != nil {
		return broken(err)
	}
	if f := wire.FromFault(&pb.Fault{Code: r.Code, What: r.What, Why: r.Why, Next: r.Next}); f != nil {
		return f
	}
	return fault.New(fault.CodeSessionLost, "the hub has ended the connection")
}

// serve carries packets until the connection ends, and says why it did.
func (c *conn) serve(ctx context.Context) error {
	g := run.NewGroup(ctx)
	stop := run.OnDone(ctx, func() { c.tls.NetConn().Close() })
	sending, halt := context.WithCancel(ctx)
	g.Do(func(context.Context) { c.write(sending) })
	err := c.read()
	stop()
	halt()
	c.tls.NetConn().Close()
	g.Wait()
	var f *fault.Fault
	var timeout net.Error
	switch {
	case errors.As(err, &f):
		return f
	case errors.As(err, &timeout) && timeout.Timeout():
		return fault.Newf(fault.CodeHubAway, "the hub %s is silent", c.hub.name).Whyf("nothing came for %v", limit.RelayDead)
	}
	return fault.Newf(fault.CodeHubAway, "the connection to the relay of the hub %s broke", c.hub.name).Because(err)
}

func (c *conn) over() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// why is the reason of its end, as an error; nil if it has not ended, or we ended it.
func (c *conn) why() error {
	if f := c.end.Load(); f != nil {
		return f
	}
	return nil
}

// retire is for a connection whose address leads to another hub now: others may send
// to the old one until they know of the new one.
func (c *conn) retire(ctx context.Context) {
	timer := time.NewTimer(relayStable)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.done:
	case <-ctx.Done():
	}
	client := c.link.client
	client.mu.Lock()
	c.hub.cur.CompareAndSwap(c, nil)
	client.mu.Unlock()
	c.leave()
	client.ring()
}

// leave lets a connection end whose place another one has: the hub ends it when it
// knows that, and what is on its way meanwhile still comes.
func (c *conn) leave() {
	c.leaving.Store(true)
	c.tls.SetReadDeadline(time.Now().Add(relayLeave))
	c.hub.out.ring()
}

func (c *conn) read() error {
	var alive time.Time
	for {
		rest, err := c.take(c.buf[:c.have])
		if err != nil {
			return err
		}
		c.have = copy(c.buf, rest)
		if now := time.Now(); now.Sub(alive) > time.Second && !c.leaving.Load() {
			c.tls.SetReadDeadline(now.Add(limit.RelayDead))
			if c.leaving.Load() { // since then
				c.tls.SetReadDeadline(now.Add(relayLeave))
			}
			alive = now
		}
		n, err := c.tls.Read(c.buf[c.have:])
		if c.have += n; err != nil && n == 0 {
			if errors.Is(err, io.EOF) {
				err = fmt.Errorf("the hub has closed it: %w", err)
			}
			return err
		}
	}
}

// take serves all whole frames of b and gives the rest.
func (c *conn) take(b []byte) (rest []byte, err error) {
	for {
		kind, body, rest, need, err := relayproto.Next(b)
		if err != nil {
			return nil, broken(err)
		}
		if need > 0 {
			return rest, nil
		}
		if err := c.handle(kind, body); err != nil {
			return nil, err
		}
		b = rest
	}
}

func (c *conn) handle(kind relayproto.Type, body []byte) error {
	switch kind {
	case relayproto.Packet, relayproto.Absent:
		name, datagram, err := relayproto.ParseNamed(body)
		if err != nil {
			return broken(err)
		}
		if kind == relayproto.Absent {
			c.link.client.total.absent.Add(1)
			c.link.client.to.Absent(c.hub.name, string(name))
			return nil
		}
		c.hub.received.add(1, int64(len(datagram)))
		c.link.client.total.received.add(1, int64(len(datagram)))
		c.link.client.to.Receive(c.hub.name, string(name), datagram)
	case relayproto.Ping:
		id, err := relayproto.ParsePing(body)
		if err != nil {
			return broken(err)
		}
		c.hub.out.control(relayproto.AppendPing(nil, relayproto.Pong, id))
	case relayproto.Pong:
		id, err := relayproto.ParsePing(body)
		if err != nil {
			return broken(err)
		}
		if c.pinged.CompareAndSwap(int64(id), 0) {
			c.rtt.Store(max(1, int64(time.Since(c.since))-int64(id)))
		}
	case relayproto.Drain:
		if c.draining.CompareAndSwap(false, true) {
			close(c.drained)
		}
	case relayproto.End:
		return ended(body)
	}
	return nil
}

// write sends what waits, and pings. While another connection takes the place of this
// one, what waits is for that one.
func (c *conn) write(ctx context.Context) {
	tick := time.NewTicker(relayPing)
	defer tick.Stop()
	b := c.ping(nil)
	for {
		for rest := b; len(rest) > 0; {
			piece := rest[:min(len(rest), limit.RelayWrite)]
			c.tls.SetWriteDeadline(time.Now().Add(limit.RelayDead))
			if err := c.give(piece); err != nil {
				c.tls.NetConn().Close() // the reader ends, too
				return
			}
			rest = rest[len(piece):]
		}
		if c.leaving.Load() {
			c.hub.out.ring() // what waits is for the other one
			return
		}
		if b = c.hub.out.take(b); len(b) > 0 {
			continue
		}
		select {
		case <-c.hub.out.wake:
		case <-tick.C:
			b = c.ping(b[:0])
		case <-ctx.Done():
			return
		}
	}
}

// gatherer has the records of one write leave at once: a connection of Config.Dial may be one.
type gatherer interface {
	Gather(buf []byte, write func() error) ([]byte, error)
}

func (c *conn) give(piece []byte) (err error) {
	write := func() error {
		_, err := c.tls.Write(piece)
		return err
	}
	if g, ok := c.tls.NetConn().(gatherer); ok && len(piece) > limit.RelayRecord {
		c.records, err = g.Gather(c.records, write)
		return err
	}
	return write()
}

// ping is a ping whose id is when it was sent.
func (c *conn) ping(b []byte) []byte {
	at := max(1, int64(time.Since(c.since)))
	c.pinged.Store(at)
	return relayproto.AppendPing(b, relayproto.Ping, uint64(at))
}
