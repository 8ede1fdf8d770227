// SPDX-License-Identifier: Apache-2.0

package konnectivity_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// TestServeEnds: whatever its connections are doing, Serve returns when its context has ended, without a wait for the
// bounds of what they do, and every target knows.
func TestServeEnds(t *testing.T) {
	r, begin := newRig(t), time.Now()
	conn := connect(t, r)
	call(t, conn, proxy) // has said nothing
	call(t, conn, proxy).say(dialRequest("never:1"))
	behind := soon(t, "dial", r.dialing)

	call(t, conn, proxy).open("target:1")
	idle := r.target()

	call(t, conn, proxy).open("target:1") // does not read
	flood := r.target()
	filled := fill(flood)

	stuck := call(t, conn, proxy) // its target does not read
	id := stuck.open("target:1")
	mute := r.target()
	full := make(chan struct{})
	go func() {
		defer close(full)
		raw, _ := proto.Marshal(dataPacket(id, make([]byte, 32<<10)))
		for stuck.stream.SendMsg(&raw) == nil {
		}
	}()

	lingering := call(t, conn, proxy)
	closed := lingering.open("target:1")
	late := r.target()
	lingering.say(closeRequest(closed))
	lingering.ends(codes.OK, "") // while its target has not finished

	soon(t, "the flood stalls", filled.stalled)
	r.end()
	if took := time.Since(begin); took >= limit.Dial { // of the stream that says nothing; limit.Linger is longer
		t.Errorf("Serve took %v to return, and has waited for what its connections do", took)
	}
	soon(t, "the dial behind ends", behind.Done())
	soon(t, "the stuck writer", full)
	soon(t, "the flood ends", filled.ended)
	isReset(t, idle)
	isReset(t, mute)
	if _, err := io.Copy(io.Discard, struct{ io.Reader }{late}); err != nil { // it had its end before
		t.Errorf("the lingering target reads %v", err)
	}
	if _, err := late.Write([]byte("x")); err == nil {
		t.Error("the lingering target can still write")
	}
}

// TestUploadToAClosedCaller: a target that goes on sending is reset after a bounded
// amount.
func TestUploadToAClosedCaller(t *testing.T) {
	r := newRig(t)
	c := call(t, connect(t, r), proxy)
	id := c.open("target:1")
	target := r.target()
	c.say(closeRequest(id))
	c.ends(codes.OK, "")
	var err error
	for sent := 0; err == nil; sent += 64 << 10 {
		if sent > 64*limit.Discard {
			t.Fatal("an upload without end is taken")
		}
		_, err = target.Write(make([]byte, 64<<10))
	}
	var reset *carrier.ResetError
	if !errors.As(err, &reset) {
		t.Errorf("the target got %v", err)
	}
}

// TestListenerFails: connections do not outlive a listener that broke.
func TestListenerFails(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dialing := make(chan context.Context, 1)
	served := make(chan error, 1)
	dial := func(ctx context.Context, _ wire.Dial) (carrier.Stream, error) {
		dialing <- ctx
		<-ctx.Done()
		return nil, ctx.Err()
	}
	go func() {
		served <- konnectivity.New(slog.New(slog.DiscardHandler)).Serve(context.Background(), ln, dial)
	}()
	conn, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(plain{})))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	call(t, conn, proxy).say(dialRequest("never:1"))
	behind := soon(t, "dial", dialing)
	ln.Close()
	if err := soon(t, "Serve returns", served); err == nil {
		t.Error("Serve hides that its listener failed")
	}
	soon(t, "the dial behind ends", behind.Done())
}

// pipes is a listener in memory, for a bubble of time.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }
func (p *pipes) dial(context.Context, string) (net.Conn, error) {
	near, far := net.Pipe()
	p.conns <- far
	return near, nil
}

// TestSilentCaller: a stream on which no dial comes does not stay for ever.
func TestSilentCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := &pipes{conns: make(chan net.Conn, 1), done: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- konnectivity.New(slog.New(slog.DiscardHandler)).Serve(ctx, ln, nil) }()
		conn, err := grpc.NewClient("passthrough:///memory", grpc.WithContextDialer(ln.dial),
			grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(plain{})))
		if err != nil {
			t.Fatal(err)
		}
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, proxy)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		(&caller{t, conn, stream}).ends(codes.DeadlineExceeded, "no DIAL_REQ came")
		if took := time.Since(begin).Round(time.Second); took != limit.Dial {
			t.Errorf("ended after %v, want %v", took, limit.Dial)
		}
		conn.Close()
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}
