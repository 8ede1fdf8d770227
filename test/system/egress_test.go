// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/client"
	"github.com/tombolo-io/tombolo/client/egress"
	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
)

// selectors are those of the three files that 'tombolo egress-config' writes.
func (h *testHub) selectors(dir string) map[string]*egress.Selector {
	h.t.Helper()
	out := map[string]*egress.Selector{}
	for name, connection := range map[string]string{
		"grpc-uds":    fmt.Sprintf("{proxyProtocol: GRPC, transport: {uds: {udsName: %q}}}", h.socket("c1", hub.ProtocolKonnectivity)),
		"connect-uds": fmt.Sprintf("{proxyProtocol: HTTPConnect, transport: {uds: {udsName: %q}}}", h.socket("c1", hub.ProtocolConnect)),
		"connect-tls": fmt.Sprintf("{proxyProtocol: HTTPConnect, transport: {tcp: {url: \"https://%s\", tlsConfig: {caBundle: %q, clientKey: %q, clientCert: %q}}}}",
			h.listen, filepath.Join(dir, "ca.crt"), filepath.Join(dir, "client.key"), filepath.Join(dir, "client.crt")),
	} {
		file := filepath.Join(dir, name+".yaml")
		text := "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n- name: Cluster\n  connection: " + connection + "\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			h.t.Fatal(err)
		}
		s, err := egress.Load(file)
		if err != nil {
			h.t.Fatalf("%s: %v", name, err)
		}
		out[name] = s
	}
	return out
}

// TestTheEgressLibrary dials through a real hub and agent in each of the ways of its files.
func TestTheEgressLibrary(t *testing.T) {
	dir := runtest.Dir(t)
	file := filepath.Join(dir, "audit.jsonl")
	h, _ := pair(t, hubSpec{extra: fmt.Sprintf("audit: {path: %q}\n", file)}, agentSpec{})
	serial := h.clientFiles(dir, "c1")
	for name, s := range h.selectors(dir) {
		t.Run(name, func(t *testing.T) {
			s.Header = map[string]string{"X-Request-Id": "7"}
			d, err := s.Dialer("CLUSTER")
			if err != nil {
				t.Fatal(err)
			}
			ctx := client.WithTrace(client.WithMetadata(runtest.Within(t), map[string]string{"ticket": name}), parentOfTests, "")
			conn, err := d.DialContext(ctx, "tcp", runtest.Echo(t).Addr())
			if err != nil {
				t.Fatal(err)
			}
			much := bytes.Repeat([]byte("0123456789abcdef"), 64<<10) // more than any window
			wrote := make(chan error, 1)
			go func() { _, err := conn.Write(much); wrote <- err }()
			got := make([]byte, len(much))
			if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, much) {
				t.Errorf("an echo of 1 MiB: %v", err)
			}
			if err := <-wrote; err != nil {
				t.Error(err)
			}
			conn.SetReadDeadline(time.Now().Add(-time.Second))
			var timeout net.Error
			if _, err := conn.Read(make([]byte, 1)); !errors.As(err, &timeout) || !timeout.Timeout() {
				t.Errorf("a deadline that has passed: %v", err)
			}
			conn.Close()
			runtest.Eventually(t, "the record says what we said", func() bool {
				for _, r := range audited(t, file, audit.Filter{Code: "ok"}) {
					if r.Metadata.Get("ticket") == name && r.Traceparent == parentOfTests && (r.Serial == serial) == (name == "connect-tls") {
						return true
					}
				}
				return false
			})
			whatIsRefused(t, d)
		})
	}
}

func whatIsRefused(t *testing.T, d *egress.Dialer) {
	t.Helper()
	var e *client.Error
	if _, err := d.DialContext(runtest.Within(t), "tcp", "169.254.169.254:80"); !errors.As(err, &e) || e.Code != "policy_denied" || !e.Asked {
		t.Errorf("%#v", err)
	}
	gone := runtest.Echo(t)
	gone.Stop()
	if _, err := d.DialContext(runtest.Within(t), "tcp", gone.Addr()); !errors.As(err, &e) || e.Code != "dial_refused" || e.Timeout() {
		t.Errorf("%#v", err)
	}
	bad := client.WithMetadata(runtest.Within(t), map[string]string{"a b": "c"})
	if _, err := d.DialContext(bad, "tcp", gone.Addr()); !errors.As(err, &e) || e.Code != "request_malformed" || e.Asked {
		t.Errorf("%#v", err)
	}
	if _, err := d.DialContext(runtest.Within(t), "udp", gone.Addr()); !errors.As(err, &e) || e.Code != "usage" {
		t.Errorf("%#v", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.DialContext(over, "tcp", gone.Addr()); !errors.As(err, &e) || e.Code != "dial_canceled" || !errors.Is(err, context.Canceled) {
		t.Errorf("%#v", err)
	}
}

// TestAProgramsTransport: an http.Transport with a dialer of each way fetches pages that need several connections.
func TestAProgramsTransport(t *testing.T) {
	dir := runtest.Dir(t)
	h, _ := pair(t, hubSpec{}, agentSpec{})
	h.clientFiles(dir, "c1")
	page := bytes.Repeat([]byte("page"), 100<<10)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(page) })}
	served := make(chan error, 1)
	go func() { served <- web.Serve(ln) }()
	t.Cleanup(func() { web.Close(); <-served })
	for name, s := range h.selectors(dir) {
		d, err := s.Dialer("cluster")
		if err != nil {
			t.Fatal(err)
		}
		transport := &http.Transport{DialContext: d.DialContext}
		results := make(chan error, 8)
		for range cap(results) {
			go func() {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+ln.Addr().String()+"/", nil)
				if err != nil {
					results <- err
					return
				}
				res, err := transport.RoundTrip(req)
				if err != nil {
					results <- err
					return
				}
				got, err := io.ReadAll(res.Body)
				res.Body.Close()
				if err == nil && !bytes.Equal(got, page) {
					err = errors.New("another page came")
				}
				results <- err
			}()
		}
		for range cap(results) {
			if err := <-results; err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		transport.CloseIdleConnections()
	}
}

// TestTheEgressLibraryTellsACutFromAnEnd stops the agent under a connection. A unix socket of HTTPConnect does not tell.
func TestTheEgressLibraryTellsACutFromAnEnd(t *testing.T) {
	dir := runtest.Dir(t)
	h, a := pair(t, hubSpec{}, agentSpec{})
	h.clientFiles(dir, "c1")
	selectors := h.selectors(dir)
	for _, name := range []string{"grpc-uds", "connect-tls"} {
		d, err := selectors[name].Dialer("cluster")
		if err != nil {
			t.Fatal(err)
		}
		conn, err := d.DialContext(runtest.Within(t), "tcp", runtest.Echo(t).Addr())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		mustEcho(t, closing(t, conn), "x")
		defer func() {
			conn.SetReadDeadline(time.Now().Add(runtest.Patience))
			if _, err := io.ReadAll(conn); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: a cut looks like an end, or like nothing: %v", name, err)
			}
		}()
	}
	a.stop()
}
