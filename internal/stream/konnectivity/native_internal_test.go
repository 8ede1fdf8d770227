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

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
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

// TestASessionThatIsLetGo tells its agent why and what to do. One that does not close is not waited for, nor dialled.
func TestASessionThatIsLetGo(t *testing.T) {
	cert := runtest.Certificate(t)
	const good = 5 * time.Second
	begin := func(t *testing.T) (*Agents, *tls.Conn, *Upstream, <-chan struct{}) {
		a, conn, ended := serving(t, cert)
		a.Watch = func(ctx context.Context, _ string) error {
			run.Wait(ctx, good)
			return fault.New(fault.CodeUnauthorized, "the token is not valid any more").Hint("get another")
		}
		u, err := ConnectNative(t.Context(), conn, UpstreamOptions{Log: slog.New(slog.DiscardHandler), AgentID: "a",
			Token: "t"})
		if err != nil {
			t.Fatal(err)
		}
		return a, conn, u, ended
	}
	t.Run("and reads why", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			_, _, u, ended := begin(t)
			since := time.Now()
			f := fault.From(u.Serve())
			if f.Code != fault.CodeUnauthorized || f.Next != "get another" {
				t.Errorf("it is told %s", f.Explain())
			}
			<-ended
			if took := time.Since(since); took >= good+limit.Farewell {
				t.Errorf("it ends after %v", took)
			}
		})
	})
	t.Run("and does not close", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, conn, u, ended := begin(t)
			defer u.Close()
			since := time.Now()
			session, err := carrier.Client(conn, carrier.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			if _, err := session.OpenStream(t.Context(), nil); err != nil { // for control, on which nothing is read
				t.Fatal(err)
			}
			for wait, want := range map[time.Duration]int{good - 1: 1, good + 1: 0} {
				time.AfterFunc(wait, func() {
					if n := a.Ready(ByDefault); n != want {
						t.Errorf("after %v %d agents are ready", wait, n)
					}
				})
			}
			<-ended
			if took := time.Since(since); took < good+limit.Farewell || took > good+2*limit.Farewell {
				t.Errorf("it ends after %v", took)
			}
		})
	})
}
