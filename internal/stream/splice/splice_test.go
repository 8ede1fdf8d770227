// SPDX-License-Identifier: Apache-2.0

package splice_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func data(seed uint64, n int) []byte {
	rng := rand.New(rand.NewPCG(seed, seed))
	b := make([]byte, n)
	for i := 0; i+8 <= n; i += 8 {
		v := rng.Uint64()
		for j := range 8 {
			b[i+j] = byte(v >> (8 * j))
		}
	}
	return b
}

// send writes in chunks of many sizes and then ends its direction.
func send(w peer, b []byte) <-chan error {
	done := make(chan error, 1)
	go func() {
		rng := rand.New(rand.NewPCG(uint64(len(b)), 1))
		for len(b) > 0 {
			n := min(len(b), 1+rng.IntN(100<<10))
			if _, err := w.Write(b[:n]); err != nil {
				done <- err
				return
			}
			b = b[n:]
		}
		done <- w.CloseWrite()
	}()
	return done
}

func receive(t *testing.T, r io.Reader, want []byte) {
	t.Helper()
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, want) {
		t.Errorf("received %d bytes of %d, %v", len(got), len(want), err)
	}
}

// TestStart: it returns at once, and tells its end once, when both sides are closed.
func TestStart(t *testing.T) {
	near, a := pairOn(t, "tcp", "127.0.0.1:0")
	other, b := pairOn(t, "tcp", "127.0.0.1:0")
	ended := make(chan splice.Result, 2)
	splice.New().Start(t.Context(), splice.Net(near), splice.Net(other), splice.Options{},
		func(r splice.Result) { ended <- r })
	up, down := data(1, 100_000), data(2, 70_001)
	sentA, sentB := send(a.(*net.TCPConn), up), send(b.(*net.TCPConn), down)
	got := make(chan struct{})
	go func() { defer close(got); receive(t, b, up) }()
	receive(t, a, down)
	<-got
	if err := errors.Join(<-sentA, <-sentB); err != nil {
		t.Fatal(err)
	}
	if r := <-ended; r.Up != int64(len(up)) || r.Down != int64(len(down)) || r.Code != "" || r.Err != nil {
		t.Errorf("the splice ended with %+v", r)
	}
	if _, err := near.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the side of the client is open after the end: %v", err)
	}

	near, _ = pairOn(t, "tcp", "127.0.0.1:0")
	other, _ = pairOn(t, "tcp", "127.0.0.1:0")
	ctx, cancel := context.WithCancelCause(t.Context())
	splice.New().Start(ctx, splice.Net(near), splice.Net(other), splice.Options{},
		func(r splice.Result) { ended <- r })
	why := errors.New("the door closes")
	cancel(why)
	if r := <-ended; r.Code != fault.CodeSessionLost || !errors.Is(r.Err, why) {
		t.Errorf("a splice whose context ended gave %+v", r)
	}
	if len(ended) != 0 {
		t.Error("an end was told twice")
	}
}

// TestExact: both directions at once, byte for byte, counted, ended in order.
func TestExact(t *testing.T) {
	matrix(t, func(t *testing.T, a, b end) {
		var up, down splice.Counter
		s := start(t, a, b, splice.Options{Up: &up, Down: &down})
		toB, toA := data(1, 1<<20), data(2, 700_001)
		sentA, sentB := send(s.a, toB), send(s.b, toA)
		got := make(chan struct{})
		go func() { defer close(got); receive(t, s.b, toB) }()
		receive(t, s.a, toA)
		<-got
		if err := errors.Join(<-sentA, <-sentB); err != nil {
			t.Fatal(err)
		}
		r := s.done(t)
		if r.Code != "" || r.Err != nil {
			t.Errorf("ended with %q, %v", r.Code, r.Err)
		}
		if r.Up != int64(len(toB)) || r.Down != int64(len(toA)) || up.Load() != r.Up || down.Load() != r.Down {
			t.Errorf("counted %d up, %d down (shared %d, %d); want %d, %d", r.Up, r.Down, up.Load(), down.Load(), len(toB), len(toA))
		}
	})
}

