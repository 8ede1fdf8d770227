// SPDX-License-Identifier: Apache-2.0

package yamux_test

import (
	"net"
	"testing"

	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/carrier/carriertest"
	"github.com/tombolo-io/tombolo/test/yamux"
)

// TestYamux holds the contract tests to a second implementation: what both pass
// is no habit of our own mux.
func TestYamux(t *testing.T) {
	t.Run("pipe", func(t *testing.T) {
		carriertest.Run(t, func(t *testing.T, o carrier.Options) carriertest.Pair {
			a, b := net.Pipe()
			p := pair(t, a, b, o)
			p.Cut = func() { a.Close() }
			return p
		})
	})
	over := func(t *testing.T, a, b net.Conn) carriertest.Pair {
		return pair(t, a, b, carrier.Options{Incoming: 1_000})
	}
	t.Run("deaths", func(t *testing.T) { carriertest.Deaths(t, over) })
	t.Run("slow", func(t *testing.T) { carriertest.Slow(t, over) })
}

func pair(t *testing.T, a, b net.Conn, o carrier.Options) carriertest.Pair {
	t.Helper()
	client, err := yamux.Client(a, o)
	if err != nil {
		t.Fatal(err)
	}
	server, err := yamux.Server(b, o)
	if err != nil {
		client.Close()
		t.Fatal(err)
	}
	return carriertest.Pair{A: client, B: server, Lacks: map[carriertest.Rule]string{
		carriertest.ResetInOrder:   "a reset of yamux drops what its receiver has not read",
		carriertest.RefusalMarked:  "yamux resets what it refuses with code 0",
		carriertest.GoAwayInPeace:  "yamux ends a session whose peer goes away",
		carriertest.OpenAtOnce:     "yamux holds 256 streams that were not accepted, and refuses more",
		carriertest.EndsAtOnce:     "yamux queues 64 frames in order, and then CloseWrite and GoAway wait",
		carriertest.SeveralCallers: "yamux wakes one reader and one writer of a stream, whatever happened",
		carriertest.PromptSinks:    "yamux gives its bytes to readers only",
		carriertest.UnreadKnown:    "yamux keeps unread bytes to itself",
	}}
}
