// SPDX-License-Identifier: Apache-2.0

package grpcwire_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity/grpcwire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const method = "/Test/Echo"

// counting counts the buffers that are out, but for small ones, which gRPC's buffers never give back.
type counting struct {
	mem.BufferPool
	out atomic.Int64
}

func (c *counting) Get(n int) *[]byte {
	b := make([]byte, n)
	c.count(b, +1)
	return &b
}

func (c *counting) Put(b *[]byte) { c.count(*b, -1) }

func (c *counting) count(b []byte, n int64) {
	if !mem.IsBelowBufferPoolingThreshold(cap(b)) {
		c.out.Add(n)
	}
}

// world is a server whose handlers send back what comes.
type world struct {
	testing.TB
	ln      net.Listener
	pool    counting
	running atomic.Int64
	most    atomic.Int64
	stop    func()
}

func newServer(w *world) *grpcwire.Server {
	return &grpcwire.Server{Service: "Test", Method: "Echo", Handle: w.echo, Metadata: []string{"x-kept"}, Streams: 100,
		Window: 64 << 10, Burst: 256 << 10, Header: 16 << 10, Handshake: runtest.Patience, Pool: &w.pool,
		Log: slog.New(slog.DiscardHandler)}
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := listening(t)
	w.serve(newServer(w))
	return w
}

// listening is a world that nobody serves yet.
func listening(t testing.TB) *world {
	t.Helper()
	ln, err := net.Listen("unix", filepath.Join(runtest.Dir(t), "s"))
	if err != nil {
		t.Fatal(err)
	}
	return &world{TB: t, ln: ln}
}

func (w *world) serve(s *grpcwire.Server) {
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, w.ln) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			w.Error(err)
		}
		if n := w.pool.out.Load(); n != 0 || w.running.Load() != 0 {
			w.Errorf("%d buffers are out, and %d handlers run", n, w.running.Load())
		}
	})
	w.Cleanup(w.stop)
}

// echo is the handler. A message "fail" ends it with a status, and what is kept of the metadata comes back.
func (w *world) echo(s *grpcwire.Stream) error {
	w.most.Store(max(w.most.Load(), w.running.Add(1)))
	defer w.running.Add(-1)
	if kept := metadata.ValueFromIncomingContext(s.Context(), "x-kept"); len(kept) > 0 {
		s.SetTrailer(metadata.Pairs("x-back", kept[0]))
	}
	if err := s.SendHeader(); err != nil {
		return err
	}
	for {
		var head [5]byte
		if err := s.ReadMessageHeader(head[:]); err != nil {
			if err == io.EOF {
				return nil
			}
			return err
		}
		n := binary.BigEndian.Uint32(head[1:])
		if n > 4<<20 {
			return status.Error(codes.ResourceExhausted, "too large")
		}
		b, err := s.Read(int(n))
		if err != nil {
			return err
		}
		raw := b.Materialize()
		b.Free()
		switch {
		case string(raw) == "fail":
			return status.Error(codes.Aborted, "100% ö\n")
		case bytes.HasPrefix(raw, []byte("last")):
			s.Last(raw)
			return nil
		}
		if err := s.Send(raw); err != nil {
			return err
		}
	}
}

// plain passes bytes as messages.
type plain struct{}

func (plain) Name() string { return "proto" }
func (plain) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}
func (plain) Unmarshal(b mem.BufferSlice, v any) error { *v.(*[]byte) = b.Materialize(); return nil }

func (w *world) client() *grpc.ClientConn {
	c, err := grpc.NewClient("unix:"+w.ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(plain{})))
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { c.Close() })
	return c
}

func (w *world) call(ctx context.Context, c *grpc.ClientConn, method string, options ...grpc.CallOption) grpc.ClientStream {
	s, err := c.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method, options...)
	if err != nil {
		w.Fatal(err)
	}
	return s
}

func exchange(t testing.TB, s grpc.ClientStream, message []byte) {
	t.Helper()
	var back []byte
	if err := errors.Join(s.SendMsg(&message), s.RecvMsg(&back)); err != nil || !bytes.Equal(message, back) {
		t.Errorf("%d bytes come back as %d: %v", len(message), len(back), err)
	}
}

// ends reads the status.
func ends(s grpc.ClientStream) *status.Status {
	var b []byte
	err := s.RecvMsg(&b)
	if err == io.EOF {
		err = nil
	}
	return status.Convert(err)
}

