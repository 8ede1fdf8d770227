// SPDX-License-Identifier: Apache-2.0

package konnectivity_test

import (
	"context"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tombolo-io/tombolo/internal/carrier"
	"github.com/tombolo-io/tombolo/internal/limit"
	"github.com/tombolo-io/tombolo/internal/wire"
)

// charged counts what is held for the streams that a rig dials.
type charged struct {
	carrier.Stream
	n *atomic.Int64
}

func (c charged) Charge(n int64) { c.n.Add(n) }

// TestUploadsToStalledTargetsAreBounded: of a hundred streams that send 3 MiB to
// targets that do not read, those beyond the socket's budget end with limit_reached,
// the heap stays near the budget, and what is ordinary goes on.
func TestUploadsToStalledTargetsAreBounded(t *testing.T) {
	const streams, size = 100, 3 << 20
	var held atomic.Int64
	r := newRigOf(t, func(dial dialFunc) dialFunc {
		return func(ctx context.Context, d wire.Dial) (carrier.Stream, error) {
			s, err := dial(ctx, d)
			if err != nil {
				return nil, err
			}
			return charged{s, &held}, nil
		}
	})
	conn := connect(t, r)
	witness := call(t, conn, proxy)
	safe := witness.open("echo:1")
	before := heap()
	body := make([]byte, size)
	ended := make(chan error, streams)
	var callers []*caller
	for range streams {
		c := call(t, conn, proxy)
		id := c.open("target:1")
		r.target() // which does not read
		callers = append(callers, c)
		raw, err := proto.Marshal(dataPacket(id, body))
		if err != nil {
			t.Fatal(err)
		}
		c.send(raw)
		go func() {
			for {
				if _, err := c.hear(); err != nil {
					ended <- err
					return
				}
			}
		}()
	}
	live := limit.KonnectivityHeld / (4 << 20) // as the buffers are
	for range streams - live {
		if err := soon(t, "the end of one beyond the budget", ended); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "limit_reached") {
			t.Fatalf("it ended with %v", err)
		}
	}
	if n := held.Load(); n != limit.KonnectivityHeld {
		t.Errorf("%d bytes are charged, want %d", n, limit.KonnectivityHeld)
	}
	witness.echoes(safe)
	small := call(t, conn, proxy)
	small.open("echo:1")
	// The budget, the callers' own packets of those that live, and what the rest has in windows.
	most := int64(limit.KonnectivityHeld + live*size + streams*limit.KonnectivityWindow)
	if n := heap() - before; n > most {
		t.Errorf("the heap grew by %d, want at most %d", n, most)
	}
	runtime.KeepAlive(callers)
	conn.Close()
	for end := time.Now().Add(bound); held.Load() != 0; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("%d bytes stay charged", held.Load())
		}
	}
	for range live {
		soon(t, "the end of the others", ended)
	}
}

// TestNothingLargeBeforeADial: a stream without a target gets no large packet in, and
// is refused by what it announces.
func TestNothingLargeBeforeADial(t *testing.T) {
	r := newRig(t)
	conn := connect(t, r)
	c := call(t, conn, proxy)
	c.say(dialRequest(strings.Repeat("a", limit.KonnectivityRequest)))
	c.ends(codes.ResourceExhausted, "too large")
	c = call(t, conn, proxy)
	c.say(dialRequest("never:1"))
	behind := soon(t, "dial", r.dialing)
	c.say(dataPacket(1, make([]byte, 3<<20)))
	c.ends(codes.ResourceExhausted, "too large")
	soon(t, "the dial's end", behind.Done())
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
