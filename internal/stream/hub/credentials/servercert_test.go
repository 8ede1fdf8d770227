// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// handshake connects to a server with the certificate that s shows now, and
// reads the ticket.
func handshake(t *testing.T, s *ServerCertificate, client *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	near, far := twoEnds(t)
	cfg, err := s.Config(s.clock())
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		conn := tls.Server(far, cfg)
		if conn.Handshake() == nil {
			conn.Write([]byte{1})
		}
		conn.Close()
	}()
	defer func() { <-served }()
	conn := tls.Client(near, client)
	defer conn.Close()
	if err := conn.Handshake(); err != nil {
		return tls.ConnectionState{}, err
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return conn.ConnectionState(), nil
}

// TestATicketEndsWithTheHubsCertificate: the hub renews its certificate in
// half-time and is then proved anew; one that turns out to come from another CA is
// refused, ticket or not.
func TestATicketEndsWithTheHubsCertificate(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	ca, err := trust.NewAuthority("example.org", now)
	if err != nil {
		t.Fatal(err)
	}
	other, err := trust.NewAuthority("example.org", now)
	if err != nil {
		t.Fatal(err)
	}
	s := NewServerCertificate(ca, "h1", []string{"127.0.0.1"}, clock)
	client := trust.HubClientConfig(func() trust.Check { return trust.Check{Roots: ca.Roots(), Now: now} }, nil, trust.ALPNSession)
	client.ClientSessionCache, client.ServerName, client.Time = tls.NewLRUClientSessionCache(4), "hub", clock
	step := func(what string, after time.Duration, resumed bool) {
		t.Helper()
		now = now.Add(after)
		state, err := handshake(t, s, client)
		if err != nil || state.DidResume != resumed {
			t.Errorf("%s: resumed=%v, %v", what, state.DidResume, err)
		}
	}
	step("the first handshake", 0, false)
	step("the next", time.Hour, true)
	step("before the half of its life", limit.HubCertificate/2-limit.ClockTolerance-2*time.Hour, true)
	step("with a renewed certificate", 2*time.Hour, false)
	step("and again", time.Hour, true)

	s.renew = NewServerCertificate(other, "h1", []string{"127.0.0.1"}, clock).renew
	now = now.Add(limit.HubCertificate / 2)
	if state, err := handshake(t, s, client); !fault.Has(err, fault.CodeCAMismatch) {
		t.Errorf("a certificate of another CA: resumed=%v, %v", state.DidResume, err)
	}
}

// twoEnds are the two ends of a connection on loopback.
func twoEnds(t *testing.T) (near, far net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if near, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if far, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}
