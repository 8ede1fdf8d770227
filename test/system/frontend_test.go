// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
)

// way is one frontend as a caller uses it.
type way struct {
	name string
	dial func(ctx context.Context, target string) (net.Conn, error)
	half bool // half-close travels
}

// ways opens every frontend of a cluster.
func (h *testHub) ways(cluster string) []way {
	h.t.Helper()
	connect := h.socket(cluster, hub.ProtocolConnect)
	grpcPath := h.socket(cluster, hub.ProtocolKonnectivity)
	cert := h.issue(admin.CertificateRequest{Role: "client", Cluster: cluster, Name: "kas"})
	return []way{
		{"connect-unix", func(ctx context.Context, target string) (net.Conn, error) { return dialConnect(ctx, connect, target) }, true},
		{"connect-tls", func(ctx context.Context, target string) (net.Conn, error) { return h.dialConnectTLS(ctx, cert, target) }, true},
		{"konnectivity", func(ctx context.Context, target string) (net.Conn, error) {
			return dialKonnectivity(h.t, ctx, grpcPath, target)
		}, false},
		{"admin", func(ctx context.Context, target string) (net.Conn, error) {
			return h.admin.Stream(ctx, cluster, target)
		}, true},
	}
}

// socket asks the hub for a unix socket and gives its path.
func (h *testHub) socket(cluster, protocol string) string {
	h.t.Helper()
	var s admin.Socket
	h.call("POST", "/v1/clusters/"+cluster+"/sockets", admin.SocketRequest{Protocol: protocol}, &s)
	return s.Path
}

// certificate is what a client or operator holds.
type certificate struct {
	tls.Certificate
	serial string
	ca     *x509.Certificate
}

func (h *testHub) issue(q admin.CertificateRequest) certificate {
	h.t.Helper()
	key, err := trust.NewKey()
	if err != nil {
		h.t.Fatal(err)
	}
	plantKey(h.t, "the key of a certificate", key)
	csr, err := trust.NewCSR(key)
	if err != nil {
		h.t.Fatal(err)
	}
	q.CSR = string(csr)
	var out admin.Certificate
	h.call("POST", "/v1/certificates", q, &out)
	return certificate{keyPair(h.t, key, out.Certificate), out.Serial, parseCert(h.t, out.CA)}
}

// clientTLS is what kube-apiserver makes of ca, certificate and key: it checks
// the host name and knows nothing of SPIFFE.
func (c certificate) clientTLS(listen string) *tls.Config {
	host, _, _ := net.SplitHostPort(listen)
	return &tls.Config{RootCAs: trust.RootsOf(c.ca), Certificates: []tls.Certificate{c.Certificate}, ServerName: host, MinVersion: tls.VersionTLS12}
}

// refused is an answer other than 200.
type refused struct {
	status int
	code   fault.Code // header Tombolo-Fault
	line   string     // the status line's text, which is all that kubectl's user sees
	body   string
}

func (r *refused) Error() string { return fmt.Sprintf("%d %s: %s", r.status, r.code, r.body) }

func asRefused(t *testing.T, err error) *refused {
	t.Helper()
	var r *refused
	if !errors.As(err, &r) {
		t.Fatalf("no HTTP refusal: %v", err)
	}
	return r
}

// wantRefused fails unless err is a refusal with this status and code that explains itself.
func wantRefused(t *testing.T, err error, status int, code fault.Code) *refused {
	t.Helper()
	r := asRefused(t, err)
	if r.status != status || r.code != code {
		t.Fatalf("got %d %s (%s), want %d %s", r.status, r.code, r.body, status, code)
	}
	if !strings.HasPrefix(r.body, string(code)+": ") || !strings.Contains(r.line, string(code)) {
		t.Errorf("the refusal does not explain itself: line %q, body %q", r.line, r.body)
	}
	return r
}

func dialConnect(ctx context.Context, path, target string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	return connectOver(ctx, conn, target)
}

func (h *testHub) dialConnectTLS(ctx context.Context, c certificate, target string) (net.Conn, error) {
	conn, err := (&tls.Dialer{Config: c.clientTLS(h.listen)}).DialContext(ctx, "tcp", h.listen)
	if err != nil {
		return nil, err
	}
	return connectOver(ctx, conn, target)
}

// connectOver says CONNECT as kube-apiserver does.
func connectOver(ctx context.Context, conn net.Conn, target string) (net.Conn, error) {
	out, err := ask(ctx, conn, "CONNECT "+target+" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
	if err != nil {
		conn.Close()
	}
	return out, err
}

// ask sends a raw request and reads the answer's head, byte by byte so that
// nothing of what follows it is taken.
func ask(ctx context.Context, conn net.Conn, request string) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok {
		conn.SetDeadline(deadline)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if _, err := io.WriteString(conn, request); err != nil {
		// Whoever is beyond a bound is answered before it has asked.
		if out, refusal := answer(conn); errors.As(refusal, new(*refused)) {
			return out, refusal
		}
		return nil, err
	}
	return answer(conn)
}

func answer(conn net.Conn) (net.Conn, error) {
	res, err := http.ReadResponse(bufio.NewReaderSize(oneByte{conn}, 16), &http.Request{Method: http.MethodConnect})
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		// A response to CONNECT other than 2xx has a body (RFC 9110 section 9.3.6).
		body, err := io.ReadAll(io.LimitReader(conn, res.ContentLength))
		if err != nil {
			return nil, err
		}
		return nil, &refused{res.StatusCode, fault.Code(res.Header.Get("Tombolo-Fault")), res.Status, string(body)}
	}
	if len(res.Header) != 0 {
		return nil, fmt.Errorf("the 200 carries headers: %v", res.Header)
	}
	return conn, nil
}

// oneByte reads one byte at a time.
type oneByte struct{ io.Reader }

func (r oneByte) Read(p []byte) (int, error) { return r.Reader.Read(p[:1]) }

// dialKonnectivity dials as kube-apiserver does with GRPC: one connection and
// one tunnel for each dial.
func dialKonnectivity(t *testing.T, ctx context.Context, path, target string) (net.Conn, error) {
	tunnelCtx, cancel := context.WithCancel(context.Background())
	tunnel, err := client.CreateSingleUseGrpcTunnelWithContext(ctx, tunnelCtx, "unix://"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		cancel()
		return nil, err
	}
	conn, err := tunnel.DialContext(ctx, "tcp", target)
	if err != nil {
		cancel()
		return nil, err
	}
	t.Cleanup(cancel)
	return tunnelled{conn, cancel}, nil
}

// tunnelled is a connection of the reference's client.
type tunnelled struct {
	net.Conn
	cancel func()
}

// abandon ends a connection that may be stuck in a write: the Close of the
// reference's client waits for that write, so the tunnel is cut instead.
func abandon(conn net.Conn) {
	if c, ok := conn.(tunnelled); ok {
		c.cancel()
	}
	conn.Close()
}

// exchange writes and reads back the same number of bytes.
func exchange(conn net.Conn, text string) (string, error) {
	if _, err := io.WriteString(conn, text); err != nil {
		return "", err
	}
	buf := make([]byte, len(text))
	_, err := io.ReadFull(conn, buf)
	return string(buf), err
}

// mustEcho proves that a connection to an echo target carries bytes both ways.
func mustEcho(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	got, err := exchange(conn, text)
	if err != nil || got != text {
		t.Fatalf("echo of %q: %q, %v", text, got, err)
	}
}
