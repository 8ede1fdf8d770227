// SPDX-License-Identifier: Apache-2.0

package konnectivity_test

import (
	"context"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	pb "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// charged counts what is held for the streams that a rig dials.
type charged struct {
	carrier.Stream
	n *atomic.Int64
}

func (c charged) Charge(n int64) { c.n.Add(n) }

// chargedRig counts what is held for all of its streams.
func chargedRig(t *testing.T, held *atomic.Int64) *rig {
	t.Helper()
	return newRigOf(t, func(dial dialFunc) dialFunc {
		return func(ctx context.Context, d wire.Dial) (carrier.Stream, error) {
			s, err := dial(ctx, d)
			if err != nil {
				return nil, err
			}
			return charged{s, held}, nil
		}
	})
}

// TestUploadsToStalledTargetsAreBounded: of forty streams that send 3 MiB to
// targets that do not read, those beyond the socket's budget end with limit_reached,
// the heap stays near the budget, and what is ordinary goes on.
func TestUploadsToStalledTargetsAreBounded(t *testing.T) {
	const streams, size = 40, 3 << 20
	var held atomic.Int64
	r := chargedRig(t, &held)
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
	live := konnectivity.KonnectivityHeld / (4 << 20) // as the buffers are
	for range streams - live {
		if err := soon(t, "the end of one beyond the budget", ended); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "limit_reached") {
			t.Fatalf("it ended with %v", err)
		}
	}
	comesTo(t, &held, int64(konnectivity.KonnectivityHeld+live*limit.KonnectivityWindow))
	witness.echoes(safe)
	small := call(t, conn, proxy)
	small.open("echo:1")
	// The budget, the callers' own packets of those that live, and what the rest has in windows.
	most := int64(konnectivity.KonnectivityHeld + live*size + streams*limit.KonnectivityWindow)
	if n := heap() - before; n > most {
		t.Errorf("the heap grew by %d, want at most %d", n, most)
	}
	runtime.KeepAlive(callers)
	conn.Close()
	comesTo(t, &held, 0)
	for range live {
		soon(t, "the end of the others", ended)
	}
}

// TestStalledUploadsAreChargedWithTheirWindows: ordinary packets to targets that do not
// read fill gRPC's windows. What is charged for them is what they hold: the heap grows
// by no more than that and what the caller's side has, and by no less than the windows.
// An upload that is taken costs nothing.
func TestStalledUploadsAreChargedWithTheirWindows(t *testing.T) {
	const streams, packet = 100, 32 << 10
	var held atomic.Int64
	r := chargedRig(t, &held)
	conn := connect(t, r)
	witness := call(t, conn, proxy)
	witness.echoes(witness.open("echo:1"))
	comesTo(t, &held, 0)
	var callers []*caller
	var targets []carrier.Stream
	var senders sync.WaitGroup
	body := make([]byte, packet)
	before := heap()
	for range streams {
		c := call(t, conn, proxy)
		raw, err := proto.Marshal(dataPacket(c.open("target:1"), body))
		if err != nil {
			t.Fatal(err)
		}
		callers, targets = append(callers, c), append(targets, r.target()) // which do not read
		senders.Go(func() {
			for c.stream.SendMsg(&raw) == nil { // until it ends
			}
		})
	}
	const each = 2*packet + limit.KonnectivityWindow // the packet in hand has a head, and a buffer of the next power of two
	comesTo(t, &held, streams*each)
	grown := heap() - before
	// What the streams to the agent hold (a window each at its end, and what waits to be
	// sent) is not for the frontend to charge, and the caller's side has packets, too.
	const beside = limit.KonnectivityWindow + 256<<10
	if grown < streams*limit.KonnectivityWindow || grown > streams*(each+beside) {
		t.Errorf("the heap grew by %d for each stream; %d are charged", grown/streams, each)
	}
	runtime.KeepAlive(callers)
	for _, s := range targets {
		go io.Copy(io.Discard, s)
	}
	calm := func() bool { return held.Load() < streams*limit.KonnectivityWindow/2 }
	eventually(t, "what is taken is not charged", calm)
	conn.Close()
	senders.Wait()
	comesTo(t, &held, 0)
}

// TestBytesBehindACloseAreCharged: who has closed and goes on sending holds a window
// until its stream ends.
func TestBytesBehindACloseAreCharged(t *testing.T) {
	var held atomic.Int64
	r := chargedRig(t, &held)
	conn := connect(t, r)
	c := call(t, conn, proxy) // which hears nothing more, so that its stream goes on
	id := c.open("target:1")
	flood := fill(r.target())
	soon(t, "the stall", flood.stalled)
	c.say(dataPacket(id, []byte("x")))
	c.say(closeRequest(id))
	comesTo(t, &held, limit.KonnectivityWindow)
	conn.Close()
	comesTo(t, &held, 0)
	soon(t, "the target's end", flood.ended)
}

// windows counts how often a window is charged.
type windows struct {
	carrier.Stream
	n *atomic.Int64
}

func (w windows) Charge(n int64) {
	if n == limit.KonnectivityWindow {
		w.n.Add(1)
	}
}

// TestStreamsThatEndAtOnceAreNotCharged: a kube-apiserver that closes a thousand
// connections at a time does not look as one that holds a thousand windows.
func TestStreamsThatEndAtOnceAreNotCharged(t *testing.T) {
	const streams = 40
	var n atomic.Int64
	r := newRigOf(t, func(dial dialFunc) dialFunc {
		return func(ctx context.Context, d wire.Dial) (carrier.Stream, error) {
			s, err := dial(ctx, d)
			return windows{s, &n}, err
		}
	})
	conn := connect(t, r)
	for range streams {
		c := call(t, conn, proxy)
		id := c.open("target:1")
		c.say(dataPacket(id, []byte("x"))) // by which its target is known to be charged
		r.target()
		c.say(closeRequest(id))
		c.want(pb.PacketType_CLOSE_RSP)
		c.ends(codes.OK, "")
	}
	if n.Load() > streams/2 { // a machine that stands still for 0.1 s charges some
		t.Errorf("%d of %d are charged with a window", n.Load(), streams)
	}
}

func comesTo(t *testing.T, n *atomic.Int64, want int64) {
	t.Helper()
	for end := time.Now().Add(bound); n.Load() != want; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("%d bytes are charged, want %d", n.Load(), want)
		}
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(bound); !holds(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("not so: " + what)
		}
	}
}

// TestNothingLargeBeforeADial: a stream without a target gets no large packet in, and
// is refused by what it announces.
func TestNothingLargeBeforeADial(t *testing.T) {
	r := newRig(t)
	conn := connect(t, r)
	c := call(t, conn, proxy)
	c.say(dialRequest(strings.Repeat("a", konnectivity.KonnectivityRequest)))
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
