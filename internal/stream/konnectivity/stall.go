// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// stall charges a target's stream with the window of its caller while the target
// takes nothing: it fills behind the packet in hand. It is limit.KonnectivityWindow
// whatever the caller has sent, from konnectivityStall on: what is taken at once costs
// nobody anything.
//
//	          begin              the timer
//	taken ─────────────► waits ─────────────► charged
//	  ▲                    │ end                 │ end: gives it back
//	  └────────────────────┴─────────────────────┘
//
// A timer that is late finds another wait, which it charges too early; that does no harm.
type stall struct {
	to    Charged
	state atomic.Int32
	timer *time.Timer // of who calls begin and end
}

const (
	stallTaken = iota
	stallWaits
	stallCharged
)

func (s *stall) begin(to Charged) {
	if to == nil {
		return
	}
	s.state.Store(stallWaits)
	if s.timer == nil {
		s.to = to
		s.timer = time.AfterFunc(konnectivityStall, s.charge)
		return
	}
	s.timer.Reset(konnectivityStall)
}

func (s *stall) charge() {
	if s.state.CompareAndSwap(stallWaits, stallCharged) {
		s.to.Charge(limit.KonnectivityWindow)
	}
}

func (s *stall) end() {
	if s.timer == nil {
		return
	}
	s.timer.Stop()
	if s.state.Swap(stallTaken) == stallCharged {
		s.to.Charge(-limit.KonnectivityWindow)
	}
}
