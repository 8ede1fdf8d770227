// SPDX-License-Identifier: Apache-2.0

package trust_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
)

// party is a certificate with its key and what is sent along.
func party(t testing.TB, a *trust.Authority, who id.Identity, along ...*x509.Certificate) tls.Certificate {
	t.Helper()
	key := newKey(t)
	c, err := a.Issue(trust.Request{Identity: who, Key: key.Public(), Life: time.Hour, Hosts: []string{"hub"}}, noon())
	if err != nil {
		t.Fatal(err)
	}
	out := tls.Certificate{Certificate: [][]byte{c.Raw}, PrivateKey: key, Leaf: c}
	for _, x := range along {
		out.Certificate = append(out.Certificate, x.Raw)
	}
	return out
}

func hubIdentity() id.Identity { return id.Identity{Role: id.RoleHub, Name: "h1"} }

func serverConfig(cert tls.Certificate) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequestClientCert,
		NextProtos: []string{trust.ALPNSession, trust.ALPNJoin},
	}
}

// shake connects both ends over loopback, lets the server send one byte, so that
// the client gets its session tickets, and returns the client's view.
func shake(t *testing.T, server, client *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	done := make(chan struct{})
	defer func() { <-done }()
	go func() {
		defer close(done)
		raw, err := ln.Accept()
		if err != nil {
			return
		}
		conn := tls.Server(raw, server)
		defer conn.Close()
		if conn.Handshake() == nil {
			conn.Write([]byte{1})
			conn.Read(make([]byte, 1)) // until the client closes
		}
	}()
	raw, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	conn := tls.Client(raw, client)
	if err := conn.Handshake(); err != nil {
		return tls.ConnectionState{}, err
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return tls.ConnectionState{}, err
	}
	return conn.ConnectionState(), nil
}

