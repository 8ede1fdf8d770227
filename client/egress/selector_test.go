// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/tombolo-io/tombolo/client"
	"github.com/tombolo-io/tombolo/client/egress"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// certified writes a certificate that signs for itself, its key, and itself as the CA.
func certified(t *testing.T, dir, name string) (cert tls.Certificate, pool *x509.CertPool) {
	t.Helper()
	key, err1 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err2 := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	private, err3 := x509.MarshalPKCS8PrivateKey(key)
	leaf, err4 := x509.ParseCertificate(der)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	err5 := os.WriteFile(filepath.Join(dir, name+".crt"), append([]byte("# of "+name+"\n"), text...), 0o600)
	err6 := os.WriteFile(filepath.Join(dir, name+".key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600)
	if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, pool
}

// TestGRPCOverTLS: the draft's form, to a proxy that wants to know who calls. A new certificate is used without a restart.
func TestGRPCOverTLS(t *testing.T) {
	dir := t.TempDir()
	server, _ := certified(t, dir, "proxy")
	certified(t, dir, "caller")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	who := make(chan string, 1)
	config := &tls.Config{Certificates: []tls.Certificate{server}, ClientAuth: tls.RequireAnyClientCert}
	proxy(t, ln, func(st stream) error {
		if p, ok := peer.FromContext(st.Context()); ok {
			who <- p.AuthInfo.(credentials.TLSInfo).State.PeerCertificates[0].DNSNames[0]
		}
		return echo(st)
	}, grpc.Creds(credentials.NewTLS(config)))
	path := func(name string) string { return filepath.Join(dir, name) }
	connection := fmt.Sprintf("{type: grpc, url: \"grpc://%s\", caBundle: %q, clientKeyFile: %q, clientCertFile: %q}",
		ln.Addr(), path("proxy.crt"), path("own.key"), path("own.crt"))
	link := func(name string) {
		for _, end := range []string{".crt", ".key"} {
			text, err := os.ReadFile(path(name + end))
			if err := errors.Join(err, os.WriteFile(path("own"+end), text, 0o600), os.Chtimes(path("own"+end), time.Time{}, time.Now().Add(time.Duration(len(name))*time.Minute))); err != nil {
				t.Fatal(err)
			}
		}
	}
	link("caller")
	d := cluster(t, load(t, "v1alpha1", connection))
	dial := func() string {
		conn, err := d.DialContext(runtest.Within(t), "tcp", "a:1")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		mustEcho(t, conn, "hello")
		return <-who
	}
	if name := dial(); name != "caller" {
		t.Errorf("it calls as %s", name)
	}
	certified(t, dir, "renewed")
	link("renewed")
	if name := dial(); name != "renewed" {
		t.Errorf("with a new certificate it calls as %s", name)
	}
	foreign := cluster(t, load(t, "v1alpha1", strings.Replace(connection, "proxy.crt", "caller.crt", 1)))
	var e *client.Error
	if _, err := foreign.DialContext(runtest.Within(t), "tcp", "a:1"); !errors.As(err, &e) || e.Code != "hub_unreachable" || e.Asked {
		t.Errorf("a proxy of another CA: %#v", err)
	}
}

// TestNetworks are found in any case; a known one that the file does not name is dialled directly.
func TestNetworks(t *testing.T) {
	s := load(t, "v1beta1", "{proxyProtocol: Direct}")
	target := runtest.Echo(t)
	for _, name := range []string{"cluster", "Cluster", "CONTROLPLANE", "master", "Etcd", "direct"} {
		d, err := s.Dialer(name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		conn, err := d.DialContext(runtest.Within(t), "tcp", target.Addr())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		mustEcho(t, conn, name)
		conn.Close()
	}
	for _, name := range []string{"", "node", "cluster "} {
		_, err := s.Dialer(name)
		var e *client.Error
		if !errors.Is(err, egress.ErrUnknownNetwork) || !errors.As(err, &e) || e.Code != "usage" {
			t.Errorf("%q: %#v", name, err)
		}
	}
}

// TestAnObserver sees each dial with its stage, and gives it its context.
func TestAnObserver(t *testing.T) {
	type key struct{}
	var seen []string
	observed := func(s *egress.Selector) *egress.Selector {
		s.Observe = func(ctx context.Context, d egress.Dial) (context.Context, func(egress.Stage, error)) {
			return context.WithValue(ctx, key{}, "span"), func(stage egress.Stage, err error) {
				seen = append(seen, fmt.Sprintf("%s %s %s %s %q %v", d.Network, d.Protocol, d.Transport, d.Address, stage, err == nil))
			}
		}
		s.Trace = func(ctx context.Context) (string, string) {
			if ctx.Value(key{}) != "span" {
				t.Error("the trace has another context")
			}
			return "", ""
		}
		return s
	}
	dir := runtest.Dir(t)
	path, nobody := filepath.Join(dir, "s"), filepath.Join(dir, "nobody")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	proxy(t, ln, func(st stream) error {
		p, err := st.Recv()
		if err != nil {
			return err
		}
		if p.GetDialRequest().GetAddress() == "no:1" {
			return st.Send(answer(p.GetDialRequest().GetRandom(), 0, "no"))
		}
		return st.Send(answer(p.GetDialRequest().GetRandom(), 1, ""))
	})
	grpcTo := func(at string) string {
		return fmt.Sprintf("{proxyProtocol: GRPC, transport: {uds: {udsName: %q}}}", at)
	}
	target := runtest.Echo(t).Addr()
	for _, c := range []struct{ connection, address string }{
		{grpcTo(path), "a:1"}, {grpcTo(path), "no:1"}, {grpcTo(nobody), "a:1"},
		{fmt.Sprintf("{proxyProtocol: HTTPConnect, transport: {uds: {udsName: %q}}}", nobody), "a:1"},
		{"{proxyProtocol: Direct}", target},
	} {
		if conn, err := cluster(t, observed(load(t, "v1beta1", c.connection))).DialContext(runtest.Within(t), "tcp", c.address); err == nil {
			conn.Close()
		}
	}
	want := []string{`cluster grpc uds a:1 "" true`, `cluster grpc uds no:1 "proxy" false`, `cluster grpc uds a:1 "connect" false`,
		`cluster http_connect uds a:1 "connect" false`, "cluster direct tcp " + target + ` "" true`}
	if !slices.Equal(seen, want) {
		t.Errorf("%q", seen)
	}
}

// TestTheHubsFrontend is the hub's own half of the wire, with what the reference's generated code does not judge.
func TestTheHubsFrontend(t *testing.T) {
	path := filepath.Join(runtest.Dir(t), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	dialled := make(chan context.Context, 1)
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() {
		served <- konnectivity.New(slog.New(slog.DiscardHandler)).Serve(ctx, ln, func(ctx context.Context, d wire.Dial) (carrier.Stream, error) {
			dialled <- ctx
			<-ctx.Done()
			return nil, ctx.Err()
		})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	d := cluster(t, load(t, "v1beta1", fmt.Sprintf("{proxyProtocol: GRPC, transport: {uds: {udsName: %q}}}", path)))
	giving, giveUp := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { _, err := d.DialContext(giving, "tcp", "a:1"); over <- err }()
	at := <-dialled
	giveUp()
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-at.Done() // the hub's dial has ended too
}

// TestAProxyThatEndsBothDirections at once, as those other than a hub do, has ended the connection in an orderly way.
func TestAProxyThatEndsBothDirections(t *testing.T) {
	path := filepath.Join(runtest.Dir(t), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
			io.WriteString(conn, "HTTP/1.1 200 Connection Established\r\n\r\nhello")
		}
	}()
	t.Cleanup(func() { ln.Close(); <-over })
	d := cluster(t, load(t, "v1beta1", fmt.Sprintf("{proxyProtocol: HTTPConnect, transport: {uds: {udsName: %q}}}", path)))
	conn, err := d.DialContext(runtest.Within(t), "tcp", "a:1")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	<-over
	if got, err := io.ReadAll(conn); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
	if _, ok := conn.(interface{ CloseWrite() error }); !ok {
		t.Error("it cannot end one direction")
	}
}

// TestTheNameOfAProxy is that of the file, else that of the URL; a proxy need not be a hub.
func TestTheNameOfAProxy(t *testing.T) {
	dir := t.TempDir()
	certificate, _ := certified(t, dir, "proxy")
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAnyClientCert})
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Server{ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Host {
		case "a:1":
			w.WriteHeader(http.StatusOK)
		case "late:1":
			http.Error(w, "no answer", http.StatusGatewayTimeout)
		default:
			http.Error(w, "no agent\u202e", http.StatusInternalServerError)
		}
	})}
	served := make(chan error, 1)
	go func() { served <- web.Serve(ln) }()
	t.Cleanup(func() { web.Close(); <-served })
	for name, fine := range map[string]bool{"": false, "other": false, "proxy": true} {
		d := cluster(t, load(t, "v1beta1", fmt.Sprintf("{proxyProtocol: HTTPConnect, transport: {tcp: {url: \"https://localhost:%s\", tlsConfig: {caBundle: %q, clientKey: %q, clientCert: %q, tlsServerName: %q}}}}",
			port, filepath.Join(dir, "proxy.crt"), filepath.Join(dir, "proxy.key"), filepath.Join(dir, "proxy.crt"), name)))
		conn, err := d.DialContext(runtest.Within(t), "tcp", "a:1")
		if fine != (err == nil) {
			t.Errorf("%q: %v", name, err)
		}
		if err == nil {
			conn.Close()
		}
		for address, want := range map[string]client.Error{
			"late:1": {Code: "dial_timeout", Reason: "504 Gateway Timeout no answer, said by what is no hub", Asked: true, Status: 504},
			"no:1":   {Code: "dial_unreachable", Reason: "500 Internal Server Error no agent?, said by what is no hub", Asked: true, Status: 500},
		} {
			var e *client.Error
			if _, err := d.DialContext(runtest.Within(t), "tcp", address); fine && (!errors.As(err, &e) || *e != want) {
				t.Errorf("%s: %#v", address, err)
			}
		}
	}
}

