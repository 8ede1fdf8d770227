// SPDX-License-Identifier: Apache-2.0

package konnectivity_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/reqmeta"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/packet"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

const headTarget = "x-kube-net-proxy"

func named(address string) string {
	return base64.StdEncoding.EncodeToString(packet.AppendConnectOptions(nil, address))
}

// kepCaller speaks the KEP's own protocol.
type kepCaller struct {
	*caller
	cancel context.CancelFunc
	rest   []byte
}

func kepCall(t *testing.T, conn *grpc.ClientConn, pairs ...string) *kepCaller {
	t.Helper()
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(within(t), pairs...))
	t.Cleanup(cancel)
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, proxy)
	if err != nil {
		t.Fatal(err)
	}
	return &kepCaller{caller: &caller{t, conn, stream}, cancel: cancel}
}

// kepOpen dials, and waits for the headers that say that the target is there.
func kepOpen(t *testing.T, conn *grpc.ClientConn, address string) *kepCaller {
	t.Helper()
	c := kepCall(t, conn, headTarget, named(address))
	if _, err := c.stream.Header(); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *kepCaller) Write(b []byte) (int, error) {
	raw := packet.Payload{Data: b}.Append(nil)
	return len(b), c.stream.SendMsg(&raw)
}

func (c *kepCaller) Read(b []byte) (int, error) {
	for len(c.rest) == 0 {
		var raw []byte
		if err := c.stream.RecvMsg(&raw); err != nil {
			return 0, err
		}
		p, err := packet.ParsePayload(raw)
		if err != nil {
			return 0, err
		}
		c.rest = p.Data
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// over wants the stream to end with a code, a text and, if there is one, a fault in the trailer.
func (c *kepCaller) over(code codes.Code, text string) {
	c.t.Helper()
	_, err := io.Copy(io.Discard, c)
	if status.Code(err) != code || err != nil && !strings.Contains(err.Error(), text) {
		c.t.Errorf("it ends with %v, want %v with %q", err, code, text)
	}
}

// TestKEPEcho carries bytes beside a connection of Packets on the same gRPC connection, both ways at once.
func TestKEPEcho(t *testing.T) {
	r := newRig(t)
	conn := connect(t, r)
	witness := call(t, conn, proxy)
	id := witness.open("echo:1")
	for _, n := range []int{1, 100_000, 3 << 20} {
		c := kepOpen(t, conn, "echo:1")
		echo(t, c, n)
		if err := c.stream.CloseSend(); err != nil {
			t.Error(err)
		}
		c.over(codes.OK, "")
	}
	witness.echoes(id)
}

// TestKEPHalfClose: a caller that has finished hears the whole answer.
func TestKEPHalfClose(t *testing.T) {
	r := newRig(t)
	c := kepOpen(t, connect(t, r), "target:1")
	target := r.target()
	io.WriteString(c, "question")
	c.stream.CloseSend()
	if got, err := io.ReadAll(target); string(got) != "question" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	answer := bytes.Repeat([]byte("answer "), 100_000)
	go func() { target.Write(answer); target.Close() }()
	if got, err := io.ReadAll(c); !bytes.Equal(got, answer) || err != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// TestKEPEnds: the end of each side is that of the other.
func TestKEPEnds(t *testing.T) {
	r := newRig(t)
	conn := connect(t, r)
	t.Run("the target finishes first", func(t *testing.T) {
		c := kepOpen(t, conn, "target:1")
		target := r.target()
		io.WriteString(target, "bye")
		target.CloseWrite()
		if got, err := io.ReadAll(c); string(got) != "bye" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		target.Close()
	})
	t.Run("the target resets", func(t *testing.T) {
		c := kepOpen(t, conn, "target:1")
		r.target().Reset(7)
		c.over(codes.Unavailable, "stream_reset")
		if got := c.stream.Trailer().Get("tombolo-fault"); len(got) != 1 || got[0] != "stream_reset" {
			t.Errorf("the trailer has %q", got)
		}
	})
	t.Run("the caller is gone", func(t *testing.T) {
		c := kepOpen(t, conn, "target:1")
		target := r.target()
		io.WriteString(c, "some")
		c.cancel()
		isReset(t, target)
	})
	t.Run("the caller is gone while it is dialled", func(t *testing.T) {
		c := kepCall(t, conn, headTarget, named("never:1"))
		ctx := soon(t, "the dial", r.dialing)
		c.cancel()
		soon(t, "the end of the dial", ctx.Done())
	})
}

// TestKEPRefusals: what cannot be read dials nothing, and a refused dial says why.
func TestKEPRefusals(t *testing.T) {
	r := newRig(t)
	conn := connect(t, r)
	for name, c := range map[string]struct {
		pairs []string
		code  codes.Code
		fault string
	}{
		"no base64":     {[]string{headTarget, "%%"}, codes.InvalidArgument, "request_malformed"},
		"no message":    {[]string{headTarget, "/w=="}, codes.InvalidArgument, "request_malformed"},
		"no target":     {[]string{headTarget, ""}, codes.InvalidArgument, "request_malformed"},
		"two":           {[]string{headTarget, named("echo:1"), headTarget, named("echo:1")}, codes.InvalidArgument, "request_malformed"},
		"bad metadata":  {[]string{headTarget, named("echo:1"), "tombolo-metadata", "x"}, codes.InvalidArgument, "request_malformed"},
		"refused":       {[]string{headTarget, named("refused:1")}, codes.Unavailable, "dial_refused"},
		"without a pad": {[]string{headTarget, strings.TrimRight(named("refused:1"), "=")}, codes.Unavailable, "dial_refused"},
	} {
		t.Run(name, func(t *testing.T) {
			one := kepCall(t, conn, c.pairs...)
			one.over(c.code, c.fault)
			if got := one.stream.Trailer().Get("tombolo-fault"); len(got) != 1 || got[0] != c.fault {
				t.Errorf("the trailer has %q", got)
			}
		})
	}
}

// TestKEPAbuse ends one connection, and no other.
func TestKEPAbuse(t *testing.T) {
	r := newRig(t)
	conn := connect(t, r)
	witness := kepOpen(t, conn, "echo:1")
	for name, c := range map[string]struct {
		raw  []byte
		code codes.Code
	}{
		"garbage":        {[]byte{0xff}, codes.InvalidArgument},
		"too large":      {make([]byte, limit.KonnectivityPacket+1), codes.ResourceExhausted},
		"wrong metadata": {packet.Payload{Metadata: []reqmeta.Pair{{Key: "a b", Value: "c"}}}.Append(nil), codes.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			one := kepOpen(t, conn, "target:1")
			one.send(c.raw)
			one.over(c.code, "")
			isReset(t, r.target())
			echo(t, witness, 10)
		})
	}
}

// TestKEPStalls: whoever does not read holds nobody else up.
func TestKEPStalls(t *testing.T) {
	r := newRig(t)
	conn := connect(t, r)
	deafCaller := kepOpen(t, conn, "target:1")
	loud := r.target()
	wrote := make(chan error, 1)
	go func() { _, err := io.CopyN(loud, zeros{}, 64<<20); wrote <- err }()
	toDeaf := kepOpen(t, conn, "target:1")
	deafTarget := r.target()
	sending := make(chan error, 1)
	go func() { _, err := io.CopyN(struct{ io.Writer }{toDeaf}, zeros{}, 64<<20); sending <- err }()
	for range 3 {
		c := kepOpen(t, conn, "echo:1")
		echo(t, c, 1<<20)
	}
	deafCaller.cancel()
	if err := soon(t, "the loud target", wrote); err == nil {
		t.Error("64 MiB went to a caller that reads nothing")
	}
	deafTarget.Reset(1)
	soon(t, "the caller of a deaf target", sending)
}

// TestKEPStallsAreCharged: an upload that its target does not take is charged with its window, until it is taken.
func TestKEPStallsAreCharged(t *testing.T) {
	var held atomic.Int64
	r := chargedRig(t, &held)
	c := kepOpen(t, connect(t, r), "target:1")
	target := r.target()
	sent := make(chan error, 1)
	go func() {
		_, err := io.CopyN(struct{ io.Writer }{c}, zeros{}, 4<<20)
		sent <- err
	}()
	eventually(t, "the window is charged", func() bool { return held.Load() > limit.KonnectivityWindow })
	go io.Copy(io.Discard, target)
	if err := soon(t, "the caller", sent); err != nil {
		t.Error(err)
	}
	comesTo(t, &held, 0)
}

// noting is a stream that keeps what is said about it.
type noting struct {
	carrier.Stream
	notes chan []reqmeta.Pair
}

func (n noting) Note(pairs []reqmeta.Pair) error {
	if pairs[0].Key == "refused" {
		return errors.New("no more")
	}
	n.notes <- pairs
	return nil
}

// TestKEPMetadata is said while the connection lives, alone or beside data, and reaches whoever keeps it.
func TestKEPMetadata(t *testing.T) {
	notes, dials := make(chan []reqmeta.Pair, 4), make(chan wire.Dial, 1)
	r := newRigOf(t, func(dial dialFunc) dialFunc {
		return func(ctx context.Context, d wire.Dial) (carrier.Stream, error) {
			dials <- d
			s, err := dial(ctx, d)
			return noting{s, notes}, err
		}
	})
	c := kepCall(t, connect(t, r), headTarget, named("target:1"), "tombolo-metadata", "user=alice")
	target := r.target()
	if d := <-dials; len(d.Metadata) != 1 || d.Metadata[0].Value != "alice" || d.Network != "tcp" {
		t.Errorf("%+v", d)
	}
	c.send(packet.Payload{Metadata: []reqmeta.Pair{{Key: "step", Value: "1"}}}.Append(nil))
	c.send(packet.Payload{Data: []byte("data"), Metadata: []reqmeta.Pair{{Key: "step", Value: "2"}}}.Append(nil))
	for _, want := range []string{"1", "2"} {
		if got := soon(t, "metadata", notes); len(got) != 1 || got[0].Value != want {
			t.Errorf("%v, want step %s", got, want)
		}
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(target, got); err != nil || string(got) != "data" {
		t.Errorf("%q, %v", got, err)
	}
	c.send(packet.Payload{Metadata: []reqmeta.Pair{{Key: "refused", Value: "1"}}}.Append(nil))
	c.over(codes.InvalidArgument, "request_malformed")
	isReset(t, target)
}

// TestKEPPlaces counts its streams among those of the socket.
func TestKEPPlaces(t *testing.T) {
	r := newRigBound(t, 1)
	conn := connect(t, r)
	c := kepOpen(t, conn, "target:1")
	kepCall(t, conn, headTarget, named("echo:1")).over(codes.ResourceExhausted, "limit_reached")
	c.cancel()
	isReset(t, r.target())
	runtest.Eventually(t, "the place is free", func() bool {
		again := kepCall(t, conn, headTarget, named("echo:1"))
		_, err := again.stream.Header()
		again.stream.CloseSend()
		_, end := io.Copy(io.Discard, again)
		return err == nil && end == nil
	})
}
