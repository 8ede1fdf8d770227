// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/reqmeta"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity/grpcwire"
	form "github.com/tombolo-io/tombolo/internal/stream/packet"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// headTarget is the metadata that names the target of the KEP's own protocol, and tells it from Packets.
const headTarget = "x-kube-net-proxy"

// kepConn is a connection by the KEP's own protocol: one gRPC stream for each, whose metadata names the target, with
// Payloads on it.
//
//	metadata ──► dial ── headers ──► open ── the caller's end ──► CloseWrite
//	               └── status ──► over        └── the target's end ── OK, or status ──► over
//
// A gRPC server cannot end its own direction alone: the target's end is the end of the stream. What stands for a packet
// is counted as that packet.
type kepConn struct {
	stream *grpcwire.Stream
	*receiver
	observe Observer
	log     *slog.Logger
	ctx     context.Context // the stream's: ends when the caller is gone or done

	target atomic.Pointer[carrier.Stream]
	bad    atomic.Pointer[mistake] // the caller's
	stall  stall                   // receive's own
}

// noted is a target's stream that keeps what its caller says about it while it lives.
type noted interface {
	Note(pairs []reqmeta.Pair) error
}

// namedTargets are the values of headTarget.
func namedTargets(ctx context.Context) []string {
	return metadata.ValueFromIncomingContext(ctx, headTarget)
}

// targetOf reads the target that the metadata of a stream names: base64, with or without padding, of ConnectOptions.
func targetOf(named []string) (string, error) {
	bad := fault.New(fault.CodeRequest, "the target in "+headTarget+" cannot be read").
		Hint("send it once: base64 of ConnectOptions, with host:port as remote_addr")
	if len(named) != 1 {
		return "", bad.Whyf("it comes %d times", len(named))
	}
	raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(named[0], "="))
	if err != nil {
		return "", bad.Because(err)
	}
	address, err := form.ParseConnectOptions(raw)
	switch {
	case err != nil:
		return "", bad.Because(err)
	case address == "":
		return "", bad.Whyf("remote_addr is empty")
	}
	return address, nil
}

func newKEPConn(s *grpcwire.Stream, r *receiver, log *slog.Logger) *kepConn {
	return &kepConn{stream: s, receiver: r, log: log, ctx: s.Context(), observe: unobserved{}}
}

// serve carries one connection.
func (c *kepConn) serve(g *run.Group, dial func(context.Context, wire.Dial) (carrier.Stream, error)) error {
	defer c.stream.Cancel()
	c.observe.Packet(FromClient, dialRequest)
	target, err := c.dial(dial)
	if err != nil {
		if c.ctx.Err() == nil { // the caller is there to be answered
			c.observe.Packet(ToClient, dialResponse)
		}
		return c.refused(err)
	}
	c.target.Store(&target)
	c.stream.OnCancel(func() { target.Reset(splice.ResetCode(fault.CodeDialCanceled)) })
	defer c.stream.OnCancel(nil)
	c.observe.Packet(ToClient, dialResponse)
	if err = c.stream.SendHeader(); err != nil { // the caller is gone, and ctx need not have ended yet
		target.Reset(splice.ResetCode(fault.CodeDialCanceled))
		return err
	}
	g.Do(func(context.Context) { c.receive(target) }) // it outlives this handler by a moment
	return c.pump(target)
}

func (c *kepConn) dial(dial func(context.Context, wire.Dial) (carrier.Stream, error)) (carrier.Stream, error) {
	address, err := targetOf(namedTargets(c.ctx))
	if err != nil {
		return nil, err
	}
	d, err := askedOf(c.ctx, wire.NetworkTCP, address)
	if err != nil {
		return nil, err
	}
	return dial(c.ctx, d)
}

