// SPDX-License-Identifier: Apache-2.0

package carrier_test

import (
	"testing"

	"github.com/tombolo-io/tombolo/internal/carrier"
	"github.com/tombolo-io/tombolo/internal/carrier/carriertest"
)

func TestYamux(t *testing.T) {
	t.Run("pipe", func(t *testing.T) { carriertest.Run(t, pipes(carrier.Yamux)) })
	t.Run("tls", func(t *testing.T) { carriertest.Run(t, overTLS(carrier.Yamux, 1)) })
	t.Run("deaths", func(t *testing.T) { carriertest.Deaths(t, wires(carrier.Yamux)) })
	t.Run("slow", func(t *testing.T) { carriertest.Slow(t, wires(carrier.Yamux)) })
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
