// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"io"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
	pb "github.com/tombolo-io/tombolo/proto"
)

// TestAGoodbyeHoldsNobodyUp: an agent that says goodbye while it has a stream may
// stay for its last bytes, and still be ended.
func TestAGoodbyeHoldsNobodyUp(t *testing.T) {
	h := runningHub(t)
	cfg := h.agentTLS(t, "a1")
	link := h.hold(t, cfg)
	s := h.only(t)
	dialled := make(chan error, 1)
	go func() {
		stream, err := h.Dial(t.Context(), s.cluster.name, wire.Dial{Network: "tcp", Address: "10.0.0.1:1"})
		if err == nil {
			t.Cleanup(func() { stream.Close() })
		}
		dialled <- err
	}()
	stream, err := link.AcceptStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := wire.ReadDial(stream); err != nil {
		t.Fatal(err)
	}
	if err := wire.Write(stream, wire.Reply("10.0.0.1:1", nil)); err != nil {
		t.Fatal(err)
	}
	if err := <-dialled; err != nil {
		t.Fatal(err)
	}
	if err := wire.Write(link.control, goodbye(fault.New(fault.CodeDraining, "bye"))); err != nil {
		t.Fatal(err)
	}
	for s.ended.Load() == nil {
		if t.Context().Err() != nil {
			t.Fatal("the goodbye does not arrive")
		}
	}
	select {
	case <-s.link.Done():
		t.Fatal("its last bytes are cut off")
	default:
	}
	s.end(fault.New(fault.CodeDraining, "the hub stopped"))
	<-s.link.Done()
}

// TestConnectionsThatAreNoSessionYet: an agent that says Hello and never opens its
// control stream gets few places, another one has its own, and they come back.
func TestConnectionsThatAreNoSessionYet(t *testing.T) {
	h := runningHub(t)
	cfg := h.agentTLS(t, "a1")
	coming := h.clusters.all()[0].accounts.Agent(agentOf(t, "a1"))
	var all []io.Closer
	for i := range int64(limit.SessionsComing) {
		conn, w := h.meet(t, cfg, &pb.Hello{})
		if w.GetRefusal() != nil {
			t.Fatal(w)
		}
		all = append(all, conn)
		for coming.Arriving() != i+1 {
			if t.Context().Err() != nil {
				t.Fatalf("%d are counted, want %d", coming.Arriving(), i+1)
			}
		}
	}
	conn, _ := h.meet(t, cfg, &pb.Hello{})
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.Copy(io.Discard, conn); err != nil {
		t.Errorf("one more is not closed: %v", err)
	}
	other := h.agentTLS(t, "a2")
	h.hold(t, other)
	for _, c := range all {
		c.Close()
	}
	for coming.Arriving() != 0 {
		if t.Context().Err() != nil {
			t.Fatalf("%d places are kept", coming.Arriving())
		}
	}
	h.hold(t, cfg)
}

func agentOf(t *testing.T, name string) id.Agent {
	t.Helper()
	a, err := id.ParseAgent(name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
