// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/hub/record"
)

// records runs fn with a hub that writes audit records, and gives what it wrote.
func records(t *testing.T, fn func(h *Hub)) (out []audit.Record) {
	t.Helper()
	h, path := bareHub(t), filepath.Join(runtest.Dir(t), "audit.jsonl")
	w, err := audit.New(audit.Config{Path: path, MaxSize: mib, MaxAge: time.Hour, Keep: 1}, audit.Options{Log: slog.New(slog.DiscardHandler), Reg: prometheus.NewRegistry()})
	must(t, err)
	h.record.Audit = w
	must(t, w.While(context.Background(), func() error { fn(h); return nil }))
	text, err := os.ReadFile(path)
	must(t, err)
	for line := range strings.Lines(string(text)) {
		var r audit.Record
		must(t, json.Unmarshal([]byte(line), &r))
		out = append(out, r)
	}
	return out
}

// A connection beyond a caller's bound is closed without an answer by a frontend that
// does not count itself: it is recorded and counted.
func TestConnectionsBeyondTheBoundAreRecorded(t *testing.T) {
	out := records(t, func(h *Hub) {
		c := clusterOf(t, "c1")
		who := record.Party{Cluster: c, Frontend: ProtocolKonnectivity, Caller: "unix:c1/konnectivity"}
		path := filepath.Join(runtest.Dir(t), "k.sock")
		inner, err := net.Listen("unix", path)
		must(t, err)
		ln := h.front.metered(who, inner)
		b := h.clusters.add(c).accounts.Caller(who.Caller).Bounds()
		b.Sessions = 1
		h.clusters.add(c).accounts.Caller(who.Caller).Bound(b)

		first, err := net.Dial("unix", path)
		must(t, err)
		defer first.Close()
		served, err := ln.Accept()
		must(t, err)
		defer served.Close()
		second, err := net.Dial("unix", path)
		must(t, err)
		defer second.Close()
		done := make(chan error)
		go func() { _, err := ln.Accept(); done <- err }()
		if _, err := second.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the second connection reads %v", err)
		}
		ln.Close()
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		var m dto.Metric
		must(t, h.metrics.Refused.WithLabelValues("limit_reached").Write(&m))
		if n := m.GetCounter().GetValue(); n != 1 {
			t.Errorf("%v are counted", n)
		}
	})
	if len(out) != 1 || out[0].Kind != audit.KindRefusal || out[0].Code != "limit_reached" || out[0].Caller != "unix:c1/konnectivity" ||
		out[0].Frontend != ProtocolKonnectivity || out[0].Cluster != "c1" || out[0].Peer == nil || int(out[0].Peer.UID) != os.Getuid() {
		t.Errorf("%+v", out)
	}
}

// Metadata that cannot be read is recorded over the admin API as over CONNECT.
func TestMalformedMetadataIsRecorded(t *testing.T) {
	out := records(t, func(h *Hub) {
		r := httptest.NewRequest("GET", "/v1/clusters/c1/stream?target=10.0.0.1:80", nil)
		r.SetPathValue("cluster", "c1")
		r.Header.Set("Upgrade", "tombolo-stream")
		r.Header.Set("Tombolo-Metadata", "no pair")
		w := httptest.NewRecorder()
		h.api.apiStream(w, r)
		if w.Code != 400 || !strings.Contains(w.Body.String(), "metadata") {
			t.Errorf("it answers %d %s", w.Code, w.Body)
		}
	})
	if len(out) != 1 || out[0].Kind != audit.KindRefusal || out[0].Code != "request_malformed" || out[0].Caller != "operator" ||
		out[0].Frontend != "admin" || out[0].Cluster != "c1" {
		t.Errorf("%+v", out)
	}
}

// TestPings: routed mode may ask whether the hub is there, without a dial or a record; for others it is no CONNECT.
func TestPings(t *testing.T) {
	for frontend, want := range map[string]string{
		"route": "HTTP/1.1 200 OK\r\n", "connect-tls": "HTTP/1.1 405 method_not_allowed: method OPTIONS is not served here",
	} {
		out := records(t, func(h *Hub) {
			caller, conn := tcpPair(t)
			defer caller.Close()
			io.WriteString(caller, "OPTIONS * HTTP/1.1\r\nHost: hub\r\n\r\n")
			caller.CloseWrite()
			h.connect.serveConnect(t.Context(), conn, record.Party{Cluster: clusterOf(t, "c1"), Frontend: frontend, Caller: "x"}, nil)
			got, err := io.ReadAll(caller)
			if err != nil || !strings.HasPrefix(string(got), want) {
				t.Errorf("%s: %q, %v", frontend, got, err)
			}
		})
		if refused := frontend != "route"; (len(out) == 1) != refused {
			t.Errorf("%s: %+v", frontend, out)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
