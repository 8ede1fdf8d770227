// SPDX-License-Identifier: Apache-2.0

package system

import (
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
	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
)

// clientFiles writes what the library reads.
func (h *testHub) clientFiles(dir, cluster string) (serial string) {
	h.t.Helper()
	key, err := trust.NewKey()
	if err != nil {
		h.t.Fatal(err)
	}
	csr, err := trust.NewCSR(key)
	if err != nil {
		h.t.Fatal(err)
	}
	var out admin.Certificate
	h.call("POST", "/v1/certificates", admin.CertificateRequest{Role: "client", Cluster: cluster, Name: "app", CSR: string(csr)}, &out)
	text, err := trust.EncodeKey(key)
	if err != nil {
		h.t.Fatal(err)
	}
	plant(h.t, "the key of a client", string(text))
	for name, content := range map[string][]byte{"client.key": text, "client.crt": []byte(out.Certificate), "ca.crt": []byte(out.CA)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			h.t.Fatal(err)
		}
	}
	return out.Serial
}

func library(listen, dir string) *client.Dialer {
	return &client.Dialer{
		Hub: listen, Certificate: filepath.Join(dir, "client.crt"), Key: filepath.Join(dir, "client.key"), CA: filepath.Join(dir, "ca.crt"),
	}
}

// TestTheLibrary opens connections through a real hub, over both of its ways.
func TestTheLibrary(t *testing.T) {
	dir := runtest.Dir(t)
	file := filepath.Join(dir, "audit.jsonl")
	h, _ := pair(t, hubSpec{extra: fmt.Sprintf("audit: {path: %q}\n", file)}, agentSpec{})
	serial := h.clientFiles(dir, "c1")
	over := map[string]*client.Dialer{"tls": library(h.listen, dir), "socket": {Socket: h.socket("c1", hub.ProtocolConnect)}}
	for name, d := range over {
		t.Run(name, func(t *testing.T) {
			ctx := client.WithMetadata(runtest.Within(t), map[string]string{"ticket": name})
			conn, err := d.DialContext(client.WithTrace(ctx, parentOfTests, ""), "tcp", replyAfterEnd(t).Addr())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, "twelve bytes"); err != nil {
				t.Fatal(err)
			}
			if err := conn.(*client.Conn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(conn)
			if err != nil || len(got) == 0 {
				t.Errorf("the answer behind our end: %q, %v", got, err)
			}
			conn.Close()
			runtest.Eventually(t, "the record says what we said", func() bool {
				for _, r := range audited(t, file, audit.Filter{Code: "ok"}) {
					if r.Metadata.Get("ticket") == name && r.Traceparent == parentOfTests && (r.Serial == serial) == (name == "tls") {
						return true
					}
				}
				return false
			})

			conn, err = d.DialContext(runtest.Within(t), "tcp", runtest.Echo(t).Addr())
			if err != nil {
				t.Fatal(err)
			}
			conn.SetReadDeadline(time.Now().Add(-time.Second))
			var timeout net.Error
			if _, err := conn.Read(make([]byte, 1)); !errors.As(err, &timeout) || !timeout.Timeout() {
				t.Errorf("a deadline that has passed: %v", err)
			}
			conn.Close()

			var e *client.Error
			if _, err := d.DialContext(runtest.Within(t), "tcp", "169.254.169.254:80"); !errors.As(err, &e) || e.Code != "policy_denied" || e.Status != http.StatusForbidden {
				t.Errorf("%#v", err)
			}
			gone := runtest.Echo(t)
			gone.Stop()
			if _, err := d.DialContext(runtest.Within(t), "tcp", gone.Addr()); !errors.As(err, &e) || e.Code != "dial_refused" || e.Status != http.StatusBadGateway {
				t.Errorf("%#v", err)
			}
		})
	}
}

// TestTheLibraryReadsItsFilesAgain revokes the certificate of a running program and gives it another.
func TestTheLibraryReadsItsFilesAgain(t *testing.T) {
	dir := runtest.Dir(t)
	h, _ := pair(t, hubSpec{}, agentSpec{})
	serial := h.clientFiles(dir, "c1")
	d, target := library(h.listen, dir), runtest.Echo(t)
	dial := func() error {
		conn, err := d.DialContext(runtest.Within(t), "tcp", target.Addr())
		if err == nil {
			mustEcho(t, conn, "x")
			conn.Close()
		}
		return err
	}
	if err := dial(); err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile(d.Key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.Key, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := dial(); err != nil {
		t.Errorf("while a file is being written: %v", err)
	}
	if err := os.WriteFile(d.Key, kept, 0o600); err != nil {
		t.Fatal(err)
	}
	h.revoke("client", serial)
	var e *client.Error
	if err := dial(); !errors.As(err, &e) || e.Code != "certificate_revoked" || e.Status != http.StatusUnauthorized {
		t.Errorf("%#v", err)
	}
	h.clientFiles(dir, "c1")
	if err := dial(); err != nil {
		t.Errorf("with the new certificate: %v", err)
	}
	wrong := library(h.listen, dir)
	wrong.Cluster = "c2"
	if _, err := wrong.Dial("tcp", target.Addr()); !errors.As(err, &e) || e.Code != "certificate_invalid" {
		t.Errorf("a certificate for another cluster: %#v", err)
	}
	other := startHub(t, hubSpec{})
	foreign := library(other.listen, dir)
	if _, err := foreign.Dial("tcp", target.Addr()); !errors.As(err, &e) || e.Code != "ca_mismatch" {
		t.Errorf("a hub of another CA: %#v", err)
	}
}

// TestTheLibraryTellsACutFromAnEnd kills the agent under a connection.
func TestTheLibraryTellsACutFromAnEnd(t *testing.T) {
	dir := runtest.Dir(t)
	h, a := pair(t, hubSpec{}, agentSpec{})
	h.clientFiles(dir, "c1")
	for name, d := range map[string]*client.Dialer{"tls": library(h.listen, dir), "socket": {Socket: h.socket("c1", hub.ProtocolConnect)}} {
		conn, err := d.DialContext(runtest.Within(t), "tcp", runtest.Echo(t).Addr())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		mustEcho(t, closing(t, conn), "x")
		defer func() {
			conn.SetReadDeadline(time.Now().Add(runtest.Patience))
			if _, err := io.ReadAll(conn); err == nil {
				t.Errorf("%s: a cut looks like an end", name)
			}
		}()
	}
	a.stop()
}