func TestTheFirstContactIsPinned(t *testing.T) {
	a, b := authority(t, "example.org"), authority(t, "example.org")
	now := func(d time.Duration) func() time.Time { return func() time.Time { return noon().Add(d) } }
	hub := party(t, a, hubIdentity(), a.Certificate())
	tls12 := serverConfig(hub)
	tls12.MaxVersion, tls12.MinVersion = tls.VersionTLS12, tls.VersionTLS12
	for name, c := range map[string]struct {
		server *tls.Config
		now    func() time.Time
		want   fault.Code // empty: accepted
	}{
		"the right hub":                             {serverConfig(hub), now(0), ""},
		"a hub of another CA":                       {serverConfig(party(t, b, hubIdentity(), b.Certificate())), now(0), fault.CodeCAMismatch},
		"a hub of another CA that sends ours along": {serverConfig(party(t, b, hubIdentity(), a.Certificate())), now(0), fault.CodeCAMismatch},
		"both CAs along":                            {serverConfig(party(t, b, hubIdentity(), b.Certificate(), a.Certificate())), now(0), fault.CodeCAMismatch},
		"the right hub without its CA":              {serverConfig(party(t, a, hubIdentity())), now(0), fault.CodeCAMismatch},
		"an agent that plays the hub":               {serverConfig(party(t, a, anAgent(t), a.Certificate())), now(0), fault.CodeCAMismatch},
		"a clock an hour slow":                      {serverConfig(hub), now(-time.Hour), fault.CodeClockSkew},
		"a clock two hours fast":                    {serverConfig(hub), now(2 * time.Hour), fault.CodeCertExpired},
	} {
		t.Run(name, func(t *testing.T) {
			state, err := shake(t, c.server, trust.PinnedConfig(trust.Pin(a.Certificate()), c.now))
			if c.want == "" && (err != nil || state.NegotiatedProtocol != trust.ALPNJoin || state.Version != tls.VersionTLS13) {
				t.Errorf("%v, %q", err, state.NegotiatedProtocol)
			}
			if c.want != "" && !fault.Has(err, c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
	t.Run("an old version of TLS", func(t *testing.T) {
		if _, err := shake(t, tls12, trust.PinnedConfig(trust.Pin(a.Certificate()), now(0))); err == nil {
			t.Error("it is spoken")
		}
	})
}

func TestAHubIsKnownByItsCA(t *testing.T) {
	a, b := authority(t, "example.org"), authority(t, "example.org")
	check := func() trust.Check { return trust.Check{Roots: a.Roots(), TrustDomain: "example.org", Now: noon()} }
	me := party(t, a, anAgent(t))
	for name, c := range map[string]struct {
		hub  tls.Certificate
		want fault.Code
	}{
		"the right hub":               {party(t, a, hubIdentity()), ""},
		"a hub of another CA":         {party(t, b, hubIdentity(), b.Certificate()), fault.CodeCAMismatch},
		"an agent that plays the hub": {party(t, a, anAgent(t)), fault.CodeCAMismatch},
	} {
		t.Run(name, func(t *testing.T) {
			var shown atomic.Pointer[x509.Certificate]
			server := serverConfig(c.hub)
			server.VerifyConnection = func(s tls.ConnectionState) error {
				if len(s.PeerCertificates) == 0 {
					return errors.New("the client showed no certificate")
				}
				shown.Store(s.PeerCertificates[0])
				return nil
			}
			state, err := shake(t, server, trust.HubClientConfig(check, &me, trust.ALPNSession))
			switch {
			case c.want != "" && !fault.Has(err, c.want):
				t.Errorf("%v, want %s", err, c.want)
			case c.want != "" && shown.Load() != nil:
				t.Error("a wrong hub was shown our certificate")
			case c.want == "" && (err != nil || state.NegotiatedProtocol != trust.ALPNSession || !shown.Load().Equal(me.Leaf)):
				t.Errorf("%v, %q", err, state.NegotiatedProtocol)
			}
		})
	}
	t.Run("without a certificate of our own", func(t *testing.T) {
		if _, err := shake(t, serverConfig(party(t, a, hubIdentity())), trust.HubClientConfig(check, nil, trust.ALPNJoin)); err != nil {
			t.Error(err)
		}
	})
}

// TestAResumedSessionIsCheckedAgain makes a session with a ticket and then lets
// time pass, or the certificate be revoked: the ticket must not outlive either.
func TestAResumedSessionIsCheckedAgain(t *testing.T) {
	a := authority(t, "example.org")
	hub := party(t, a, hubIdentity())
	for name, c := range map[string]struct {
		later func(*trust.Check)
		want  fault.Code
	}{
		"nothing happened":            {func(*trust.Check) {}, ""},
		"the certificate ran out":     {func(c *trust.Check) { c.Now = noon().Add(2 * time.Hour) }, fault.CodeCertExpired},
		"the certificate was revoked": {func(c *trust.Check) { c.Revoked = func(s string) bool { return s == trust.Serial(hub.Leaf) } }, fault.CodeCertRevoked},
		"the CA was replaced":         {func(c *trust.Check) { c.Roots = authority(t, "example.org").Roots() }, fault.CodeCAMismatch},
	} {
		t.Run(name, func(t *testing.T) {
			current := trust.Check{Roots: a.Roots(), Now: noon()}
			client := trust.HubClientConfig(func() trust.Check { return current }, nil, trust.ALPNSession)
			client.ClientSessionCache = tls.NewLRUClientSessionCache(1)
			client.ServerName = "hub" // the key of the cache
			server := serverConfig(hub)
			// The library looks at the end of the certificate itself; our check is to find it.
			client.Time, server.Time = noon, noon
			if first, err := shake(t, server, client); err != nil || first.DidResume {
				t.Fatalf("first: %v, resumed=%v", err, first.DidResume)
			}
			c.later(&current)
			second, err := shake(t, server, client)
			if c.want == "" && (err != nil || !second.DidResume) {
				t.Errorf("second: %v, resumed=%v; want a resumed session", err, second.DidResume)
			}
			if c.want != "" && !fault.Has(err, c.want) {
				t.Errorf("second: %v, want %s", err, c.want)
			}
		})
	}
}

// TestAResumedClientIsCheckedAgain is the same for the side that accepts: it
// judges the certificate behind the handshake, and a resumed one shows that of
// the first. A certificate that has run out is not even taken from a ticket.
func TestAResumedClientIsCheckedAgain(t *testing.T) {
	a := authority(t, "example.org")
	hub, agent := party(t, a, hubIdentity()), party(t, a, anAgent(t))
	for name, c := range map[string]struct {
		later func(*trust.Check)
		clock func() time.Time // of the server's library, for the second handshake
		full  bool
		want  fault.Code
	}{
		"nothing happened":        {later: func(*trust.Check) {}},
		"the certificate ran out": {later: func(c *trust.Check) { c.Now = noon().Add(2 * time.Hour) }, want: fault.CodeCertExpired},
		"the certificate ran out by the server's clock": {
			later: func(c *trust.Check) { c.Now = noon().Add(2 * time.Hour) },
			clock: func() time.Time { return noon().Add(2 * time.Hour) }, full: true, want: fault.CodeCertExpired,
		},
		"the certificate was revoked": {
			later: func(c *trust.Check) { c.Revoked = func(s string) bool { return s == trust.Serial(agent.Leaf) } }, want: fault.CodeCertRevoked,
		},
		"the CA was replaced": {later: func(c *trust.Check) { c.Roots = authority(t, "example.org").Roots() }, want: fault.CodeCAMismatch},
	} {
		t.Run(name, func(t *testing.T) {
			current := trust.Check{Roots: a.Roots(), Now: noon()}
			client := trust.HubClientConfig(func() trust.Check { return trust.Check{Roots: a.Roots(), Now: noon()} }, &agent, trust.ALPNSession)
			client.ClientSessionCache, client.ServerName, client.Time = tls.NewLRUClientSessionCache(1), "hub", noon
			server := serverConfig(hub)
			clock := noon
			server.Time = func() time.Time { return clock() }
			var seen tls.ConnectionState
			server.VerifyConnection = func(s tls.ConnectionState) error { seen = s; return nil }
			for i, want := range []fault.Code{"", c.want} {
				if i == 1 {
					c.later(&current)
					if c.clock != nil {
						clock = c.clock
					}
				}
				if _, err := shake(t, server, client); err != nil {
					t.Fatal(err)
				}
				if resumed := i == 1 && !c.full; seen.DidResume != resumed {
					t.Errorf("handshake %d: resumed=%v", i+1, seen.DidResume)
				}
				who, err := current.Verify(seen.PeerCertificates)
				if want == "" && (err != nil || who.Role != anAgent(t).Role) || want != "" && !fault.Has(err, want) {
					t.Errorf("handshake %d: %v, %v; want %q", i+1, who, err, want)
				}
			}
		})
	}
}

// BenchmarkHandshake compares whole handshakes of both ends with resumed ones.
func BenchmarkHandshake(b *testing.B) {
	a := authority(b, "example.org")
	hub, agent := party(b, a, hubIdentity()), party(b, a, anAgent(b))
	for _, kind := range []string{"full", "resumed"} {
		b.Run(kind, func(b *testing.B) {
			client := trust.HubClientConfig(func() trust.Check { return trust.Check{Roots: a.Roots(), Now: noon()} }, &agent, trust.ALPNSession)
			client.Time = noon
			if kind == "resumed" {
				client.ClientSessionCache, client.ServerName = tls.NewLRUClientSessionCache(1), "hub"
			}
			server := serverConfig(hub)
			server.Time = noon
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			defer ln.Close()
			go func() {
				for {
					raw, err := ln.Accept()
					if err != nil {
						return
					}
					conn := tls.Server(raw, server)
					if conn.Handshake() == nil {
						conn.Write([]byte{1})
						conn.Read(make([]byte, 1))
					}
					conn.Close()
				}
			}()
			n := 0
			for b.Loop() {
				conn, err := tls.Dial("tcp", ln.Addr().String(), client)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := conn.Read(make([]byte, 1)); err != nil {
					b.Fatal(err)
				}
				if conn.ConnectionState().DidResume {
					n++
				}
				conn.Close()
			}
			if resumed := kind == "resumed"; resumed && n < b.N-1 || !resumed && n > 0 {
				b.Errorf("%d of %d were resumed", n, b.N)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "handshakes/s")
		})
	}
}
