// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/tombolo-io/tombolo/api/v1alpha1"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// authority is a CA that signs for a service.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now(), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{cert, key}
}

func (a authority) sign(t *testing.T, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now(), NotAfter: time.Now().Add(24 * time.Hour), DNSNames: []string{name}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: key, Leaf: leaf}
}

func pinOf(c *x509.Certificate) string {
	return trust.Pin(c)
}

// TestServicesProveThemselves by a CA or a pin, and nobody else is believed.
func TestServicesProveThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret := newWorld(t), newSecret(t)
		ca, other := newAuthority(t), newAuthority(t)
		cert := ca.sign(t, "one")
		ln := runtest.ListenMemory()
		w.at["one:443"], w.at["two:443"] = ln, ln // the same, under a name that it has not
		srv := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&cert)))
		newNativeFake(t).register(srv)
		done := make(chan struct{})
		go func() { defer close(done); srv.Serve(ln) }()
		defer func() { srv.Stop(); <-done }()
		file := func(a authority) string {
			path := filepath.Join(t.TempDir(), "ca.crt")
			if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}), 0o600); err != nil {
				t.Fatal(err)
			}
			return path
		}
		for name, tc := range map[string]struct {
			s    v1alpha1.MeshService
			good bool
		}{
			"the CA":                   {v1alpha1.MeshService{URL: "https://one", CAFile: file(ca)}, true},
			"another CA":               {v1alpha1.MeshService{URL: "https://one", CAFile: file(other)}, false},
			"the system's CAs":         {v1alpha1.MeshService{URL: "https://one"}, false},
			"another name":             {v1alpha1.MeshService{URL: "https://two", CAFile: file(ca)}, false},
			"its own key":              {v1alpha1.MeshService{URL: "https://one", Pin: pinOf(cert.Leaf)}, true},
			"its own key, any name":    {v1alpha1.MeshService{URL: "https://two", Pin: pinOf(cert.Leaf)}, true},
			"the CA's key":             {v1alpha1.MeshService{URL: "https://one", Pin: pinOf(ca.cert)}, true},
			"the CA's key, other name": {v1alpha1.MeshService{URL: "https://two", Pin: pinOf(ca.cert)}, false},
			"another key":              {v1alpha1.MeshService{URL: "https://one", Pin: pinOf(other.cert)}, false},
			"no TLS at all":            {v1alpha1.MeshService{URL: "http://one:443", Insecure: true}, false},
		} {
			tc.s.Proxy = "none"
			a := w.start(setup{name: "a", secrets: []string{secret}, services: []v1alpha1.MeshService{tc.s}})
			time.Sleep(settle)
			synctest.Wait()
			if s := a.Status()[0]; (s.State == StateAttending) != tc.good {
				t.Errorf("%s: %+v", name, s)
			}
			a.stop()
		}
	})
}

// proxy is an HTTP proxy that leads anywhere in the world.
type proxy struct {
	w     *world
	mu    sync.Mutex
	asked []string // target and credentials
	code  string   // in place of 200
}

func (p *proxy) serve(ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		go p.lead(conn)
	}
}

func (p *proxy) lead(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	q, err := http.ReadRequest(r)
	if err != nil || q.Method != http.MethodConnect {
		io.WriteString(conn, "HTTP/1.1 400 Bad\r\n\r\n")
		return
	}
	p.mu.Lock()
	p.asked = append(p.asked, q.Host+" "+q.Header.Get("Proxy-Authorization"))
	code := p.code
	p.mu.Unlock()
	if code != "" {
		io.WriteString(conn, code)
		return
	}
	to, err := p.w.dial(context.Background(), "tcp", q.Host)
	if err != nil {
		io.WriteString(conn, "HTTP/1.1 502 Bad Gateway\r\n\r\n")
		return
	}
	defer to.Close()
	io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
	done := make(chan struct{})
	go func() { defer close(done); io.Copy(to, r); to.Close() }()
	io.Copy(conn, to)
	conn.Close()
	<-done
}