// refused ends the stream with a fault: its code is in the trailer as with Packets.
func (c *kepConn) refused(err error) error {
	f := fault.From(err)
	c.stream.SetTrailer(metadata.Pairs(trailerFault, string(f.Code)))
	code := codes.Unavailable
	switch fault.ClassOf(f.Code) {
	case fault.Invalid:
		code = codes.InvalidArgument
	case fault.Denied:
		code = codes.PermissionDenied
	case fault.Exhausted:
		code = codes.ResourceExhausted
	case fault.Timeout:
		code = codes.DeadlineExceeded
	}
	return explain(code, f)
}

// pump carries the target's bytes to the caller until one side ends.
func (c *kepConn) pump(target carrier.Stream) error {
	sendErr, err := target.CopyTo(kepWriter{c}, nil)
	if bad := c.bad.Load(); bad != nil {
		return explain(bad.code, bad.Fault)
	}
	if sendErr == nil && err == io.EOF {
		target.Close()
		c.observe.Packet(ToClient, closeResponse)
		return nil
	}
	target.Reset(splice.ResetCode(fault.CodeStreamReset))
	if sendErr != nil {
		return sendErr
	}
	if c.ctx.Err() == nil {
		c.observe.Packet(ToClient, closeResponse)
	}
	var reset *carrier.ResetError
	if errors.As(err, &reset) {
		err = fault.New(fault.CodeStreamReset, "the target has reset the connection").Because(err)
	}
	return c.refused(err)
}

// receive passes on what the caller sends. Writing to the target blocks it, and with it the window of this stream
// alone.
func (c *kepConn) receive(target carrier.Stream) {
	deaf := false
	for {
		raw, bad, end := c.message(&c.target)
		switch {
		case bad != nil:
			c.bad.Store(bad)
			target.Reset(splice.ResetCode(fault.CodeStreamReset))
			return
		case end == io.EOF:
			c.observe.Packet(FromClient, closeRequest)
			target.CloseWrite()
			return
		case end != nil:
			return // the stream has ended, and with it its context
		}
		p, err := form.ParsePayload(raw.ReadOnlyData())
		if err == nil && len(p.Metadata) > 0 {
			err = note(target, p.Metadata)
		}
		if err == nil && len(p.Data) > 0 {
			c.observe.Packet(FromClient, data)
		}
		if err == nil && len(p.Data) > 0 && !deaf { // a target that takes no more may still answer: pump sees to its end
			c.stall.begin(c.charged)
			_, wrong := target.Write(p.Data)
			c.stall.end()
			if deaf = wrong != nil; deaf {
				c.log.Debug("write to target failed", telemetry.AttrReason, wrong)
			}
		}
		raw.Free()
		c.give()
		if err != nil {
			c.bad.Store(&mistake{codes.InvalidArgument, fault.From(err)})
			target.Reset(splice.ResetCode(fault.CodeStreamReset))
			return
		}
	}
}

// note gives metadata of an open connection to whoever keeps it.
func note(target carrier.Stream, pairs []reqmeta.Pair) (err error) {
	err = reqmeta.Check(pairs) // before they are merged with others: there may be very many
	if to, ok := target.(noted); ok && err == nil {
		err = to.Note(pairs)
	}
	if err != nil {
		return fault.New(fault.CodeRequest, "the metadata of the connection is refused").Because(err)
	}
	return nil
}

// kepWriter sends what is written to it as Payloads.
type kepWriter struct{ *kepConn }

func (w kepWriter) Write(b []byte) (n int, err error) {
	for n < len(b) {
		piece := b[n:min(len(b), n+konnectivityData)]
		w.observe.Packet(ToClient, data)
		begin := time.Now()
		buf := w.pool.Get(len(piece) + form.PayloadHead)
		err := w.stream.Send(form.Payload{Data: piece}.Append((*buf)[:0]))
		w.pool.Put(buf)
		w.observe.Wrote(time.Since(begin))
		if err != nil {
			return n, err
		}
		n += len(piece)
	}
	return n, nil
}