// TestHalfClose: one side finishes, the other answers at length afterwards.
func TestHalfClose(t *testing.T) {
	matrix(t, func(t *testing.T, a, b end) {
		for _, order := range []string{"a first", "b first"} {
			t.Run(order, func(t *testing.T) {
				s := start(t, a, b, splice.Options{})
				first, second := s.a, s.b
				if order == "b first" {
					first, second = s.b, s.a
				}
				question, answer := data(3, 50_000), data(4, 1<<20)
				asked := send(first, question)
				receive(t, second, question) // up to its end
				if err := <-asked; err != nil {
					t.Fatal(err)
				}
				answered := send(second, answer)
				receive(t, first, answer)
				if err := <-answered; err != nil {
					t.Fatal(err)
				}
				if r := s.done(t); r.Code != "" {
					t.Errorf("ended with %q, %v", r.Code, r.Err)
				}
			})
		}
	})
}

// abnormal wants the end that a party sees after something broke.
func abnormal(t *testing.T, e end, p peer, code uint32) {
	t.Helper()
	_, err := io.Copy(io.Discard, struct{ io.Reader }{p})
	var reset *carrier.ResetError
	switch {
	case e.mute: // a unix socket: any end is all that can be said
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			t.Errorf("%s: no end at all: %v", e.name, err)
		}
	case err == nil:
		t.Errorf("%s: a clean end after an abnormal one", e.name)
	case e.coded:
		if !errors.As(err, &reset) || reset.Code != code {
			t.Errorf("%s: %v, want a reset with code %d", e.name, err, code)
		}
	case !errors.Is(err, syscall.ECONNRESET):
		t.Errorf("%s: %v, want a connection reset", e.name, err)
	}
}

