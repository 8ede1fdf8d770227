// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/discovery"
	store "github.com/tombolo-io/tombolo/internal/discovery/etcd"
)

// authority is a CA in a folder.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.cert, a.key = a.issue(t, "ca", true)
	return a
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name+".pem") }

// issue makes a certificate for 127.0.0.1 and for servers at addresses.
func (a *authority) issue(t *testing.T, name string, ca bool, at ...string) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	names := []net.IP{net.IPv4(127, 0, 0, 1)}
	for _, s := range at {
		ap, err := netip.ParseAddrPort(s)
		must(t, err)
		names = append(names, ap.Addr().AsSlice())
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	leaf := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: ca, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IPAddresses: names,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	parent, signer := leaf, key
	if !ca {
		parent, signer = a.cert, a.key
	}
	raw, err := x509.CreateCertificate(rand.Reader, leaf, parent, key.Public(), signer)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	must(t, os.WriteFile(a.file(name), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), 0o600))
	must(t, os.WriteFile(a.file(name+"-key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	cert, err := x509.ParseCertificate(raw)
	must(t, err)
	return cert, key
}

// server issues the certificate of an etcd, and starts that.
func (a *authority) server(t *testing.T) *Server {
	t.Helper()
	address := runtest.Address(2379)
	a.issue(t, "server", false, address)
	return Start(t, Options{CA: a.file("ca"), Cert: a.file("server"), Key: a.file("server-key"), Address: address})
}

func TestEtcdOverTLS(t *testing.T) {
	t.Parallel()
	ours, others := newAuthority(t), newAuthority(t)
	ours.issue(t, "client", false)
	others.issue(t, "client", false)
	server := ours.server(t)
	good := store.Config{Endpoints: []string{server.URL}, Prefix: prefix, Times: patient(),
		CAFile: ours.file("ca"), CertFile: ours.file("client"), KeyFile: ours.file("client-key")}
	open := func(c store.Config) error {
		s, err := store.Open(t.Context(), c, discovery.NewBoard(discovery.Bounds{}))
		if err != nil {
			return err
		}
		defer s.Close()
		return s.Update(t.Context(), at("1"), says("x", time.Minute))
	}
	runtest.Eventually(t, "etcd answers", func() bool { return open(good) == nil })
	foreign, unknown, none := good, good, good
	foreign.CAFile = others.file("ca")
	unknown.CertFile, unknown.KeyFile = others.file("client"), others.file("client-key")
	none.CertFile, none.KeyFile = "", ""
	for name, c := range map[string]store.Config{"another CA": foreign, "a certificate of another CA": unknown, "no certificate": none} {
		if err := open(c); !fault.Has(err, fault.CodeStoreAway) || fault.From(err).Next == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEtcdWithPasswords(t *testing.T) {
	t.Parallel()
	// In clear: the store refuses that, whoever etcd is; so the password goes over TLS.
	ours := newAuthority(t)
	ours.issue(t, "client", false)
	server := ours.server(t)
	wrong := filepath.Join(t.TempDir(), "password")
	must(t, os.WriteFile(wrong, []byte("wrong\n"), 0o600))
	c := store.Config{Endpoints: []string{server.URL}, Prefix: prefix, Times: patient(),
		Username: "discovery", PasswordFile: wrong,
		CAFile: ours.file("ca"), CertFile: ours.file("client"), KeyFile: ours.file("client-key")}
	server.allow(t, c)
	_, err := store.Open(t.Context(), c, discovery.NewBoard(discovery.Bounds{}))
	if !fault.Has(err, fault.CodeStoreAway) {
		t.Fatalf("a wrong password: %v", err)
	}
	must(t, os.WriteFile(wrong, []byte("right\n"), 0o600))
	s, err := store.Open(t.Context(), c, discovery.NewBoard(discovery.Bounds{}))
	must(t, err)
	defer s.Close()
	must(t, s.Update(t.Context(), at("1"), says("x", time.Minute)))
	must(t, s.Delete(t.Context(), at("1")))
	c.Prefix = "/elsewhere"
	if _, err := store.Open(t.Context(), c, discovery.NewBoard(discovery.Bounds{})); !fault.Has(err, fault.CodeStoreAway) {
		t.Errorf("a prefix that the user may not read: %v", err)
	}
}

// allow turns passwords on, with a user that may use the prefix.
func (s *Server) allow(t *testing.T, c store.Config) {
	t.Helper()
	client := s.secure(t, c)
	for _, role := range []string{"root", "member"} {
		_, err := client.RoleAdd(t.Context(), role)
		must(t, err)
	}
	_, err := client.RoleGrantPermission(t.Context(), "member", prefix+"/", prefix+"0", 2) // read and write
	must(t, err)
	for user, role := range map[string]string{"root": "root", "discovery": "member"} {
		_, err = client.UserAdd(t.Context(), user, "right")
		must(t, err)
		_, err = client.UserGrantRole(t.Context(), user, role)
		must(t, err)
	}
	_, err = client.AuthEnable(t.Context())
	must(t, err)
}

func (s *Server) secure(t *testing.T, c store.Config) *clientv3.Client {
	t.Helper()
	return s.as(t, c, "", "")
}

// root is a client that may do everything, once passwords are on.
func (s *Server) root(t *testing.T, c store.Config) *clientv3.Client {
	t.Helper()
	return s.as(t, c, "root", "right")
}

func (s *Server) as(t *testing.T, c store.Config, user, password string) *clientv3.Client {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	must(t, err)
	text, err := os.ReadFile(c.CAFile)
	must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{s.URL}, Logger: zap.NewNop(), Username: user, Password: password,
		TLS: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}})
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}
