// SPDX-License-Identifier: Apache-2.0

package carrier_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

// benchPair is a TLS 1.3 connection over loopback, as between agent and hub.
func benchPair(b *testing.B) (agent, hub net.Conn) {
	b.Helper()
	ca, err := trust.NewAuthority("bench.internal", time.Now())
	if err != nil {
		b.Fatal(err)
	}
	key, err := trust.NewKey()
	if err != nil {
		b.Fatal(err)
	}
	leaf, err := ca.Issue(trust.Request{Identity: id.Identity{Role: id.RoleHub, Name: "hub"}, Key: key.Public(), Life: time.Hour}, time.Now())
	if err != nil {
		b.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	raw, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	accepted, err := ln.Accept()
	if err != nil {
		b.Fatal(err)
	}
	server := tls.Server(accepted, &tls.Config{
		MinVersion: tls.VersionTLS13, DynamicRecordSizingDisabled: true,
		Certificates: []tls.Certificate{{Certificate: [][]byte{leaf.Raw}, PrivateKey: key}},
	})
	check := func() trust.Check { return trust.Check{Roots: ca.Roots(), Now: time.Now()} }
	client := tls.Client(raw, trust.HubClientConfig(check, nil, trust.ALPNSession))
	done := make(chan error, 1)
	go func() { done <- server.Handshake() }()
	if err := errors.Join(client.Handshake(), <-done); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { raw.Close(); accepted.Close() })
	return client, server
}

func benchSessions(b *testing.B) (agent, hub carrier.Session) {
	b.Helper()
	a, h := benchPair(b)
	agent, err := carrier.Client(a, carrier.Options{Incoming: limit.StreamsPerSession})
	if err != nil {
		b.Fatal(err)
	}
	hub, err = carrier.Server(h, carrier.Options{Incoming: limit.AgentStreams})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { agent.Close(); hub.Close() })
	return agent, hub
}

// BenchmarkTLS is the limit that a stream is measured against.
func BenchmarkTLS(b *testing.B) {
	agent, hub := benchPair(b)
	go io.Copy(io.Discard, agent)
	write(b, hub)
}

// BenchmarkStream is one stream over the same TLS connection.
func BenchmarkStream(b *testing.B) {
	agent, hub := benchSessions(b)
	to, err := hub.OpenStream(b.Context(), nil)
	if err != nil {
		b.Fatal(err)
	}
	from, err := agent.AcceptStream(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	go io.Copy(io.Discard, from)
	write(b, to)
}

// write sends chunks of the size that a splice copies.
func write(b *testing.B, to io.Writer) {
	b.Helper()
	chunk := make([]byte, limit.CopyBuffer)
	b.SetBytes(limit.CopyBuffer)
	for b.Loop() {
		if _, err := to.Write(chunk); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpen opens a stream, sends a byte, gets it back and closes.
func BenchmarkOpen(b *testing.B) {
	agent, hub := benchSessions(b)
	go func() {
		for {
			s, err := agent.AcceptStream(b.Context())
			if err != nil {
				return
			}
			go func() {
				io.Copy(s, s)
				s.Close()
			}()
		}
	}()
	buf := make([]byte, 1)
	for b.Loop() {
		s, err := hub.OpenStream(b.Context(), nil)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Write(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(s, buf); err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}