// TestReset: a party that breaks off is seen as broken by the other one.
func TestReset(t *testing.T) {
	matrixOf(t, aCanBreak, func(t *testing.T, a, b end) {
		s := start(t, a, b, splice.Options{})
		if _, err := s.a.Write([]byte("half a sen")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(s.b, make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		s.abortA()
		number, code := uint32(1), fault.CodeStreamReset
		if a.coded { // whose reset has a code, which travels on
			number, code = 3, fault.CodeDialCanceled
		}
		abnormal(t, b, s.b, number)
		if r := s.done(t); r.Code != code || r.Err == nil || r.Up != 10 {
			t.Errorf("ended with %q, %v, %d up", r.Code, r.Err, r.Up)
		}
	})
}

// TestResetWhileStalled: neither a writer nor a reader of the splice that waits
// delays the news.
func TestResetWhileStalled(t *testing.T) {
	matrixOf(t, bCanBreak, func(t *testing.T, a, b end) {
		s := start(t, a, b, splice.Options{})
		sent := send(s.a, make([]byte, 64<<20)) // b does not read
		s.b.Write([]byte("x"))
		if _, err := io.ReadFull(s.a, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		s.abortB()
		if err := <-sent; err == nil {
			t.Error("64 MiB were taken by a party that read nothing and broke off")
		}
		if r := s.done(t); r.Code == "" {
			t.Errorf("ended with %q, %v", r.Code, r.Err)
		}
	})
}

func TestContextEnds(t *testing.T) {
	matrix(t, func(t *testing.T, a, b end) {
		ctx, cancel := context.WithCancelCause(t.Context())
		nearA, farA, _ := a.make(t)
		nearB, farB, _ := b.make(t)
		result := make(chan splice.Result, 1)
		go func() { result <- splice.New().Both(ctx, nearA, nearB, splice.Options{}) }()
		farA.Write([]byte("x"))
		if _, err := io.ReadFull(farB, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		why := errors.New("shut down")
		cancel(why)
		code := splice.ResetCode(fault.CodeSessionLost)
		abnormal(t, a, farA, code)
		abnormal(t, b, farB, code)
		if r := <-result; r.Code != fault.CodeSessionLost || !errors.Is(r.Err, why) {
			t.Errorf("ended with %q, %v", r.Code, r.Err)
		}
	})
}

// TestSessionLost: a session that its peer ends in order cuts a stream short; the
// TCP side must not take that for the end of the data.
func TestSessionLost(t *testing.T) {
	agent, hub := sessions(t)
	near, err := hub.OpenStream(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	far, err := agent.AcceptStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client, party, _ := tcpEnd(t)
	result := make(chan splice.Result, 1)
	go func() { result <- splice.New().Both(context.Background(), client, near, splice.Options{}) }()
	far.Write([]byte("x"))
	if _, err := io.ReadFull(party, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	agent.Close()
	abnormal(t, end{name: "tcp"}, party, 0)
	if r := <-result; r.Code != fault.CodeSessionLost {
		t.Errorf("ended with %q, %v", r.Code, r.Err)
	}
}

func TestIdle(t *testing.T) {
	for _, c := range []struct {
		name string
		o    splice.Options
		half bool
	}{
		{"idle", splice.Options{Idle: 80 * time.Millisecond}, false},
		{"half-closed", splice.Options{Idle: time.Hour, HalfIdle: 80 * time.Millisecond}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			matrix(t, func(t *testing.T, a, b end) {
				s := start(t, a, b, c.o)
				if c.half {
					s.a.CloseWrite()
				}
				r := s.done(t)
				if r.Code != fault.CodeStreamIdle || !strings.Contains(r.Err.Error(), "80ms") {
					t.Errorf("ended with %q, %v", r.Code, r.Err)
				}
				abnormal(t, a, s.a, splice.ResetCode(fault.CodeStreamIdle))
				if !c.half {
					abnormal(t, b, s.b, splice.ResetCode(fault.CodeStreamIdle))
				}
			})
		})
	}
}

// TestSlowReader: what a reader does not take stays with the sender; the
// splice holds one buffer for it and no more.
func TestSlowReader(t *testing.T) {
	var up splice.Counter
	s := start(t, ends()[1], ends()[1], splice.Options{Up: &up})
	sent := send(s.a, make([]byte, 256<<20))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for last := int64(-1); up.Load() != last; { // until nothing moves any more
		last = up.Load()
		<-time.After(20 * time.Millisecond)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if moved := up.Load(); moved > 32<<20 {
		t.Errorf("%d bytes moved towards a party that reads nothing", moved)
	}
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 4<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	s.b.Close()
	if err := <-sent; err == nil {
		t.Error("all was sent to a party that reads nothing")
	}
	if r := s.done(t); r.Code != fault.CodeStreamReset {
		t.Errorf("ended with %q", r.Code)
	}
}

// endless is a Conn in memory: it gives chunks until they run out and takes any
// number of bytes, allocating nothing.
type endless struct {
	chunks int
	closed atomic.Int32
}

func (e *endless) Read(b []byte) (int, error) {
	if e.chunks == 0 {
		return 0, io.EOF
	}
	e.chunks--
	return len(b), nil
}
func (e *endless) Write(b []byte) (int, error) { return len(b), nil }
func (e *endless) CloseWrite() error           { return nil }
func (e *endless) Reset(uint32) error          { return nil }
func (e *endless) Close() error                { e.closed.Add(1); return nil }

// TestNoAllocationPerChunk: the number of allocations does not depend on how much is copied.
func TestNoAllocationPerChunk(t *testing.T) {
	s := splice.New()
	count := func(chunks int) float64 {
		return testing.AllocsPerRun(50, func() {
			a, b := &endless{chunks: chunks}, &endless{chunks: chunks}
			if r := s.Both(context.Background(), a, b, splice.Options{}); r.Code != "" || a.closed.Load() == 0 || b.closed.Load() == 0 {
				panic(r.Err)
			}
		})
	}
	few, lots := count(1), count(2_000)
	if lots > few+10 {
		t.Errorf("%v allocations for 1 chunk, %v for 2,000", few, lots)
	}
}

func TestResetCodes(t *testing.T) {
	seen := map[uint32]fault.Code{}
	for _, c := range []fault.Code{
		fault.CodeStreamReset, fault.CodeStreamIdle, fault.CodeDialCanceled, fault.CodeDraining, fault.CodeSessionLost, fault.CodePolicyDenied,
	} {
		n := splice.ResetCode(c)
		if other, ok := seen[n]; ok || n == 0 {
			t.Errorf("%s and %s share the number %d", c, other, n)
		}
		if back := splice.ResetReason(n); back != c {
			t.Errorf("%s travels as %d and arrives as %s", c, n, back)
		}
		seen[n] = c
	}
	for _, n := range []uint32{0, 99, 1 << 31} {
		if got := splice.ResetReason(n); got != fault.CodeStreamReset {
			t.Errorf("the unknown number %d arrives as %s", n, got)
		}
	}
}
