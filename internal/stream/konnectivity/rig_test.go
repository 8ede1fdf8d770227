// SPDX-License-Identifier: Apache-2.0

package konnectivity_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// bound is how long anything may take; reaching it is a failure.
const bound = runtest.Patience

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

// rig is a frontend on a real unix socket. Its dials go through a real carrier
// session, whose far end plays the targets.
type rig struct {
	t      *testing.T
	socket string
	stop   context.CancelFunc
	served chan error

	hub, agent carrier.Session
	opening    sync.Mutex
	targets    chan carrier.Stream // the far ends of dials to "target:1"
	dialing    chan context.Context
	echoes     sync.WaitGroup
}

type dialFunc = func(context.Context, wire.Dial) (carrier.Stream, error)

func newRig(t *testing.T) *rig {
	t.Helper()
	return newRigOf(t, func(dial dialFunc) dialFunc { return dial })
}

// newRigBound takes so many streams.
func newRigBound(t *testing.T, streams int) *rig {
	t.Helper()
	f := konnectivity.New(slog.New(slog.DiscardHandler))
	f.Bound(streams)
	return newRigWith(t, f, func(dial dialFunc) dialFunc { return dial })
}

// newRigOf dials through what wrap makes of the rig's own dial.
func newRigOf(t *testing.T, wrap func(dialFunc) dialFunc) *rig {
	t.Helper()
	return newRigWith(t, konnectivity.New(slog.New(slog.DiscardHandler)), wrap)
}

func newRigWith(t *testing.T, f *konnectivity.Frontend, wrap func(dialFunc) dialFunc) *rig {
	t.Helper()
	a, b := net.Pipe()
	hub, err := carrier.Server(a, carrier.Options{Incoming: 4_000})
	if err != nil {
		t.Fatal(err)
	}
	agent, err := carrier.Client(b, carrier.Options{Incoming: 4_000})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{
		t: t, socket: filepath.Join(t.TempDir(), "k.sock"), served: make(chan error, 1), hub: hub, agent: agent,
		targets: make(chan carrier.Stream, 16), dialing: make(chan context.Context, 16),
	}
	ln, err := net.Listen("unix", r.socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() { r.served <- f.Serve(ctx, ln, wrap(r.dial)) }()
	t.Cleanup(func() {
		r.end()
		hub.Close()
		agent.Close()
		r.echoes.Wait()
	})
	return r
}

// end stops the frontend and waits for Serve.
func (r *rig) end() {
	r.stop()
	select {
	case err := <-r.served:
		if err != nil {
			r.t.Errorf("Serve: %v", err)
		}
		r.served <- nil
	case <-time.After(bound):
		r.t.Fatal("Serve does not return")
	}
}

func (r *rig) dial(ctx context.Context, d wire.Dial) (carrier.Stream, error) {
	switch d.Address {
	case "refused:1":
		return nil, fault.New(fault.CodeDialRefused, "the target refused").Whyf("nothing listens on 10.0.0.1:1").Hint("start it")
	case "resolver:1":
		return nil, &net.OpError{Op: "dial", Net: d.Network, Err: &net.DNSError{Err: "no such host", Name: "a\xffb.example", Server: "10.0.0.10:53", IsNotFound: true}}
	case "never:1":
		r.dialing <- ctx
		<-ctx.Done()
		return nil, ctx.Err()
	case "echo:1", "target:1", "coarse:1":
	default:
		return nil, fault.New(fault.CodeDialDNS, "unknown target "+d.Address)
	}
	r.opening.Lock()
	defer r.opening.Unlock()
	near, err := r.hub.OpenStream(ctx, nil)
	if err != nil {
		return nil, err
	}
	far, err := r.agent.AcceptStream(ctx)
	if err != nil {
		return nil, errors.Join(err, near.Reset(1))
	}
	switch d.Address {
	case "target:1":
		r.targets <- far
		return near, nil
	case "coarse:1":
		near = coarse{near}
	}
	r.echoes.Add(1)
	go func() {
		defer r.echoes.Done()
		if _, err := io.Copy(far, struct{ io.Reader }{far}); err != nil {
			far.Reset(1)
			return
		}
		far.Close()
	}()
	return near, nil
}

// coarse is a stream that hands on what it gets in large pieces only.
type coarse struct{ carrier.Stream }

func (s coarse) CopyTo(dst io.Writer, moved func(int)) (dstErr, err error) {
	for buf := make([]byte, 3*konnectivity.KonnectivityData+5); ; {
		n, err := io.ReadFull(s, buf)
		if _, dstErr := dst.Write(buf[:n]); dstErr != nil {
			return dstErr, nil
		}
		if err == io.ErrUnexpectedEOF {
			err = io.EOF
		}
		if err != nil {
			return nil, err
		}
	}
}

// target is the far end of a connection that was just dialled to "target:1".
func (r *rig) target() carrier.Stream {
	r.t.Helper()
	select {
	case s := <-r.targets:
		s.SetDeadline(time.Now().Add(bound))
		return s
	case <-time.After(bound):
		r.t.Fatal("no dial arrived")
		return nil
	}
}

// options are those of kube-apiserver.
func (r *rig) options() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", r.socket)
		}),
	}
}

// dialer is one way of the reference's client to reach a target.
type dialer = func(t *testing.T, ctx context.Context, address string) (net.Conn, error)

// single is what kube-apiserver does: a connection and a tunnel for each dial.
func (r *rig) single(t *testing.T, ctx context.Context, address string) (net.Conn, error) {
	t.Helper()
	tunnel, err := client.CreateSingleUseGrpcTunnelWithContext(t.Context(), context.Background(), "passthrough:///"+r.socket, r.options()...)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tunnel.DialContext(ctx, "tcp", address)
	if err != nil {
		<-tunnel.Done()
	}
	return conn, err
}

// reusable is one tunnel for all dials, as newer clients have it.
func (r *rig) reusable(t *testing.T) dialer {
	t.Helper()
	tunnel, err := client.CreateGRPCTunnel(t.Context(), "passthrough:///"+r.socket, r.options()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tunnel.Close() })
	return func(_ *testing.T, ctx context.Context, address string) (net.Conn, error) {
		return tunnel.DialContext(ctx, "tcp", address)
	}
}

// clients runs body with either way of dialling.
func clients(t *testing.T, body func(t *testing.T, r *rig, dial dialer)) {
	t.Run("single-use", func(t *testing.T) { r := newRig(t); body(t, r, r.single) })
	t.Run("reusable", func(t *testing.T) { r := newRig(t); body(t, r, r.reusable(t)) })
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	t.Cleanup(cancel)
	return ctx
}

// soon waits for a channel.
func soon[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(bound):
		t.Fatalf("%s: nothing within %v", what, bound)
	}
	return v
}

// isReset wants a target's view of an abnormal end.
func isReset(t *testing.T, target carrier.Stream) {
	t.Helper()
	_, err := io.Copy(io.Discard, struct{ io.Reader }{target})
	var reset *carrier.ResetError
	if !errors.As(err, &reset) {
		t.Errorf("the target reads %v, want a reset", err)
	}
}
