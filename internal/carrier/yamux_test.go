// SPDX-License-Identifier: Apache-2.0

package carrier_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/carrier"
	"github.com/tombolo-io/tombolo/internal/carrier/carriertest"
)

func TestYamux(t *testing.T) {
	t.Run("pipe", func(t *testing.T) {
		carriertest.Run(t, func(t *testing.T) carriertest.Pair {
			a, b := net.Pipe()
			return sessions(t, a, b, func() { a.Close() })
		})
	})
	t.Run("tls", func(t *testing.T) { carriertest.Run(t, tlsPair) })
}

func sessions(t *testing.T, a, b net.Conn, cut func()) carriertest.Pair {
	t.Helper()
	agent, err := carrier.Client(carrier.Yamux, a, carrier.Options{Incoming: 2_000})
	if err != nil {
		t.Fatal(err)
	}
	hub, err := carrier.Server(carrier.Yamux, b, carrier.Options{Incoming: 2_000})
	if err != nil {
		t.Fatal(err)
	}
	return carriertest.Pair{A: agent, B: hub, Cut: cut}
}

// tlsPair is a session over TLS 1.3 on loopback; it is cut below TLS.
func tlsPair(t *testing.T) carriertest.Pair {
	ln, err := carrier.ListenTCP(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	near, err := carrier.Dialer().DialContext(t.Context(), "tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	server := tls.Server(far, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate(t)}})
	client := tls.Client(near, &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true})
	shaken := make(chan error, 1)
	go func() { shaken <- server.Handshake() }()
	if err := client.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-shaken; err != nil {
		t.Fatal(err)
	}
	return sessions(t, client, server, func() { far.Close() })
}

func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestIncomingBound: a peer that opens more streams than it may has the surplus
// reset; the others go on.
func TestIncomingBound(t *testing.T) {
	a, b := net.Pipe()
	agent, err := carrier.Client(carrier.Yamux, a, carrier.Options{Incoming: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	hub, err := carrier.Server(carrier.Yamux, b, carrier.Options{Incoming: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer hub.Close()
	var open []carrier.Stream
	for range 3 {
		s, err := agent.OpenStream(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		s.SetDeadline(time.Now().Add(10 * time.Second))
		open = append(open, s)
	}
	var reset *carrier.ResetError
	if _, err := open[2].Read(make([]byte, 1)); !errors.As(err, &reset) {
		t.Fatalf("the third stream: %v, want a reset", err)
	}
	for range 2 {
		s, err := hub.AcceptStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Write([]byte("ok")); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range open[:2] {
		if _, err := s.Read(make([]byte, 2)); err != nil {
			t.Error(err)
		}
	}
}
