// SPDX-License-Identifier: Apache-2.0

// Package otlptest is an OpenTelemetry collector for tests: it takes OTLP over
// HTTPS, and can be slow, away or unwilling. It judges nothing.
package otlptest

import (
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Collector keeps what it was sent.
type Collector struct {
	URL    string
	CAFile string

	port port

	mu      sync.Mutex
	status  int
	answer  []byte
	after   string // Retry-After
	times   []time.Time
	hang    chan struct{} // requests wait for it, if it is there
	waiting int
	spans   []*tracepb.Span
	from    []*tracepb.ResourceSpans
	logs    []*logspb.LogRecord
	headers []http.Header
}

// New starts one.
func New(t testing.TB) *Collector {
	c := &Collector{status: http.StatusOK}
	server := httptest.NewUnstartedServer(c)
	c.port.Listener, c.port.open = server.Listener, map[net.Conn]bool{}
	server.Listener = &c.port
	server.StartTLS()
	c.URL = server.URL
	c.CAFile = filepath.Join(t.TempDir(), "collector-ca.crt")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(c.CAFile, text, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Release()
		server.CloseClientConnections()
		server.Close()
	})
	return c
}

// Stop makes it go away; connections are cut, and new ones are as soon as they are there.
func (c *Collector) Stop() { c.port.stop() }

// Return brings it back at the same address.
func (c *Collector) Return() { c.port.back() }

// Answer sets the status and the body of the answers from now on.
func (c *Collector) Answer(status int, body []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status, c.answer = status, body
}

// Later makes the answers ask for a pause, as Retry-After says it; empty: for none.
func (c *Collector) Later(after string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.after = after
}

// Times are when requests were answered.
func (c *Collector) Times() []time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.times)
}

// Hang makes requests wait until Release.
func (c *Collector) Hang() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hang = make(chan struct{})
}

// Release ends Hang.
func (c *Collector) Release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hang != nil {
		close(c.hang)
		c.hang = nil
	}
}

// Waiting says how many requests have waited, or do.
func (c *Collector) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting
}

// Spans are those that it took.
func (c *Collector) Spans() []*tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// Resources are what the spans came in.
func (c *Collector) Resources() []*tracepb.ResourceSpans {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.from)
}

// Logs are the log records that it took.
func (c *Collector) Logs() []*logspb.LogRecord {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.logs)
}

// Headers are those of all requests.
func (c *Collector) Headers() []http.Header {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.headers)
}

// ServeHTTP takes one request.
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	c.mu.Lock()
	hang := c.hang
	if hang != nil {
		c.waiting++
	}
	c.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-r.Context().Done():
			return
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.headers = append(c.headers, r.Header.Clone())
	c.times = append(c.times, time.Now())
	if c.after != "" {
		w.Header().Set("Retry-After", c.after)
	}
	if c.status/100 == 2 && !c.take(r, body) {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	w.WriteHeader(c.status)
	w.Write(c.answer)
}

func (c *Collector) take(r *http.Request, body []byte) bool {
	if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/x-protobuf" {
		return false
	}
	switch r.URL.Path {
	case "/v1/traces":
		var m tracepb.TracesData
		if proto.Unmarshal(body, &m) != nil {
			return false
		}
		for _, rs := range m.ResourceSpans {
			c.from = append(c.from, rs)
			for _, s := range rs.ScopeSpans {
				c.spans = append(c.spans, s.Spans...)
			}
		}
		return true
	case "/v1/logs":
		var m logspb.LogsData
		if proto.Unmarshal(body, &m) != nil {
			return false
		}
		for _, rl := range m.ResourceLogs {
			for _, s := range rl.ScopeLogs {
				c.logs = append(c.logs, s.LogRecords...)
			}
		}
		return true
	}
	return false
}
