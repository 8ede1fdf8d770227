// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"crypto/tls"
	"io"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	pb "github.com/tombolo-io/tombolo/proto"
)

func (h *Hub) lostFor(t *testing.T, cause carrier.Cause) float64 {
	t.Helper()
	var m dto.Metric
	if err := h.metrics.Losses.WithLabelValues(string(cause)).Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// TestALossSaysItsCause: a connection that was added to a session goes in each of
// the ways; the metric and the status say which, and only a violation ends all.
func TestALossSaysItsCause(t *testing.T) {
	leave := []byte{11, 0, 0, 0, 0, 0, 0, 0}
	for _, c := range []struct {
		name  string
		cause carrier.Cause
		do    func(t *testing.T, conn *tls.Conn)
	}{
		{"nothing comes", carrier.CauseSilent, func(*testing.T, *tls.Conn) {}},
		{"the agent closes it", carrier.CauseBroken, func(_ *testing.T, conn *tls.Conn) { conn.NetConn().Close() }},
		{"data of no stream", carrier.CauseViolation, func(_ *testing.T, conn *tls.Conn) { conn.Write([]byte{1, 0, 0, 0, 0, 0, 0, 0}) }},
		{"the agent blames the hub", carrier.CauseViolation, func(_ *testing.T, conn *tls.Conn) {
			conn.Write([]byte{8, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 1})
		}},
		{"both leave it", carrier.CauseLeft, func(t *testing.T, conn *tls.Conn) {
			conn.Write(leave)
			for head := make([]byte, 8); head[0] != leave[0]; { // its own, behind pings
				if _, err := io.ReadFull(conn, head); err != nil {
					t.Fatal(err)
				}
				io.CopyN(io.Discard, conn, int64(head[3]))
			}
			conn.Close()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cause := c.cause
			h := runningHub(t)
			cfg := h.agentTLS(t, "a1")
			link := h.hold(t, cfg)
			s := h.only(t)
			conn, w := h.meet(t, cfg, &pb.Hello{Attach: link.secret})
			if w.GetRefusal() != nil {
				t.Fatal(w)
			}
			runtest.Eventually(t, "the hub takes the connection", func() bool { return s.link.Info().Connections == 2 })
			conn.SetDeadline(time.Now().Add(20 * time.Second))
			c.do(t, conn)
			runtest.Eventually(t, "a loss is counted", func() bool { return h.lostFor(t, cause) > 0 })
			for _, other := range carrier.Causes() {
				if n := h.lostFor(t, other); (n == 1) != (other == cause) {
					t.Errorf("%s is counted %v times", other, n)
				}
			}
			series := make(chan prometheus.Metric, 10)
			if h.metrics.Losses.Collect(series); len(series) != len(carrier.Causes()) {
				t.Errorf("%d series are made for %v", len(series), carrier.Causes())
			}
			st, live := s.status(), s.link.Info().Connections == 1
			switch cause {
			case carrier.CauseLeft:
				if st.ConnectionsLost != 0 || st.LastLoss != nil || !live {
					t.Errorf("of a connection that was not needed the status says %+v", st)
				}
			case carrier.CauseViolation:
				<-link.Done()
				fallthrough
			default:
				if l := st.LastLoss; st.ConnectionsLost != 1 || l == nil || l.Cause != string(cause) || l.Reason == "" || l.At.IsZero() {
					t.Errorf("the status says %+v, %+v", st, l)
				}
				if cause != carrier.CauseViolation && !live {
					t.Error("the session has not its other connection alone")
				}
			}
			if missing := s.missing.Load() == 1; missing != (cause != carrier.CauseLeft) {
				t.Errorf("a connection is missing: %v", missing)
			}
		})
	}
}
