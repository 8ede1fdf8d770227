// SPDX-License-Identifier: Apache-2.0

package system

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
	pb "github.com/tombolo-io/tombolo/proto"
)

// selfSigned is a certificate that claims an identity of the hub's trust domain.
func selfSigned(t *testing.T, uri string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	id, err := url.Parse(uri)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		URIs: []*url.URL{id}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (h *testHub) dialTCP() *net.TCPConn {
	h.t.Helper()
	conn, err := net.Dial("tcp", h.listen)
	if err != nil {
		h.t.Fatal(err)
	}
	closing(h.t, conn)
	conn.SetDeadline(time.Now().Add(runtest.Patience))
	return conn.(*net.TCPConn)
}

// mustClose waits until the hub ends the connection.
func mustClose(t *testing.T, what string, conn net.Conn) {
	t.Helper()
	if _, err := io.Copy(io.Discard, conn); isTimeout(err) {
		t.Errorf("%s: the hub keeps the connection", what)
	}
}

func TestSessionIsForAgentsOfThisHubOnly(t *testing.T) {
	h, _ := pair(t, hubSpec{}, agentSpec{})
	other := startHub(t, hubSpec{})
	foreign := other.enrol(other.token("c1").Join)
	client := h.issue(admin.CertificateRequest{Role: "client", Cluster: "c1", Name: "kas"})
	operator := h.issue(admin.CertificateRequest{Role: "operator", Name: "alice"})
	forged := selfSigned(t, "spiffe://tombolo.internal/cluster/c1/agent/agent-x")
	for name, c := range map[string]struct {
		cert *tls.Certificate
		code fault.Code
	}{
		"none":        {nil, fault.CodeCertInvalid},
		"self-signed": {&forged, fault.CodeCAMismatch},
		"other hub's": {&foreign.Certificate, fault.CodeCAMismatch},
		"client":      {&client.Certificate, fault.CodeUnauthorized},
		"operator":    {&operator.Certificate, fault.CodeUnauthorized},
	} {
		conn := h.dialTLS(c.cert, trust.ALPNSession)
		r := greet(t, conn, hello("x")).GetRefusal()
		if r.GetCode() != string(c.code) || r.GetWhat() == "" {
			t.Errorf("%s: %v, want %s", name, r, c.code)
		}
		conn.SetDeadline(time.Now().Add(runtest.Patience))
		mustClose(t, name, conn)
	}
	if n := h.connected("c1"); n != 1 {
		t.Errorf("%d sessions", n)
	}
}

func TestHTTPIsForClientsAndOperatorsOnly(t *testing.T) {
	h, _ := pair(t, hubSpec{}, agentSpec{})
	to := runtest.Echo(t)
	agentCert := h.enrol(h.token("c1").Join)
	forgedClient := selfSigned(t, "spiffe://tombolo.internal/cluster/c1/client/kas")
	forgedOperator := selfSigned(t, "spiffe://tombolo.internal/operator/root")
	for name, c := range map[string]struct {
		cert   *tls.Certificate
		status int
		code   fault.Code
	}{
		"none":                 {nil, http.StatusUnauthorized, fault.CodeCertInvalid},
		"self-signed client":   {&forgedClient, http.StatusUnauthorized, fault.CodeCAMismatch},
		"self-signed operator": {&forgedOperator, http.StatusUnauthorized, fault.CodeCAMismatch},
		"agent":                {&agentCert.Certificate, http.StatusForbidden, fault.CodeUnauthorized},
	} {
		_, err := connectOver(runtest.Within(t), h.dialTLS(c.cert), to.Addr())
		wantRefused(t, err, c.status, c.code)
		_, err = ask(runtest.Within(t), h.dialTLS(c.cert, "http/1.1"), "GET /v1/status HTTP/1.1\r\nHost: hub\r\n\r\n")
		if r := asRefused(t, err); r.status != c.status || r.code != c.code {
			t.Errorf("%s: admin API: %v", name, err)
		}
	}
	if to.Accepted() != 0 {
		t.Error("the target was reached")
	}
}

// The cluster follows from the certificate; no header, path or name changes it.
func TestCertificateOfOneClusterReachesNoOther(t *testing.T) {
	h := startHub(t, hubSpec{})
	secret := named(t, "secret of c2")
	h.token("c1")
	startAgent(t, agentSpec{join: h.token("c2").Join})
	c1 := h.issue(admin.CertificateRequest{Role: "client", Cluster: "c1", Name: "kas"})
	for _, header := range []string{"", "Host: c2", "X-Tombolo-Cluster: c2", "Proxy-Authorization: Basic YzI6", "X-Forwarded-Host: c2"} {
		if header != "" {
			header += "\r\n"
		}
		cfg := anyHub(&c1.Certificate)
		cfg.ServerName = "c2.tombolo.internal"
		conn, err := (&tls.Dialer{Config: cfg}).DialContext(runtest.Within(t), "tcp", h.listen)
		if err != nil {
			t.Fatal(err)
		}
		closing(t, conn)
		_, err = ask(runtest.Within(t), conn, "CONNECT "+secret.Addr()+" HTTP/1.1\r\n"+header+"\r\n")
		wantRefused(t, err, http.StatusServiceUnavailable, fault.CodeNoAgent)
	}
	if secret.Accepted() != 0 {
		t.Error("the other cluster's target was reached")
	}
	// A client is no operator: the API is not there for it.
	_, err := ask(runtest.Within(t), h.dialTLS(&c1.Certificate, "http/1.1"), "GET /v1/status HTTP/1.1\r\nHost: hub\r\n\r\n")
	if r := asRefused(t, err); r.status != http.StatusMethodNotAllowed {
		t.Errorf("a client at the admin API: %v", err)
	}
}

func TestBadHello(t *testing.T) {
	h, _ := pair(t, hubSpec{}, agentSpec{})
	cert := h.enrol(h.token("c1").Join)
	frame := func(n uint32, body string) []byte {
		return append(binary.BigEndian.AppendUint32(nil, n), body...)
	}
	refusals := map[string]struct {
		m    *pb.Control
		code fault.Code
	}{
		"future version": {&pb.Control{Frame: &pb.Control_Hello{Hello: &pb.Hello{VersionMin: 7, VersionMax: 9, Instance: "x"}}}, fault.CodeVersion},
		"past version":   {&pb.Control{Frame: &pb.Control_Hello{Hello: &pb.Hello{Instance: "x"}}}, fault.CodeVersion},
		"no instance":    {&pb.Control{Frame: &pb.Control_Hello{Hello: &pb.Hello{VersionMin: 1, VersionMax: 1}}}, fault.CodeFrameInvalid},
		"long instance":  {hello(strings.Repeat("x", 65)), fault.CodeFrameInvalid},
		"not a Hello":    {&pb.Control{Frame: &pb.Control_Ping{Ping: &pb.Ping{Number: 1}}}, fault.CodeFrameInvalid},
		"empty frame":    {&pb.Control{}, fault.CodeFrameInvalid},
	}
	for name, c := range refusals {
		conn := h.dialTLS(&cert.Certificate, trust.ALPNSession)
		r := greet(t, conn, c.m).GetRefusal()
		if r.GetCode() != string(c.code) {
			t.Errorf("%s: %v, want %s", name, r, c.code)
		}
		if c.code == fault.CodeVersion && !strings.Contains(r.GetWhy(), "speaks") {
			t.Errorf("%s does not explain itself: %v", name, r)
		}
	}
	for name, raw := range map[string][]byte{
		"oversized": frame(limit.ControlFrame+1, ""), "huge": frame(1<<32-1, "x"),
		"garbage": frame(4, "\xff\xff\xff\xff"), "HTTP": []byte("GET / HTTP/1.1\r\n\r\n"),
	} {
		conn := h.dialTLS(&cert.Certificate, trust.ALPNSession)
		conn.Write(raw)
		conn.SetDeadline(time.Now().Add(runtest.Patience))
		mustClose(t, name, conn)
	}
	truncated := h.dialTLS(&cert.Certificate, trust.ALPNSession)
	truncated.Write(frame(100, "half"))
	truncated.CloseWrite()
	truncated.SetDeadline(time.Now().Add(runtest.Patience))
	mustClose(t, "truncated", truncated)
	runtest.Eventually(t, "each refusal is counted", func() bool {
		m := family(t, h.reg, "tombolo_hub_refused_connections_total")
		n := 0.0
		for _, c := range m.GetMetric() {
			n += c.GetCounter().GetValue()
		}
		return int(n) >= len(refusals)+5
	})
	if n := h.connected("c1"); n != 1 {
		t.Errorf("%d sessions", n)
	}
}

func TestGarbageOnTheMainPort(t *testing.T) {
	h, _ := pair(t, hubSpec{}, agentSpec{})
	for name, raw := range map[string]string{
		"plain HTTP": "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "zeroes": strings.Repeat("\x00", 4096),
		"SSH": "SSH-2.0-x\r\n", "a TLS record without end": "\x16\x03\x01\xff\xff" + strings.Repeat("x", 70000),
	} {
		conn := h.dialTCP()
		io.WriteString(conn, raw)
		mustClose(t, name, conn)
	}
	old, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}}).DialContext(runtest.Within(t), "tcp", h.listen)
	if err == nil {
		old.Close()
		t.Error("TLS 1.2 is spoken")
	}
	mismatch, err := (&tls.Dialer{Config: anyHub(nil, "h2", "smb")}).DialContext(runtest.Within(t), "tcp", h.listen)
	if err == nil {
		mismatch.Close()
		t.Error("a protocol that is not served is agreed on")
	}
	othersServed(t, h)
}