// TestGRPC: grpc-go's client has its messages carried and its mistakes explained.
func TestGRPC(t *testing.T) {
	w := newWorld(t)
	c, ctx := w.client(), runtest.Within(t)
	t.Run("messages", func(t *testing.T) {
		s := w.call(metadata.AppendToOutgoingContext(ctx, "x-kept", "a b"), c, method)
		for _, n := range []int{0, 1, 16<<10 - 5, 16 << 10, 64 << 10, 1 << 20, 3<<20 + 1} {
			exchange(t, s, bytes.Repeat([]byte("0123456789abcdef"), n/16+1)[:n])
		}
		s.CloseSend()
		if st := ends(s); st.Code() != codes.OK {
			t.Error(st)
		}
		if back := s.Trailer().Get("x-back"); len(back) != 1 || back[0] != "a b" {
			t.Errorf("the trailer has %q", back)
		}
	})
	t.Run("the last message", func(t *testing.T) {
		for _, n := range []int{4, 16<<10 - 5, 16<<10 - 4, 200_000} {
			s := w.call(ctx, c, method)
			exchange(t, s, append([]byte("last"), make([]byte, n-4)...))
			if st := ends(s); st.Code() != codes.OK {
				t.Error(st)
			}
		}
	})
	t.Run("many at once", func(t *testing.T) {
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				s := w.call(ctx, c, method)
				for range 20 {
					exchange(t, s, make([]byte, 40_000))
				}
				s.CloseSend()
				if st := ends(s); st.Code() != codes.OK {
					t.Error(st)
				}
			})
		}
		all.Wait()
	})
	answer := func(s grpc.ClientStream, message string) *status.Status {
		b := []byte(message)
		s.SendMsg(&b)
		return ends(s)
	}
	late := func() *status.Status { // its time begins now, and may be over before there is a stream
		ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		s, err := c.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
		if err != nil {
			return status.Convert(err)
		}
		return ends(s)
	}
	for _, c := range []struct {
		name string
		st   *status.Status
		code codes.Code
		text string
	}{
		{"a status", answer(w.call(ctx, c, method), "fail"), codes.Aborted, "100% ö\n"},
		{"another service", answer(w.call(ctx, c, "/Other/Echo"), "x"), codes.Unimplemented, "unknown service Other"},
		{"another method", answer(w.call(ctx, c, "/Test/Other"), "x"), codes.Unimplemented, "unknown method Other"},
		{"compressed", answer(w.call(ctx, c, method, grpc.UseCompressor(gzip.Name)), "x"), codes.Unimplemented, "compressed"},
		{"too late", late(), codes.DeadlineExceeded, ""},
	} {
		if c.st.Code() != c.code || !strings.Contains(c.st.Message(), c.text) {
			t.Errorf("%s: %v, want %v with %q", c.name, c.st, c.code, c.text)
		}
	}
	gone, leave := context.WithCancel(ctx)
	s := w.call(gone, c, method)
	exchange(t, s, []byte("x"))
	leave()
	runtest.Eventually(t, "handlers of callers that have left return", func() bool { return w.running.Load() == 0 })
}

// TestNetHTTP: a client that is not gRPC's, with frames of its own sizes, and a table of HPACK until it learns better.
func TestNetHTTP(t *testing.T) {
	w := newWorld(t)
	transport := &http.Transport{Protocols: &http.Protocols{},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", w.ln.Addr().String())
		}}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	for range 3 {
		body := make([]byte, 300_000)
		copy(body, binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body)-5)))
		req, err := http.NewRequestWithContext(runtest.Within(t), http.MethodPost, "http://x"+method, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/grpc+proto")
		req.Header.Set("X-Other", strings.Repeat("x", 100))
		res, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		back, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || !bytes.Equal(back, body) || res.Trailer.Get("Grpc-Status") != "0" {
			t.Errorf("%d bytes come back, %v, trailer %v", len(back), err, res.Trailer)
		}
	}
	for text, want := range map[string]int{"text/plain": http.StatusUnsupportedMediaType, "application/grpcx": 415} {
		req, _ := http.NewRequestWithContext(runtest.Within(t), http.MethodPost, "http://x"+method, http.NoBody)
		req.Header.Set("Content-Type", text)
		res, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if res.Body.Close(); res.StatusCode != want {
			t.Errorf("%s: %d, want %d", text, res.StatusCode, want)
		}
	}
}
