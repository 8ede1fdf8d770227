// SPDX-License-Identifier: Apache-2.0

package konnectivity_test

import (
	"io"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/tombolo-io/tombolo/internal/base/reqmeta"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity"
	"github.com/tombolo-io/tombolo/internal/stream/packet"
)

// countedPackets is an Observer that counts packets by segment and kind, and writes.
type countedPackets struct {
	konnectivity.Observer
	mu     sync.Mutex
	counts map[string]int
}

func (c *countedPackets) add(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[what]++
}

func (c *countedPackets) Packet(s konnectivity.Segment, kind konnectivity.PacketType) {
	c.add(konnectivity.Segments()[s] + " " + kind.String())
}

func (c *countedPackets) Stream(string, int) {}

func (c *countedPackets) Wrote(time.Duration) { c.add("wrote") }

// wait waits until so much was counted since the last wait, and no other.
func (c *countedPackets) wait(t *testing.T, want map[string]int) {
	t.Helper()
	runtest.Eventually(t, "it is counted", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return maps.Equal(c.counts, want)
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.counts)
}

// TestKEPCounts counts what stands for a packet, in the segments of the caller.
func TestKEPCounts(t *testing.T) {
	counts := &countedPackets{counts: map[string]int{}}
	f := konnectivity.New(slog.New(slog.DiscardHandler))
	f.Observe = counts
	r := newRigWith(t, f, func(dial dialFunc) dialFunc { return dial })
	conn := connect(t, r)

	c := kepOpen(t, conn, "target:1")
	target := r.target()
	opened := map[string]int{"from_client DIAL_REQ": 1, "to_client DIAL_RSP": 1}
	counts.wait(t, opened)
	io.WriteString(c, "question")
	c.send(packet.Payload{Metadata: []reqmeta.Pair{{Key: "step", Value: "1"}}}.Append(nil)) // no packet has that
	c.stream.CloseSend()
	if got, err := io.ReadAll(target); string(got) != "question" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	counts.wait(t, map[string]int{"from_client DATA": 1, "from_client CLOSE_REQ": 1})
	io.WriteString(target, "answer")
	target.Close()
	c.over(codes.OK, "")
	counts.wait(t, map[string]int{"to_client DATA": 1, "wrote": 1, "to_client CLOSE_RSP": 1})

	c = kepOpen(t, conn, "target:1")
	r.target().Reset(7)
	c.over(codes.Unavailable, "stream_reset")
	counts.wait(t, map[string]int{"from_client DIAL_REQ": 1, "to_client DIAL_RSP": 1, "to_client CLOSE_RSP": 1})

	kepCall(t, conn, headTarget, named("refused:1")).over(codes.Unavailable, "dial_refused")
	counts.wait(t, opened)

	c = kepOpen(t, conn, "target:1")
	c.cancel()
	isReset(t, r.target())
	counts.wait(t, opened) // whoever is gone has said nothing
}
