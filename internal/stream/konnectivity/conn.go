// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity/grpcwire"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// conn is the life of one proxied connection, which has a gRPC stream to itself:
//
//	wait --DIAL_REQ--> dial --DIAL_RSP(id)--> open --CLOSE_REQ, or the target's end--> CLOSE_RSP, done
//	                     \--DIAL_RSP(error), or DIAL_CLS--> done
//
// serve, the stream's handler, owns everything that is sent and ends the target;
// receive owns what comes from the caller and tells serve by the fields below.
type conn struct {
	stream *grpcwire.Stream
	*receiver
	group   *run.Group
	id      int64
	log     *slog.Logger
	observe Observer

	ctx    context.Context // the stream's: ends when the caller is gone or done
	dials  chan *packet    // the one DIAL_REQ
	closed chan struct{}   // closed at CLOSE_REQ, once the target's Read was cut short
	spoken chan struct{}   // closed at the first DATA

	target atomic.Pointer[carrier.Stream]
	bad    atomic.Pointer[mistake] // the caller's
	deaf   bool                    // receive's own: the target takes no more
	heard  bool                    // receive's own: spoken is closed
	stall  stall                   // receive's own
}

func newConn(s *grpcwire.Stream, r *receiver, g *run.Group, id int64, log *slog.Logger) *conn {
	return &conn{
		stream: s, receiver: r, group: g, id: id, log: log, ctx: s.Context(),
		observe: unobserved{}, dials: make(chan *packet, 1), closed: make(chan struct{}), spoken: make(chan struct{}),
	}
}

// serve carries one dial; asked is called once it is there, or will not come. It is on the stack of an idle connection,
// and has nothing large there.
func (c *conn) serve(dial func(context.Context, wire.Dial) (carrier.Stream, error), asked func()) error {
	defer c.stream.Cancel()
	// Read returns at the latest when this handler has, so that the receiver outlives it by a moment.
	c.group.Do(func(context.Context) {
		c.observe.Failed(FromClient, -1, c.receive())
		c.stream.Cancel()
		c.unheard()
	})
	target, err := c.open(dial, asked)
	if target == nil {
		return err
	}
	c.guard(target)
	defer c.stream.OnCancel(nil)
	if err == nil {
		err = c.pump(target)
	}
	return c.result(target, err)
}

// guard resets the target of a caller that leaves.
func (c *conn) guard(target carrier.Stream) {
	c.stream.OnCancel(func() {
		if !c.isClosed() {
			target.Reset(splice.ResetCode(fault.CodeDialCanceled))
		}
	})
}

// result is the stream's.
func (c *conn) result(target carrier.Stream, err error) error {
	if err != nil {
		target.Reset(splice.ResetCode(fault.CodeStreamReset))
	}
	return errors.Join(c.protocolError(), err)
}

// open dials what the caller asks for and tells it so; without a target that is all.
func (c *conn) open(dial func(context.Context, wire.Dial) (carrier.Stream, error), asked func()) (carrier.Stream,
	error) {
	first := time.NewTimer(limit.Dial)
	defer first.Stop()
	var req *packet
	select {
	case req = <-c.dials:
		asked()
	case <-c.ctx.Done():
		asked()
		return nil, c.protocolError()
	case <-first.C:
		asked()
		return nil, explain(codes.DeadlineExceeded, fault.New(fault.CodeRequest, "no DIAL_REQ came").
			Whyf("a stream is opened for one dial and waits %v for it", limit.Dial))
	}
	d, err := askedOf(c.ctx, req.protocol, req.address)
	var target carrier.Stream
	if err == nil {
		target, err = dial(c.ctx, d)
	}
	if err != nil {
		if c.ctx.Err() != nil {
			return nil, c.protocolError()
		}
		c.stream.SetTrailer(metadata.Pairs(trailerFault, string(fault.From(err).Code)))
		return nil, c.last(&packet{kind: dialResponse, body: body{random: req.random, errText: fault.From(err).Explain()}})
	}
	c.target.Store(&target)
	return target, c.send(&packet{kind: dialResponse, body: body{random: req.random, connectID: c.id}})
}

// send sends a packet; it returns when nothing of it is held any more.
func (c *conn) send(p *packet) error {
	c.observe.Packet(ToClient, p.kind)
	begin := time.Now()
	defer func() { c.observe.Wrote(time.Since(begin)) }()
	buf := c.pool.Get(p.size())
	err := c.stream.Send(p.marshal((*buf)[:0]))
	c.pool.Put(buf)
	if err != nil {
		c.observe.Failed(ToClient, p.kind, err)
	}
	return err
}

// last has a packet sent with the stream's end, in one write.
func (c *conn) last(p *packet) error {
	c.observe.Packet(ToClient, p.kind)
	p.errText = strings.ToValidUTF8(p.errText, " ") // the other side refuses a packet for it
	c.stream.Last(p.marshal(nil))
	return nil
}

func (c *conn) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

// pump carries the target's bytes to the caller until one side ends. An error
// leaves the target to be reset.
func (c *conn) pump(target carrier.Stream) error {
	to := &toCaller{conn: c}
	sendErr, err := target.CopyTo(to, nil)
	to.settle() // the end is held back as bytes are
	return c.ends(target, sendErr, err)
}

// ends tells the caller why there is no more: it takes no more, or what has become of the target.
func (c *conn) ends(target carrier.Stream, sendErr, err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		<-c.closed // receive has set the deadline and is about to say so
	}
	switch {
	case c.isClosed():
		c.group.Do(func(ctx context.Context) { linger(ctx, target) })
		return c.last(&packet{kind: closeResponse, body: body{connectID: c.id}})
	case sendErr != nil:
		return sendErr
	case err == io.EOF:
		// The protocol has no half-close: the target's end is the end.
		target.Close()
		return c.last(&packet{kind: closeResponse, body: body{connectID: c.id}})
	}
	target.Reset(splice.ResetCode(fault.CodeStreamReset))
	if c.bad.Load() != nil {
		return nil
	}
	return c.last(&packet{kind: closeResponse, body: body{connectID: c.id, errText: err.Error()}})
}

