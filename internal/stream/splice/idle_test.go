// SPDX-License-Identifier: Apache-2.0

package splice_test

import (
	"io"
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

// TestIdleHoldsNoBuffer: thousands of streams lie idle, and what one of them
// holds is a few small objects, whatever it has carried before.
func TestIdleHoldsNoBuffer(t *testing.T) {
	const most = 5_000
	tcp, unix, tls := ends()[0], ends()[1], ends()[2]
	wrapped := end{name: "wrapped tcp", make: func(t testing.TB) (splice.Conn, peer, func()) {
		near, far := pairOn(t, "tcp", "127.0.0.1:0")
		return splice.Net(wrapper{near.(*net.TCPConn), strings.NewReader("")}), far.(*net.TCPConn), nil
	}}
	for _, c := range []struct {
		x, y end
		size int
	}{
		{unix, tcp, 3 * limit.CopyBuffer}, {wrapped, tcp, 3*limit.CopyBuffer + 9}, // which waits with a small one
		{unix, streams(), 3 * limit.CopyBuffer}, {streams(), tcp, 3 * limit.CopyBuffer},
		{tls, streams(), 100}, // TLS itself keeps room for the largest record that it saw
	} {
		t.Run(c.x.name+"-"+c.y.name, func(t *testing.T) {
			heap, _, goroutines := idleCost(t, 50, c.size, c.x, c.y)
			t.Logf("%.0f bytes and %.0f goroutines each", heap, goroutines)
			if heap > most || goroutines > 2 {
				t.Errorf("an idle splice holds %.0f bytes and %.2f goroutines, at most %d and 2 are meant", heap, goroutines, most)
			}
		})
	}
}

// BenchmarkIdle tells what a splice holds after it was busy and became silent;
// the connections themselves are not counted.
func BenchmarkIdle(b *testing.B) {
	const splices = 200
	benchPairs(b, func(b *testing.B, x, y end) {
		for b.Loop() {
			heap, stack, goroutines := idleCost(b, splices, 3*limit.CopyBuffer+1, x, y)
			b.ReportMetric(heap, "heap-B/splice")
			b.ReportMetric(stack, "stack-B/splice")
			b.ReportMetric(goroutines, "goroutines/splice")
		}
	})
}

// idleCost is what each of n splices costs that has carried so many bytes each
// way, then one more, and then nothing.
func idleCost(t testing.TB, n, size int, x, y end) (heap, stack, goroutines float64) {
	t.Helper()
	type pair struct {
		nearA, nearB splice.Conn
		farA, farB   peer
	}
	pairs := make([]pair, n)
	for i := range pairs {
		pairs[i].nearA, pairs[i].farA, _ = x.make(t)
		pairs[i].nearB, pairs[i].farB, _ = y.make(t)
	}
	busy := make([]byte, size)
	// What the connections allocate at their first use is theirs.
	for _, p := range pairs {
		touch(t, p.nearA, p.farA, busy)
		touch(t, p.nearB, p.farB, busy)
	}
	before, running := settled(), runtime.NumGoroutine()
	splicer := splice.New()
	results := make(chan splice.Result, n)
	for _, p := range pairs {
		go func() { results <- splicer.Both(t.Context(), p.nearA, p.nearB, splice.Options{}) }()
		exchange(t, setup{a: p.farA, b: p.farB}, busy)
		exchange(t, setup{a: p.farA, b: p.farB}, busy[:1])
	}
	after := settled()
	goroutines = float64(runtime.NumGoroutine()-running) / float64(n)
	heap = (float64(after.HeapAlloc) - float64(before.HeapAlloc)) / float64(n)
	stack = (float64(after.StackInuse) - float64(before.StackInuse)) / float64(n)
	for _, p := range pairs {
		p.farA.Close()
		p.farB.Close()
	}
	for range pairs {
		<-results
	}
	runtime.KeepAlive(busy)
	return heap, stack, goroutines
}

// touch lets one connection carry msg both ways before it is spliced.
func touch(t testing.TB, near splice.Conn, far peer, msg []byte) {
	t.Helper()
	got := make([]byte, len(msg))
	for _, way := range [][2]io.ReadWriter{{near, far}, {far, near}} {
		done := make(chan error, 1)
		go func() { _, err := way[0].Write(msg); done <- err }()
		if _, err := io.ReadFull(way[1], got); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

// streams is an end whose connections are streams of one session, as they are in
// a hub.
func streams() end {
	e := end{name: "mux", coded: true}
	var agent, hub carrier.Session
	e.make = func(t testing.TB) (splice.Conn, peer, func()) {
		if agent == nil {
			agent, hub = sessions(t)
		}
		return streamOf(t, agent, hub)
	}
	return e
}

// settled measures memory once collecting garbage changes nothing any more.
func settled() (m runtime.MemStats) {
	for last := uint64(0); ; last = m.HeapAlloc {
		runtime.GC()
		runtime.GC() // what a sync.Pool held goes with the second
		runtime.ReadMemStats(&m)
		if last != 0 && m.HeapAlloc+1024 >= last && last+1024 >= m.HeapAlloc {
			return m
		}
	}
}
