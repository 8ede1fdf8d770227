// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"sync/atomic"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

// watched is a reader that looks at what is counted while a copy has it in hand.
type watched func(b []byte) (int, error)

func (w watched) Write(b []byte) (int, error) { return w(b) }

// TestAFlowCounts says what a flow holds from the arrival of a packet until it was taken or dropped, whoever counts.
func TestAFlowCounts(t *testing.T) {
	const piece, cost = 1000, 1000 + queueEntry
	tun := newTestTunnel(wirePair{})
	var caller atomic.Int64
	open := func(id int64) *flow {
		f, _ := tun.link.open(id, "")
		return f
	}
	come := func(id int64) {
		tun.handle(&packet{kind: data, body: body{connectID: id, payload: make([]byte, piece)}})
	}
	want := func(when string, f *flow, own, sum int64) {
		t.Helper()
		if f.Held() != own || f.Unread() != own || caller.Load() != sum || tun.agents.Budget.Unread() != sum {
			t.Errorf("%s: %d and %d of the flow, %d of the caller, %d of all; want %d and %d", when, f.Held(), f.Unread(),
				caller.Load(), tun.agents.Budget.Unread(), own, sum)
		}
	}
	var _ carrier.Holder = open(9)
	one, two := open(1), open(2)
	come(1)
	one.Tally(&caller) // with what came before
	two.Tally(&caller)
	want("a packet waits", one, cost, cost)
	come(1)
	come(2)
	want("more wait", one, 2*cost, 3*cost)
	one.Read(make([]byte, piece-1))
	want("part of one was read", one, 2*cost, 3*cost)
	one.Read(make([]byte, piece))
	want("all of it was read", one, cost, 2*cost)
	one.ends("")
	want("the target has ended", one, cost, 2*cost)
	one.CopyTo(watched(func(b []byte) (int, error) {
		want("a copy has it in hand", one, cost, 2*cost)
		return len(b), nil
	}), nil)
	want("the copy is over", one, 0, cost)
	two.Reset(0)
	want("the other is reset", two, 0, 0)
	come(2)
	want("more comes for it", two, 0, 0)
	three := open(3)
	come(3)
	tun.link.end(fault.New(fault.CodeSessionLost, "over"))
	three.Close()
	want("the tunnel has ended", three, 0, 0)
}
