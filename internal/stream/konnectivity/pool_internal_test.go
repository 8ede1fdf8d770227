// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/mem"

	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

// TestPool gives what was asked for, and keeps only what it can give again.
func TestPool(t *testing.T) {
	pool := newPool()
	for _, n := range []int{0, 1, 1 << 10, 1<<10 + 1, konnectivityData, konnectivityData + packetHead, 1 << 20, 4 << 20, 5 << 20} {
		b := pool.Get(n)
		if len(*b) != n || n == konnectivityData+packetHead && cap(*b) > 34<<10 {
			t.Errorf("%d bytes: %d of %d", n, len(*b), cap(*b))
		}
		pool.Put(b)
	}
	short := make([]byte, 1000, 40_000) // of no size of the pool
	pool.Put(&short)
	for range 10 {
		if b := pool.Get(40_000); cap(*b) == 40_000 || len(*b) != 40_000 {
			t.Fatalf("%d bytes of %d", len(*b), cap(*b))
		}
	}
}

// TestPoolGivesControlsWhatTheyNeed: gRPC gives back nothing that is so small.
func TestPoolGivesControlsWhatTheyNeed(t *testing.T) {
	if b := newPool().Get(20); len(*b) != 20 || cap(*b) > 64 {
		t.Errorf("a packet of 20 bytes has %d of %d", len(*b), cap(*b))
	}
}

// counting counts the buffers that are out.
type counting struct {
	mem.BufferPool
	taken, out atomic.Int64
}

func (c *counting) Get(n int) *[]byte {
	c.taken.Add(1)
	c.out.Add(1)
	return c.BufferPool.Get(n)
}

func (c *counting) Put(b *[]byte) {
	c.out.Add(-1)
	c.BufferPool.Put(b)
}

// TestAnIdleConnectionHasNoBuffer reads as a frontend does.
func TestAnIdleConnectionHasNoBuffer(t *testing.T) {
	path := filepath.Join(runtest.Dir(t), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	caller, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer caller.Close()
	l := &boundedListener{Listener: ln, ctx: context.Background(), places: run.NewLimiter(1)}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	pool := &counting{BufferPool: newPool()}
	type result struct {
		text string
		err  error
	}
	got := make(chan result, 2)
	patient, ok := splice.Net(conn.(*boundedConn).Below()).(carrier.Patient)
	if !ok {
		t.Fatal("it cannot be read without a buffer")
	}
	go func() {
		for range 2 {
			var b *[]byte
			n, err := patient.ReadWhenReady(func() []byte { b = pool.Get(32 << 10); return *b }, func() { pool.Put(b) })
			if n == 0 {
				got <- result{err: err}
				continue
			}
			got <- result{string((*b)[:n]), err}
			pool.Put(b)
		}
	}()
	runtest.Eventually(t, "it waits without a buffer", func() bool { return pool.taken.Load() > 0 && pool.out.Load() == 0 })
	if _, err := caller.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if r := <-got; r.text != "hello" || r.err != nil {
		t.Errorf("got %q, %v", r.text, r.err)
	}
	caller.Close()
	if r := <-got; r.text != "" || r.err == nil {
		t.Errorf("at the end: %q, %v", r.text, r.err)
	}
	if n := pool.out.Load(); n != 0 {
		t.Errorf("%d buffers are out", n)
	}
}
