// SPDX-License-Identifier: Apache-2.0

//go:build kube

package kube_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/client/egress"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/test/kube/tools"
)

// taken is what kube-apiserver takes of a file.
type taken struct {
	Error      string
	Selections map[string][3]string // protocol, transport, address
}

// readByKubernetes has kube-apiserver's own code read files.
func readByKubernetes(t *testing.T, files []string) []taken {
	t.Helper()
	repo, err := tools.Repo()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "egress")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-mod=readonly", "-o", program, "./egress")
	build.Dir = filepath.Join(repo, "test/kube/tools/v"+tools.Default)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), program, files...).Output()
	if err != nil {
		t.Fatal(err)
	}
	all := make([]taken, len(files))
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for i := range all {
		if err := dec.Decode(&all[i]); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// observed is how the library would dial a network of a file.
func observed(t *testing.T, s *egress.Selector, network string) (protocol, transport string) {
	t.Helper()
	stop := errors.New("seen")
	s.Observe = func(ctx context.Context, d egress.Dial) (context.Context, func(egress.Stage, error)) {
		protocol, transport = d.Protocol, d.Transport
		ctx, cancel := context.WithCancelCause(ctx)
		cancel(stop)
		return ctx, func(egress.Stage, error) {}
	}
	d, err := s.Dialer(network)
	if err != nil {
		t.Fatal(err)
	}
	if conn, err := d.DialContext(t.Context(), "tcp", "192.0.2.1:1"); err == nil {
		conn.Close()
	}
	return protocol, transport
}

// TestEgressFiles: the library takes the files that kube-apiserver takes, and dials by them in the same way. Where it
// does not, the file could not be used by kube-apiserver either, or the library says more.
func TestEgressFiles(t *testing.T) {
	dir := t.TempDir()
	certificate, key := selfSigned(t, dir)
	connections := map[string]string{ // to why the library alone refuses or takes it
		"{proxyProtocol: Direct}":                     "",
		"{proxyProtocol: Direct, transport: {}}":      "",
		"{proxyProtocol: direct}":                     "",
		"{}":                                          "",
		"{proxyProtocol: GRPC}":                       "",
		"{proxyProtocol: GRPC, transport: {}}":        "",
		"{proxyProtocol: GRPC, transport: {uds: {}}}": "",
		"{proxyProtocol: GRPC, transport: {uds: {udsName: /run/k.sock}}}":                            "",
		"{proxyProtocol: GRPC, transport: {tcp: {url: 'https://a:1'}}}":                              "",
		"{proxyProtocol: GRPC, transport: {uds: {udsName: /run/k.sock}, tcp: {url: x}}}":             "kube-apiserver ignores tcp",
		"{proxyProtocol: GRPC, transport: {uds: {udsName: /run/k.sock, mode: 1}}}":                   "",
		"{proxyProtocol: GRPC, proxyProtocol: GRPC, transport: {uds: {udsName: /run/k.sock}}}":       "",
		"{proxyProtocol: GRPC, transport: {uds: {udsName: 1}}}":                                      "",
		"{proxyProtocol: HTTPConnect}":                                                               "",
		"{proxyProtocol: HTTPConnect, transport: {uds: {udsName: /run/c.sock}}}":                     "",
		"{proxyProtocol: HTTPConnect, transport: {uds: {udsName: /run/c.sock}, tcp: {}}}":            "",
		"{proxyProtocol: HTTPConnect, transport: {tcp: {url: 'http://a:1', tlsConfig: {}}}}":         "",
		"{proxyProtocol: HTTPConnect, transport: {tcp: {url: 'https://a:1'}}}":                       "",
		"{proxyProtocol: HTTPConnect, transport: {tcp: {url: 'a:1', tlsConfig: CERTIFIED}}}":         "",
		"{proxyProtocol: HTTPConnect, transport: {tcp: {url: 'https://a:1', tlsConfig: NOKEY}}}":     "",
		"{proxyProtocol: HTTPConnect, transport: {tcp: {url: 'https://a:1', tlsConfig: NOCA}}}":      "",
		"{proxyProtocol: HTTPConnect, transport: {tcp: {url: 'https://a:1', tlsConfig: CERTIFIED}}}": "",
		"{proxyProtocol: HTTPConnect, transport: {tcp: {url: 'https://a', tlsConfig: CERTIFIED}}}":   "kube-apiserver takes it, and fails each dial",
	}
	var files, why []string
	write := func(text, reason string) {
		file := filepath.Join(dir, fmt.Sprintf("%d.yaml", len(files)))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		files, why = append(files, file), append(why, reason)
	}
	const head = "apiVersion: apiserver.k8s.io/VERSION\nkind: EgressSelectorConfiguration\n"
	for connection, reason := range connections {
		for _, c := range []struct{ word, caBundle, key string }{{"CERTIFIED", certificate, key}, {"NOKEY", certificate, ""}, {"NOCA", "", key}} {
			connection = strings.ReplaceAll(connection, c.word, fmt.Sprintf("{caBundle: %q, clientCert: %q, clientKey: %q}", c.caBundle, certificate, c.key))
		}
		for _, version := range []string{"v1alpha1", "v1beta1"} {
			write(strings.Replace(head, "VERSION", version, 1)+"egressSelections:\n- {name: Cluster, connection: "+connection+"}\n", reason)
		}
	}
	beta := strings.Replace(head, "VERSION", "v1beta1", 1)
	direct := func(names ...string) string {
		out := beta + "egressSelections:\n"
		for _, n := range names {
			out += "- {name: " + n + ", connection: {proxyProtocol: Direct}}\n"
		}
		return out
	}
	write(beta, "")
	write(beta+"egressSelections: []\n", "")
	write(beta+"more: 1\n", "")
	write(strings.Replace(head, "VERSION", "v1", 1), "")
	write(strings.Replace(beta, "Egress", "Other", 1), "")
	write(direct("master", "etcd", "cluster"), "")
	write(direct("ControlPlane", "CLUSTER"), "")
	write(direct("MASTER"), "kube-apiserver knows master in small letters alone")
	write(direct("master", "controlplane"), "")
	write(direct("node"), "")
	write(direct("''"), "")
	for i, want := range readByKubernetes(t, files) {
		text, err := os.ReadFile(files[i])
		if err != nil {
			t.Fatal(err)
		}
		s, err := egress.Load(files[i])
		if (err == nil) != (want.Error == "") {
			if why[i] == "" {
				t.Errorf("%s\nkube-apiserver: %q, the library: %v", text, want.Error, err)
			}
			continue
		}
		if why[i] != "" {
			t.Errorf("%s\nboth agree, and should not: %s", text, why[i])
		}
		for network, w := range want.Selections {
			protocol, transport := observed(t, s, network)
			known := map[string]string{"Direct": "direct", "GRPC": "grpc", "HTTPConnect": "http_connect"}
			if known[w[0]] != protocol || w[1] != transport && protocol != "direct" {
				t.Errorf("%s\nkube-apiserver: %s %v, the library: %s %s", text, network, w, protocol, transport)
			}
		}
	}
}

// selfSigned writes a certificate and its key.
func selfSigned(t *testing.T, dir string) (certificate, key string) {
	t.Helper()
	pair := runtest.Certificate(t)
	certificate, key = filepath.Join(dir, "a.crt"), filepath.Join(dir, "a.key")
	writePEM(t, certificate, "CERTIFICATE", pair.Certificate[0])
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, key, "PRIVATE KEY", der)
	return certificate, key
}

func writePEM(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
