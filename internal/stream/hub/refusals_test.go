// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/hub/record"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

func counterOf(t *testing.T, c prometheus.Counter) int64 {
	t.Helper()
	var m dto.Metric
	must(t, c.Write(&m))
	return int64(m.GetCounter().GetValue())
}

// TestFloodsOfKnownCallersAreCounted: one caller is refused a thousand times at its
// bound, by dials, connections and konnectivity streams. Its records and its lines of
// the log are few, those of another caller stand beside them, and records and counts
// add up to the metrics.
func TestFloodsOfKnownCallersAreCounted(t *testing.T) {
	const flood = 1000
	var log bytes.Buffer
	var dials, refused int64
	out := records(t, func(h *Hub) {
		h.log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo}))
		h.record.Log = h.log
		c := clusterOf(t, "c1")
		who := record.Party{Cluster: c, Frontend: ProtocolKonnectivity, Caller: "unix:c1/konnectivity"}
		account := h.clusters.add(c).accounts.Caller(who.Caller)
		b := account.Bounds()
		b.Pending, b.Sessions = 0, 0
		account.Bound(b)
		for n := range flood {
			d := wire.Dial{Network: "tcp", Address: fmt.Sprintf("10.0.0.1:%d", n+1)}
			if _, err := h.dials.forCaller(who)(t.Context(), d); !fault.Has(err, fault.CodeLimit) {
				t.Fatal(err)
			}
		}
		h.front.metered(who, nil).(interface{ Refused(wire.Peer, error) }).Refused(wire.Peer{}, fault.New(fault.CodeLimit, "the socket takes no more streams"))
		near, far := net.Pipe()
		defer far.Close()
		if _, err := h.front.metered(who, &given{conns: []net.Conn{near}}).Accept(); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if _, err := h.dials.forCaller(record.Party{Cluster: c, Frontend: "connect", Caller: "unix:c1/connect"})(t.Context(), wire.Dial{Network: "tcp", Address: "no address"}); !fault.Has(err, fault.CodeRequest) {
			t.Error(err)
		}
		dials = counterOf(t, h.metrics.Dials.WithLabelValues(who.Frontend, "limit_reached"))
		refused = counterOf(t, h.metrics.Refused.WithLabelValues("limit_reached"))
		h.record.Turn(time.Now())
	})
	var single, summed, other int64
	for _, r := range out {
		switch {
		case r.Caller == "unix:c1/connect":
			other++
		case r.Kind != audit.KindRefusal || r.Code != "limit_reached" || r.Caller != "unix:c1/konnectivity" || r.Cluster != "c1":
			t.Errorf("%+v", r)
		case r.Count > 0:
			summed += r.Count
			if r.Since.IsZero() || r.Asked != "" {
				t.Errorf("the sum is %+v", r)
			}
		default:
			single++
		}
	}
	if dials != flood || refused != 2 || single+summed != dials+refused {
		t.Errorf("the metrics count %d dials and %d others, the records %d and %d", dials, refused, single, summed)
	}
	if single != limit.AuditAlike || other != 1 {
		t.Errorf("%d records of the flood, %d of another caller", single, other)
	}
	if n := strings.Count(log.String(), "\n"); n != limit.AuditAlike+2 || !strings.Contains(log.String(), fmt.Sprintf("count=%d", summed)) {
		t.Errorf("%d lines in the log:\n%s", n, &log)
	}
}

// Without records the log is bounded as well.
func TestFloodsAreBoundedInTheLogAlone(t *testing.T) {
	var log bytes.Buffer
	h := bareHub(t)
	h.log = slog.New(slog.NewTextHandler(&log, nil))
	h.record.Log = h.log
	for range 1000 {
		if _, err := h.dials.forCaller(record.Party{Cluster: clusterOf(t, "none"), Frontend: "connect", Caller: "x"})(t.Context(), wire.Dial{Address: "10.0.0.1:80"}); err == nil {
			t.Fatal("a dial into no cluster")
		}
	}
	h.record.Turn(time.Now())
	if n := strings.Count(log.String(), "\n"); n != limit.AuditAlike+1 {
		t.Errorf("%d lines in the log:\n%s", n, &log)
	}
}

// TestRecordsNameTheOperator: who asks over the admin socket, or with a certificate
// over the main port, stands in the record, which no policy sees.
func TestRecordsNameTheOperator(t *testing.T) {
	path := filepath.Join(runtest.Dir(t), "s")
	ln, err := net.Listen("unix", path)
	must(t, err)
	defer ln.Close()
	far, err := net.Dial("unix", path)
	must(t, err)
	defer far.Close()
	near, err := ln.Accept()
	must(t, err)
	defer near.Close()
	out := records(t, func(h *Hub) {
		for _, r := range []*http.Request{overSocket(t, near), h.withCertificate(t, "alice")} {
			if _, err := h.dials.forCaller(h.api.operator(r, clusterOf(t, "none")))(t.Context(), wire.Dial{Address: "10.0.0.1:80"}); err == nil {
				t.Error("a dial into no cluster")
			}
		}
	})
	if len(out) != 2 {
		t.Fatalf("%+v", out)
	}
	if p := out[0].Peer; p == nil || int(p.UID) != os.Getuid() || int(p.PID) != os.Getpid() || out[0].Caller != "operator" || out[0].Operator != "" {
		t.Errorf("over the socket: %+v", out[0])
	}
	if out[1].Operator != "spiffe://tombolo.internal/operator/alice" || out[1].Serial == "" || out[1].Caller != "operator" || out[1].Peer != nil {
		t.Errorf("with a certificate: %+v", out[1])
	}
}

func overSocket(t *testing.T, conn net.Conn) *http.Request {
	return httptest.NewRequestWithContext(withPeer(t.Context(), conn), "GET", "/", nil)
}

func (h *Hub) withCertificate(t *testing.T, operator string) *http.Request {
	t.Helper()
	key, err := trust.NewKey()
	must(t, err)
	leaf, err := h.credentials.CA().Issue(trust.Request{Identity: id.Identity{Role: id.RoleOperator, Name: operator}, Key: key.Public(), Life: time.Hour}, h.now())
	must(t, err)
	return httptest.NewRequestWithContext(context.WithValue(t.Context(), peerKey{}, []*x509.Certificate{leaf}), "GET", "/", nil)
}

// given is a listener that accepts these connections and then ends.
type given struct {
	net.Listener
	conns []net.Conn
}

func (g *given) Accept() (net.Conn, error) {
	if len(g.conns) == 0 {
		return nil, net.ErrClosed
	}
	conn := g.conns[0]
	g.conns = g.conns[1:]
	return conn, nil
}
