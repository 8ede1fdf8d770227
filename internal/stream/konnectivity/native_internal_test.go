// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

// serving is a server that has just got a connection from an agent, whose end it gives. It is used in a bubble.
func serving(t *testing.T, cert tls.Certificate) (a *Agents, agent *tls.Conn, ended <-chan struct{}) {
	t.Helper()
	a = NewAgents(AgentsOptions{Log: slog.New(slog.DiscardHandler), ServerID: "one", Count: func() int { return 1 },
		Strategies: []Strategy{ByDefault},
		Authorize:  func(context.Context, string) (Holder, error) { return Holder{Name: "somebody"}, nil }})
	up, down := net.Pipe()
	t.Cleanup(func() { down.Close() })
	over := make(chan struct{})
	go func() {
		defer close(over)
		a.serveNative(t.Context(), tls.Server(carrier.Wrap(up), &tls.Config{Certificates: []tls.Certificate{cert}}))
	}()
	return a, tls.Client(carrier.Wrap(down), &tls.Config{InsecureSkipVerify: true}), over
}

// within30 wants the end of a connection on which nothing is said.
func within30(t *testing.T, ended <-chan struct{}) {
	t.Helper()
	since := time.Now()
	select {
	case <-ended:
	case <-time.After(time.Hour):
		t.Fatal("the connection of a silent agent is kept")
	}
	if took := time.Since(since); took > 30*time.Second {
		t.Errorf("it is given up after %v", took)
	}
}

// TestSilentAgents are given up: one that is connected, since dials would go to it, and one that never says who it is.
func TestSilentAgents(t *testing.T) {
	cert := runtest.Certificate(t)
	t.Run("that is connected", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, conn, ended := serving(t, cert)
			u, err := ConnectNative(t.Context(), conn, UpstreamOptions{Log: slog.New(slog.DiscardHandler), AgentID: "a", Token: "t"})
			if err != nil {
				t.Fatal(err)
			}
			defer u.Close()
			session, err := carrier.Client(conn, carrier.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			if _, err := session.OpenStream(t.Context(), nil); err != nil { // for control, on which nothing is said
				t.Fatal(err)
			}
			synctest.Wait()
			if n := a.Ready(ByDefault); n != 1 {
				t.Fatalf("%d agents are ready", n)
			}
			within30(t, ended)
			if n := a.Ready(ByDefault); n != 0 {
				t.Errorf("%d agents are ready", n)
			}
		})
	})
	t.Run("that says nothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			_, conn, ended := serving(t, cert)
			if err := conn.Handshake(); err != nil {
				t.Fatal(err)
			}
			within30(t, ended)
		})
	})
}
