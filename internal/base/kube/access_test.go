// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// kubeletConf is what kubeadm writes for kubelet, with fields that we do not know.
const kubeletConf = `apiVersion: v1
kind: Config
preferences: {}
current-context: default
contexts:
- name: other
  context: {cluster: nowhere, user: nobody}
- name: default
  context: {cluster: kubernetes, namespace: default, user: system:node:n1}
clusters:
- name: kubernetes
  cluster:
    certificate-authority-data: QUJD
    server: https://192.0.2.1:6443
    disable-compression: true
users:
- name: system:node:n1
  user:
    client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem
    client-key: kubelet-client-current.pem
`

func TestReadKubeconfig(t *testing.T) {
	a, err := ReadKubeconfig("/etc/kubernetes/kubelet.conf", []byte(kubeletConf))
	if err != nil {
		t.Fatal(err)
	}
	if a.Server.String() != "https://192.0.2.1:6443" || string(a.CA.data) != "ABC" || a.Cert.file != "/var/lib/kubelet/pki/kubelet-client-current.pem" ||
		a.Key.file != "/etc/kubernetes/kubelet-client-current.pem" || !a.Token.empty() || a.Proxy != nil {
		t.Errorf("%+v", a)
	}
	const secret = "hush-hush"
	for what, change := range map[string][2]string{
		"current-context":            {"current-context: default", "current-context: gone"},
		"name a cluster":             {"cluster: kubernetes,", "cluster: gone,"},
		"does not name a cluster":    {"user: system:node:n1}", "user: gone}"},
		"is not the URL":             {"https://192.0.2.1:6443", "192.0.2.1:6443"},
		"https is needed":            {"https://192.0.2.1:6443", "http://192.0.2.1:6443"},
		"server is not the URL":      {"https://192.0.2.1:6443", "https://" + secret + "@192.0.2.1:6443"},
		"not base64":                 {"QUJD", `"@` + secret + `"`},
		"trusted":                    {"disable-compression", "insecure-skip-tls-verify"},
		"no other program":           {"client-key: kubelet-client-current.pem", "exec: {command: sh}"},
		"belong together":            {"client-key: kubelet-client-current.pem", "{}"},
		"neither a client":           {"client-key: kubelet-client-current.pem", "token: ''"},
		"username or as":             {"client-key: kubelet-client-current.pem", "username: a\n    password: " + secret},
		"proxy-url begins with ftp:": {"disable-compression: true", "proxy-url: ftp://proxy"},
		"in YAML":                    {"token", "token"},
	} {
		text := strings.Replace(kubeletConf, change[0], change[1], 1)
		switch what {
		case "belong together":
			text = strings.Replace(kubeletConf, "    client-key: kubelet-client-current.pem\n", "", 1)
		case "neither a client":
			text = kubeletConf[:strings.Index(kubeletConf, "    client-certificate")] + "    token: ''\n"
		case "in YAML":
			text = "users: [{name: [" + secret
		}
		_, err := ReadKubeconfig("f", []byte(text))
		if !fault.Has(err, fault.CodeConfig) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
		if strings.Contains(fmt.Sprint(err), secret) {
			t.Errorf("%s: the secret is in %v", what, err)
		}
	}
}

func TestLoad(t *testing.T) {
	env := map[string]string{}
	getenv := func(k string) string { return env[k] }
	if _, err := Load("", getenv); !fault.Has(err, fault.CodeConfig) {
		t.Errorf("no pod and no file: %v", err)
	}
	env["KUBERNETES_SERVICE_HOST"], env["KUBERNETES_SERVICE_PORT"] = "2001:db8::1", "443"
	if a, err := Load("", getenv); err != nil || a.Server.String() != "https://[2001:db8::1]:443" || a.Token.file == "" || a.CA.file == "" {
		t.Errorf("%+v, %v", a, err)
	}
	file := filepath.Join(t.TempDir(), "f")
	if _, err := Load(file, getenv); !fault.Has(err, fault.CodeConfig) {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile(file, make([]byte, kubeConfigFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(file, getenv); !fault.Has(err, fault.CodeConfig) || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("a large file: %v", err)
	}
}

// issue writes a self-made certificate for a name, and its key, into one file.
func issue(t *testing.T, file, name string) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})...)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// TestClientCertificate: kubelet's certificate is shown, and the renewed one once the old one is refused; a
// server of another CA gets no request.
func TestClientCertificate(t *testing.T) {
	var good, seen string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if seen = r.TLS.PeerCertificates[0].DNSNames[0]; seen != good {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, "{}")
	}))
	server.EnableHTTP2 = true
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo) // refused handshakes are what is tested
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	defer server.Close()
	dir := t.TempDir()
	pair := filepath.Join(dir, "kubelet-client-current.pem")
	issue(t, pair, "old")
	ca := filepath.Join(dir, "ca.crt")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("https://192.0.2.1:6443", server.URL, "certificate-authority-data: QUJD", "certificate-authority: ca.crt",
		"/var/lib/kubelet/pki/", "").Replace(kubeletConf)
	a, err := ReadKubeconfig(filepath.Join(dir, "kubelet.conf"), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	c := NewClient(a, nil)
	defer c.Close()
	ask := func() error { return c.ask(t.Context(), call{method: http.MethodGet, path: "/x"}, nil) }
	for _, name := range []string{"old", "new"} {
		if good = name; name == "new" {
			issue(t, pair, "new")
			if err := ask(); !fault.Has(err, fault.CodeKubeDenied) || seen != "old" {
				t.Errorf("on the connection of the old certificate: %q, %v", seen, err)
			}
		}
		if err := ask(); err != nil || seen != name {
			t.Errorf("%s: %q, %v", name, seen, err)
		}
	}

	seen = ""
	issue(t, ca, "another")
	c.Close()
	if err := ask(); !fault.Has(err, fault.CodeCAMismatch) || seen != "" {
		t.Errorf("a server of another CA: %q, %v", seen, err)
	}
	for what, spoil := range map[string]func() error{
		"no certificate": func() error { return os.WriteFile(ca, []byte("x"), 0o600) },
		"ca.crt":         func() error { return os.Remove(ca) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		c.Close()
		if err := ask(); !fault.Has(err, fault.CodeKubeAway) || !strings.Contains(err.Error(), "CA") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// FuzzReadKubeconfig: what is taken has a server over TLS and something to prove who we are.
func FuzzReadKubeconfig(f *testing.F) {
	f.Add([]byte(kubeletConf))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := ReadKubeconfig("f", data)
		if err != nil {
			if !fault.Has(err, fault.CodeConfig) {
				t.Errorf("without its code: %v", err)
			}
			return
		}
		if a.Server.Scheme != "https" || a.Server.Host == "" || a.Server.User != nil || a.Cert.empty() != a.Key.empty() || a.Cert.empty() && a.Token.empty() {
			t.Errorf("%+v", a)
		}
	})
}
