// SPDX-License-Identifier: Apache-2.0

package carrier_test

import (
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/carrier/carriertest"
)

func TestYamux(t *testing.T) {
	t.Run("pipe", func(t *testing.T) { carriertest.Run(t, pipes(carrier.Yamux)) })
	t.Run("tls", func(t *testing.T) { carriertest.Run(t, overTLS(carrier.Yamux, 1)) })
	t.Run("deaths", func(t *testing.T) { carriertest.Deaths(t, wires(carrier.Yamux)) })
	t.Run("slow", func(t *testing.T) { carriertest.Slow(t, wires(carrier.Yamux)) })
}

// TestYamuxCountsWhatStays: a stream that is reset while the link does not move holds
// its bytes until the reset has a place in the library's queue, and counts as long.
func TestYamuxCountsWhatStays(t *testing.T) {
	const n, each = 100, 50 << 10
	w := carriertest.NewWire()
	p := wires(carrier.Yamux)(t, w.A, w.B)
	defer p.B.Close()
	defer p.A.Close()
	var held []carrier.Stream
	for range n {
		near, err := p.B.OpenStream(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		far, err := p.A.AcceptStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := far.Write(make([]byte, each)); err != nil {
			t.Fatal(err)
		}
		held = append(held, near)
	}
	until(t, func() bool { return p.B.Info().Unread == n*each })
	w.Halt(true)
	for _, s := range held { // more frames than the queue takes
		s.SetWriteDeadline(time.Now().Add(time.Millisecond))
		s.Write([]byte("x"))
	}
	for _, s := range held {
		s.Reset(1)
	}
	if got := p.B.Info().Unread; got < n/2*each {
		t.Errorf("%d bytes count of %d that are there", got, n*each)
	}
	w.Halt(false)
	until(t, func() bool { return p.B.Info().Unread+p.B.Info().Streams == 0 })
}

// lacks are the rules that a kind cannot keep. Our own mux keeps them all.
func lacks(kind carrier.Kind) map[carriertest.Rule]string {
	if kind != carrier.Yamux {
		return nil
	}
	return map[carriertest.Rule]string{
		carriertest.ResetInOrder:   "a reset of yamux drops what its receiver has not read",
		carriertest.RefusalMarked:  "yamux resets what it refuses with code 0",
		carriertest.GoAwayInPeace:  "yamux ends a session whose peer goes away",
		carriertest.OpenAtOnce:     "yamux holds 256 streams that were not accepted, and refuses more",
		carriertest.EndsAtOnce:     "yamux queues 64 frames in order, and then CloseWrite and GoAway wait",
		carriertest.SeveralCallers: "yamux wakes one reader and one writer of a stream, whatever happened",
		carriertest.PromptSinks:    "yamux gives its bytes to who reads them only",
	}
}
