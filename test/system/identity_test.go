// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bytes"
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
	pb "github.com/tombolo-io/tombolo/proto"
)

func keyPair(t *testing.T, key crypto.Signer, certPEM string) tls.Certificate {
	t.Helper()
	c := parseCert(t, certPEM)
	return tls.Certificate{Certificate: [][]byte{c.Raw}, PrivateKey: key, Leaf: c}
}

func parseCert(t *testing.T, text string) *x509.Certificate {
	t.Helper()
	certs, err := trust.ParseCertificates([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return certs[0]
}

// postJoin posts to the enrolment port as an agent would, over cfg.
func postJoin(ctx context.Context, listen, path string, body any, cfg *tls.Config) (out admin.JoinAnswer, err error) {
	data, err := json.Marshal(body)
	if err != nil {
		return out, err
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: cfg, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+listen+path, bytes.NewReader(data))
	if err != nil {
		return out, err
	}
	res, err := client.Do(req)
	if err != nil {
		return out, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return out, err
	}
	if res.StatusCode != http.StatusOK {
		var f admin.FaultBody
		if err := json.Unmarshal(text, &f); err != nil {
			return out, err
		}
		return out, f.Fault()
	}
	return out, json.Unmarshal(text, &out)
}

// enrol joins without an agent, for tests that play a hostile one.
func (h *testHub) enrol(line string) certificate {
	h.t.Helper()
	j, err := trust.ParseJoin(line)
	if err != nil {
		h.t.Fatal(err)
	}
	key, err := trust.NewKey()
	if err != nil {
		h.t.Fatal(err)
	}
	plantKey(h.t, "the key of an agent by hand", key)
	csr, err := trust.NewCSR(key)
	if err != nil {
		h.t.Fatal(err)
	}
	answer, err := postJoin(runtest.Within(h.t), h.listen, "/v1/join", admin.JoinRequest{TokenID: j.TokenID, Secret: j.Secret, CSR: string(csr)}, anyHub(nil, trust.ALPNJoin))
	if err != nil {
		h.t.Fatal(err)
	}
	return certificate{Certificate: keyPair(h.t, key, answer.Certificate), ca: parseCert(h.t, answer.CA)}
}

// anyHub is the TLS of a peer that does not care whom it talks to.
func anyHub(cert *tls.Certificate, alpn ...string) *tls.Config {
	cfg := &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, NextProtos: alpn}
	if cert != nil {
		cfg.Certificates = []tls.Certificate{*cert}
	}
	return cfg
}

// dialTLS opens a connection to the main port.
func (h *testHub) dialTLS(cert *tls.Certificate, alpn ...string) *tls.Conn {
	h.t.Helper()
	conn, err := (&tls.Dialer{Config: anyHub(cert, alpn...)}).DialContext(runtest.Within(h.t), "tcp", h.listen)
	if err != nil {
		h.t.Fatal(err)
	}
	closing(h.t, conn)
	return conn.(*tls.Conn)
}

func hello(instance string) *pb.Control {
	return &pb.Control{Frame: &pb.Control_Hello{Hello: &pb.Hello{
		VersionMin: 1, VersionMax: wire.Version, Software: "hostile", Instance: instance,
		Capabilities: []string{wire.CapabilityMux},
	}}}
}

// greet sends Hello and gives the hub's Welcome.
func greet(t *testing.T, conn net.Conn, m *pb.Control) *pb.Welcome {
	t.Helper()
	if err := wire.Write(conn, m); err != nil {
		t.Fatal(err)
	}
	var out pb.Control
	if err := wire.Read(conn, 64<<10, &out); err != nil {
		t.Fatalf("no Welcome: %v", err)
	}
	if out.GetWelcome() == nil {
		t.Fatalf("no Welcome but %v", &out)
	}
	return out.GetWelcome()
}

// rawSession opens a session by hand, with its control stream.
func (h *testHub) rawSession(cert certificate, instance string) (carrier.Session, carrier.Stream) {
	h.t.Helper()
	conn := h.dialTLS(&cert.Certificate, trust.ALPNSession)
	if r := greet(h.t, conn, hello(instance)).GetRefusal(); r != nil {
		h.t.Fatalf("refused: %v", r)
	}
	link, err := carrier.Client(conn, carrier.Options{Incoming: limit.StreamsPerSession})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { link.Close() })
	control, err := link.OpenStream(runtest.Within(h.t), nil)
	if err != nil {
		h.t.Fatal(err)
	}
	return link, control
}
