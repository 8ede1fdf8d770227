// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// TestKonnectivityServerWithAFile is the program with a policy: it refuses, says so to 'tombolo status', takes a changed
// file over and ends in order.
func TestKonnectivityServerWithAFile(t *testing.T) {
	dir := runtest.Dir(t)
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	policy := func(to string) string {
		return "apiVersion: tombolo.dev/v1alpha1\nkind: AccessPolicy\nrules:\n- {name: r, allow: [" + to + "]}\n"
	}
	config := func(more string) string {
		return fmt.Sprintf("apiVersion: tombolo.dev/v1alpha1\nkind: HubConfig\nrunDir: %s/run\nclusters: [{name: c1}]\n"+
			"policies: [%s]\naudit: {path: %s/audit.jsonl}\n%s", dir, filepath.Join(dir, "p.yaml"), dir, more)
	}
	write("p.yaml", policy("10.0.0.0/8"))
	file := write("k.yaml", config(""))
	host, _, _ := net.SplitHostPort(runtest.Address(1))
	args := []string{"konnectivity-server", "--tombolo-config=" + file, "--mode=http-connect", "--uds-name=" + filepath.Join(dir, "s"),
		"--server-port=0", "--cluster-cert=" + write("tls.crt", text("CERTIFICATE", der)),
		"--cluster-key=" + write("tls.key", text("PRIVATE KEY", keyDER)), "--agent-bind-address=" + host,
		"--health-bind-address=" + host, "--admin-bind-address=" + host}
	p := startProcess(t, args...)
	p.Says(t, "konnectivity server is up")
	asked := func(address string) string {
		t.Helper()
		conn, err := net.Dial("unix", filepath.Join(dir, "s"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(runtest.Patience))
		fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n", address)
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		return res.Status
	}
	if got := asked("10.0.0.1:1"); !strings.Contains(got, "No agent available") {
		t.Errorf("what is allowed: %s", got)
	}
	if got := asked("192.0.2.1:1"); !strings.HasPrefix(got, "403 policy_denied") {
		t.Errorf("what is denied: %s", got)
	}
	t.Setenv("TOMBOLO_ADMIN_SOCKET", filepath.Join(dir, "run/admin/hub.sock"))
	if out := must(t, "status", "c1"); !strings.Contains(out, "policy of 1 rules") || !strings.Contains(out, filepath.Join(dir, "s")) {
		t.Errorf("status:\n%s", out)
	}
	if out := must(t, "policy", "explain", "c1", "192.0.2.1:1", "--as", "unix:c1/connect"); !strings.Contains(out, "no rule allows") {
		t.Errorf("explain:\n%s", out)
	}
	write("k.yaml", config("limits: {caller: {dialsPerSecond: 7}}\n"))
	p.Process.Signal(syscall.SIGHUP)
	runtest.Eventually(t, "the limit is in force", func() bool {
		return strings.Contains(must(t, "status", "c1", "-o", "json"), `"bound": 7`)
	})
	write("k.yaml", config("listen: :1\n"))
	p.Process.Signal(syscall.SIGHUP)
	p.Says(t, "it has no meaning without a hub")
	p.Process.Signal(syscall.SIGTERM)
	if code := p.Exit(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	records, err := os.ReadFile(filepath.Join(dir, "audit.jsonl"))
	if err != nil || !strings.Contains(string(records), `"code":"policy_denied"`) || !strings.Contains(string(records), `"code":"no_agent"`) {
		t.Errorf("%v\n%s", err, records)
	}
	wantExit(t, tombolo(t, args...), 2, file+":7:9: listen: it has no meaning")
}