// toCaller sends what is written to it as DATA, of at most konnectivityData
// in a packet.
type toCaller struct {
	*conn
	settled bool
}

func (w *toCaller) Write(b []byte) (n int, err error) {
	w.settle()
	for n < len(b) {
		if w.isClosed() {
			return n, net.ErrClosed
		}
		piece := b[n:min(len(b), n+konnectivityData)]
		if err := w.send(&packet{kind: data, body: body{connectID: w.id, payload: piece}}); err != nil {
			return n, err
		}
		n += len(piece)
	}
	return n, nil
}

// settle does so once, before the first that the caller learns of the target.
func (w *toCaller) settle() {
	if !w.settled {
		w.settled = true
		w.conn.settle()
	}
}

// settle waits until the caller is able to receive. The reference's client
// registers a connection a moment after it has read DIAL_RSP, and drops what
// comes in between: the greeting of a target that speaks first.
func (c *conn) settle() {
	timer := time.NewTimer(limit.Settle)
	defer timer.Stop()
	select {
	case <-c.spoken:
	case <-c.closed:
	case <-c.ctx.Done():
	case <-timer.C:
	}
}

var errTooMuch = errors.New("it sends to a caller that has closed")

// linger lets the target read what the caller sent before it closed and see an
// orderly end. One that keeps sending is reset, as a closed TCP socket would, after
// limit.Discard bytes.
func linger(ctx context.Context, target carrier.Stream) {
	stop := run.OnDone(ctx, func() { target.Reset(splice.ResetCode(fault.CodeSessionLost)) })
	defer stop()
	if e, ok := target.(Excused); ok {
		e.Excuse() // else it would pay for bytes that nobody gets, and keep its place for that
	}
	target.SetReadDeadline(time.Now().Add(limit.Linger))
	var first [512]byte
	n, err := target.Read(first[:])
	if n > 0 && err == nil {
		target.SetReadDeadline(time.Now().Add(limit.Shutdown))
		if _, err = io.CopyN(io.Discard, target, limit.Discard); err == nil {
			err = errTooMuch
		}
	}
	if err == nil || err == io.EOF {
		target.Close()
		return
	}
	target.Reset(splice.ResetCode(fault.CodeStreamReset))
}

func (c *conn) protocolError() error {
	if bad := c.bad.Load(); bad != nil {
		return explain(bad.code, bad.Fault)
	}
	return nil
}

// explain renders a fault as a gRPC status, whose text must be UTF-8.
func explain(code codes.Code, f *fault.Fault) error {
	return status.Error(code, strings.ToValidUTF8(f.Explain(), " "))
}

// receive handles what the caller sends, until the end that it returns. Writing to the target blocks it, and
// with it the flow-control window of this gRPC stream alone.
func (c *conn) receive() error {
	asked := false
	for {
		p, bad, end := c.next(&c.target)
		if bad != nil {
			c.bad.Store(bad)
		}
		if p == nil {
			return endOf(bad, end)
		}
		c.observe.Packet(FromClient, p.kind)
		ok := true
		switch p.kind {
		case dialRequest:
			if ok = !asked; ok {
				c.dials <- &packet{kind: p.kind, body: p.body}
			} else {
				c.bad.Store(&mistake{codes.InvalidArgument, fault.New(fault.CodeFrameInvalid, "a second DIAL_REQ on one stream").
					Hint("open one stream for each dial")})
			}
			asked = true
		case data:
			ok = c.write(p)
		case closeRequest, closeDial:
			ok = false
			if target := c.target.Load(); target != nil { // else the dial is given up
				(*target).CloseWrite()
				(*target).SetReadDeadline(time.Unix(1, 0))
				close(c.closed)
			}
		}
		c.done(p) // unknown types are ignored, as the reference does
		if !ok {
			return endOf(nil, nil) // what is left for the caller is to go
		}
	}
}

// unheard answers for what still comes when receive has ended, which stays in the
// window until the stream has ended too: its caller may not read how. As with a stall,
// one that ends at once costs nothing: a thousand that are closed together are no reason
// to refuse a dial.
func (c *conn) unheard() {
	if c.charged == nil {
		return
	}
	wait := time.NewTimer(konnectivityStall)
	defer wait.Stop()
	select {
	case <-c.stream.Done():
		return
	case <-wait.C:
	}
	c.charged.Charge(limit.KonnectivityWindow)
	<-c.stream.Done()
	c.charged.Charge(-limit.KonnectivityWindow)
}

// write passes data on; it reports false when the connection has to end. A
// target that takes no more may still have an answer under way: pump sees to its end.
func (c *conn) write(p *packet) bool {
	target := c.target.Load()
	if target == nil || p.connectID != c.id {
		f := fault.Newf(fault.CodeFrameInvalid, "DATA for connection %d on the stream of %d", p.connectID, c.id)
		c.bad.Store(&mistake{codes.InvalidArgument, f})
		return false
	}
	if !c.heard {
		c.heard = true
		close(c.spoken)
	}
	if c.deaf {
		return true
	}
	c.stall.begin(c.charged)
	_, err := (*target).Write(p.payload)
	c.stall.end()
	if err != nil {
		c.log.Debug("write to target failed", telemetry.AttrReason, err)
		c.deaf = true
	}
	return true
}
