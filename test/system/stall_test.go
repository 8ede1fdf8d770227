// SPDX-License-Identifier: Apache-2.0

package system

import (
	"net"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// stuck waits until a writer has not got on for a moment, so that every window
// and buffer between it and the stalled reader is full.
func stuck(t *testing.T, moved func() int64) {
	t.Helper()
	last, since := int64(-1), time.Now()
	runtest.Eventually(t, "the stalled connection has filled its buffers", func() bool {
		if now := moved(); now != last {
			last, since = now, time.Now()
		}
		return last > 0 && time.Since(since) > 300*time.Millisecond
	})
}

// othersWork proves that neither a live connection nor a new dial is touched.
func othersWork(t *testing.T, ways []way, live []net.Conn, to string) {
	t.Helper()
	for i, w := range ways {
		mustEcho(t, live[i], "still alive on "+w.name)
		conn, err := w.dial(runtest.Within(t), to)
		if err != nil {
			t.Fatalf("new dial on %s: %v", w.name, err)
		}
		mustEcho(t, conn, "new on "+w.name)
		conn.Close()
	}
}

func openOnEach(t *testing.T, ways []way, to string) []net.Conn {
	t.Helper()
	var out []net.Conn
	for _, w := range ways {
		conn, err := w.dial(runtest.Within(t), to)
		if err != nil {
			t.Fatalf("%s: %v", w.name, err)
		}
		out = append(out, closing(t, conn))
	}
	return out
}

// A caller that does not read from a fast target harms itself only.
func TestCallerThatDoesNotRead(t *testing.T) {
	h, _ := pair(t, hubSpec{}, agentSpec{})
	to, fast := runtest.Echo(t), flood(t)
	ways := h.ways("c1")
	live := openOnEach(t, ways, to.Addr())
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			conn, err := w.dial(runtest.Within(t), fast.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer abandon(conn)
			stuck(t, func() int64 { return h.status("c1").Agents[0].BytesOut })
			othersWork(t, ways, live, to.Addr())
		})
	}
}

// A target that does not read from a fast caller harms that connection only.
func TestTargetThatDoesNotRead(t *testing.T) {
	h, _ := pair(t, hubSpec{}, agentSpec{})
	to, deaf := runtest.Echo(t), sink(t)
	ways := h.ways("c1")
	live := openOnEach(t, ways, to.Addr())
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			conn, err := w.dial(runtest.Within(t), deaf.Addr())
			if err != nil {
				t.Fatal(err)
			}
			writer := make(chan struct{})
			go func() {
				defer close(writer)
				buf := make([]byte, 64<<10)
				for {
					if _, err := conn.Write(buf); err != nil {
						return
					}
				}
			}()
			stuck(t, func() int64 { return h.status("c1").Agents[0].BytesIn })
			othersWork(t, ways, live, to.Addr())
			abandon(conn)
			<-writer
		})
	}
}
