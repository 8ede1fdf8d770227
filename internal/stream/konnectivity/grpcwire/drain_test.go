// SPDX-License-Identifier: Apache-2.0

package grpcwire_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// draining is a world whose server drains when the channel is closed.
func draining(t *testing.T) (*world, chan struct{}) {
	t.Helper()
	w, drains := listening(t), make(chan struct{})
	s := newServer(w)
	s.Drains = drains
	w.serve(s)
	return w, drains
}

// TestDraining: a peer is told that it may open no more streams. What is open goes on, what comes late is refused so
// that it may be tried again, and whoever connects late is told too.
func TestDraining(t *testing.T) {
	w, drains := draining(t)
	p := w.peer()
	open := p.open()
	p.lives()
	close(drains)
	p.goesAway(http2.ErrCodeNo)
	late := p.open()
	f, _ := p.until(func(f http2.Frame) bool {
		return f.Header().Type == http2.FrameRSTStream && f.Header().StreamID == late
	}).(*http2.RSTStreamFrame)
	if f == nil || f.ErrCode != http2.ErrCodeRefusedStream {
		t.Errorf("a late stream ends with %v", f)
	}
	p.echoes(open)
	last := w.peer()
	if f := last.until(func(http2.Frame) bool { return true }); f == nil || f.Header().Type != http2.FrameSettings {
		t.Errorf("a late connection begins with %v", f)
	}
	last.goesAway(http2.ErrCodeNo)
}

// TestDrainingGRPC: grpc-go's client loses no stream, and goes on elsewhere.
func TestDrainingGRPC(t *testing.T) {
	w, drains := draining(t)
	next := newWorld(t)
	var at atomic.Pointer[world]
	at.Store(w)
	c, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(plain{})),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", at.Load().ln.Addr().String())
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := runtest.Within(t)
	open := w.call(ctx, c, method)
	exchange(t, open, []byte("before"))
	at.Store(next)
	close(drains)
	for range 100 {
		s := w.call(ctx, c, method)
		exchange(t, s, []byte("elsewhere, or still here"))
		s.CloseSend()
	}
	for next.most.Load() == 0 {
		exchange(t, w.call(ctx, c, method), []byte("until it is elsewhere"))
	}
	exchange(t, open, []byte("after"))
}