func othersServed(t *testing.T, h *testHub) {
	t.Helper()
	conn := openVia(t, h, runtest.Echo(t))
	conn.Close()
}

// A handshake, a Hello and a control stream that never come cost a connection
// for their limit, while others are served.
func TestPeersThatStopHalfWay(t *testing.T) {
	t.Parallel()
	h, _ := pair(t, hubSpec{}, agentSpec{})
	cert := h.enrol(h.token("c1").Join)
	waits := map[string]net.Conn{"no handshake": h.dialTCP(), "half a handshake": h.dialTCP()}
	io.WriteString(waits["half a handshake"], "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
	waits["no Hello"] = h.dialTLS(&cert.Certificate, trust.ALPNSession)
	waits["no request to the enrolment"] = h.dialTLS(nil, trust.ALPNJoin)
	waits["no request without certificate"] = h.dialTLS(nil)
	noControl := h.dialTLS(&cert.Certificate, trust.ALPNSession)
	greet(t, noControl, hello("idle"))
	waits["no control stream"] = noControl
	othersServed(t, h)
	for name, conn := range waits {
		conn.SetDeadline(time.Now().Add(runtest.Patience))
		mustClose(t, name, conn)
	}
	if n := h.connected("c1"); n != 1 {
		t.Errorf("%d sessions", n)
	}
}

// Frames on the control stream that make no sense end that session only.
func TestBadControlFrames(t *testing.T) {
	h, _ := pair(t, hubSpec{}, agentSpec{})
	cert := h.enrol(h.token("c1").Join)
	for name, raw := range map[string][]byte{
		"oversized": binary.BigEndian.AppendUint32(nil, limit.ControlFrame+1),
		"garbage":   append(binary.BigEndian.AppendUint32(nil, 3), 0xff, 0xff, 0xff),
	} {
		link, control := h.rawSession(cert, "bad-"+name)
		runtest.Eventually(t, "it is in", func() bool { return h.connected("c1") == 2 })
		control.Write(raw)
		select {
		case <-link.Done():
		case <-time.After(runtest.Patience):
			t.Fatalf("%s: the session goes on", name)
		}
		runtest.Eventually(t, "it is out, with the reason", func() bool {
			for _, a := range h.status("c1").Agents {
				if !a.Connected && strings.HasPrefix(a.LastDisconnect.Code, "frame_") {
					return true
				}
			}
			return false
		})
	}
	// What is merely unknown is ignored.
	link, control := h.rawSession(cert, "newer")
	control.Write(append(binary.BigEndian.AppendUint32(nil, 4), 0xfa, 0x7f, 0x01, 'x')) // field 2047
	if err := wire.Write(control, &pb.Control{Frame: &pb.Control_Ping{Ping: &pb.Ping{Number: 5}}}); err != nil {
		t.Fatal(err)
	}
	control.SetReadDeadline(time.Now().Add(runtest.Patience))
	for {
		var m pb.Control
		if err := wire.Read(control, limit.ControlFrame, &m); err != nil {
			t.Fatalf("the unknown frame was not ignored: %v", err)
		}
		if m.GetPong().GetNumber() == 5 {
			break
		}
	}
	link.Close()
	othersServed(t, h)
}

// A hostile agent's answers reach the caller as a coded refusal, cleaned.
func TestHostileDialReplies(t *testing.T) {
	h := startHub(t, hubSpec{extra: "streams: {dialTimeout: 10s}"})
	link, _ := h.rawSession(h.enrol(h.token("c1").Join), "liar")
	runtest.Eventually(t, "it is in", func() bool { return h.connected("c1") == 1 })
	replies := [][]byte{
		binary.BigEndian.AppendUint32(nil, limit.DialFrame+1),
		append(binary.BigEndian.AppendUint32(nil, 2), 0xff, 0xff),
		binary.BigEndian.AppendUint32(nil, 100), // cut off
	}
	evil, err := wire.Append(nil, &pb.DialReply{Fault: &pb.Fault{
		Code: "evil\r\nX-Injected: 1", What: "line\r\n\r\nHTTP/1.1 200 OK", Why: strings.Repeat("w", 5000)}})
	if err != nil {
		t.Fatal(err)
	}
	replies = append(replies, evil)
	served := make(chan struct{})
	go func() {
		defer close(served)
		for _, r := range replies {
			s, err := link.AcceptStream(runtest.Within(t))
			if err != nil {
				return
			}
			wire.ReadDial(s)
			s.Write(r)
			s.CloseWrite()
		}
	}()
	socket := h.socket("c1", "connect")
	for i := range replies {
		_, err := dialConnect(runtest.Within(t), socket, "10.0.0.1:80")
		r := asRefused(t, err)
		if r.status < 400 || r.code == "" || strings.ContainsAny(r.body[:len(r.body)-1], "\r\n") || len(r.body) > 4*limit.FaultText {
			t.Errorf("reply %d: %v", i, err)
		}
	}
	<-served
}