// TestADialEndsWithItsContext where nothing answers: not the handshake, not the request.
func TestADialEndsWithItsContext(t *testing.T) {
	dir := runtest.Dir(t)
	certified(t, dir, "proxy")
	for name, c := range map[string]struct{ network, version, connection string }{
		"grpc, uds":    {"unix", "v1beta1", "{proxyProtocol: GRPC, transport: {uds: {udsName: ADDRESS}}}"},
		"grpc, tls":    {"tcp", "v1alpha1", "{type: grpc, url: 'grpc://ADDRESS', clientKeyFile: DIR/proxy.key, clientCertFile: DIR/proxy.crt}"},
		"connect, uds": {"unix", "v1beta1", "{proxyProtocol: HTTPConnect, transport: {uds: {udsName: ADDRESS}}}"},
		"connect, tls": {"tcp", "v1alpha1", "{type: http-connect, url: 'https://ADDRESS', clientKeyFile: DIR/proxy.key, clientCertFile: DIR/proxy.crt}"},
	} {
		t.Run(name, func(t *testing.T) {
			address := "127.0.0.1:0"
			if c.network == "unix" {
				address = filepath.Join(dir, name[:4])
			}
			ln, err := net.Listen(c.network, address)
			if err != nil {
				t.Fatal(err)
			}
			came, over := make(chan net.Conn, 1), make(chan struct{})
			go func() {
				defer close(over)
				if conn, err := ln.Accept(); err == nil {
					conn.Read(make([]byte, 1)) // it has begun
					came <- conn
				}
			}()
			t.Cleanup(func() { ln.Close(); <-over })
			s := load(t, c.version, strings.NewReplacer("ADDRESS", ln.Addr().String(), "DIR", dir).Replace(c.connection))
			ctx, cancel := context.WithCancelCause(t.Context())
			ours, failed := errors.New("the work is over"), make(chan error, 1)
			d := cluster(t, s)
			go func() { _, err := d.DialContext(ctx, "tcp", "a:1"); failed <- err }()
			conn := <-came
			cancel(ours)
			err = <-failed
			conn.Close()
			var e *client.Error
			if !errors.As(err, &e) || e.Code != "dial_canceled" || !errors.Is(err, ours) || !errors.Is(err, context.Canceled) {
				t.Errorf("%#v", err)
			}
		})
	}
}