// TestProxies: with credentials, which are shown nowhere, and with answers that do not lead on.
func TestProxies(t *testing.T) {
	for name, tc := range map[string]struct {
		code string
		good bool
	}{
		"leads":               {"", true},
		"wants credentials":   {"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n", false},
		"is no proxy":         {"SSH-2.0-OpenSSH\r\n", false},
		"answers without end": {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20), false},
		"closes":              {"\x00", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, secret := newWorld(t), newSecret(t)
				svc := newNativeFake(t)
				defer w.serve("one:443", svc.register)()
				p := &proxy{w: w, code: tc.code}
				ln := runtest.ListenMemory()
				w.at["proxy:3128"] = ln
				defer ln.Close()
				go p.serve(ln)
				file := filepath.Join(t.TempDir(), "proxy")
				if err := os.WriteFile(file, []byte("http://user:pass%20word@proxy:3128\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				a := w.start(setup{name: "a", secrets: []string{secret}, services: []v1alpha1.MeshService{{URL: "http://one:443", Insecure: true, ProxyFile: file}}})
				time.Sleep(settle)
				synctest.Wait()
				s := a.Status()[0]
				if (s.State == StateAttending) != tc.good || strings.Contains(s.Reason, "pass") || strings.Contains(s.Reason, "user") {
					t.Errorf("the status is %+v", s)
				}
				p.mu.Lock()
				if p.asked[0] != "one:443 Basic dXNlcjpwYXNzIHdvcmQ=" {
					t.Errorf("the proxy was asked for %q", p.asked[0])
				}
				p.mu.Unlock()
				a.stop()
			})
		})
	}
}

// TestTheProxyOfTheEnvironment is taken unless the configuration says otherwise.
func TestTheProxyOfTheEnvironment(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://user:word@proxy:1")
	t.Setenv("NO_PROXY", "inside.example")
	for _, tc := range []struct{ url, proxy, want string }{
		{"https://one", "", "proxy:1"},
		{"https://one", "environment", "proxy:1"},
		{"https://one:8443", "", "proxy:1"},
		{"https://inside.example", "", ""},
		{"https://one", "none", ""},
		{"https://one", "https://other:9", "other:9"},
	} {
		v := validator{add: func(path, format string, args ...any) { t.Errorf(path+": "+format, args...) }}
		s := v.service("x", v1alpha1.MeshService{URL: tc.url, Proxy: tc.proxy})
		got := ""
		if s.Proxy != nil {
			u, err := url.Parse(s.URL())
			if err != nil {
				t.Fatal(err)
			}
			if via, err := s.Proxy(u); err != nil {
				t.Error(err)
			} else if via != nil {
				got = via.Host
			}
		}
		if got != tc.want {
			t.Errorf("%s by %q: through %q, want %q", tc.url, tc.proxy, got, tc.want)
		}
	}
}

func TestParsePlace(t *testing.T) {
	for text, want := range map[string]string{
		"https://one":               "https://one:443",
		"https://one/":              "https://one:443",
		"http://one":                "http://one:80",
		"https://[2001:db8::1]":     "https://[2001:db8::1]:443",
		"https://[2001:db8::1]:99":  "https://[2001:db8::1]:99",
		"one:443":                   "",
		"https://":                  "",
		"https://:443":              "",
		"https://one:0":             "",
		"https://one:65536":         "",
		"https://one:https":         "",
		"https://one/path":          "",
		"https://one?x":             "",
		"https://one#x":             "",
		"https://user:password@one": "",
		"ftp://one":                 "",
		"":                          "",
	} {
		got, err := parsePlace(text)
		if (err == nil) != (want != "") || err == nil && got.String() != want {
			t.Errorf("%q: %v, %v; want %q", text, got, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "password") {
			t.Errorf("%v shows a password", err)
		}
	}
}

func FuzzPlace(f *testing.F) {
	for _, s := range []string{"https://one", "http://one:80/", "https://[::1]:443", "one", "https://a@b", "\x00", "https://[fe80::1%25eth0]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parsePlace(text)
		if err != nil {
			return
		}
		if again, err := parsePlace(p.String()); err != nil || again != p {
			t.Errorf("%q is %v, and that %v, %v", text, p, again, err)
		}
		if to, err := follow(place{secure: true, host: "x", address: "x:443"}, text, 0); err == nil && !to.secure {
			t.Errorf("%q leads out of TLS", text)
		}
	})
}
