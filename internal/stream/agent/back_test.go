// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

func TestHubsInOrder(t *testing.T) {
	all := []string{"a:1", "b:1", "c:1"}
	for session, want := range map[string][]string{
		"": all, "a:1": all, "b:1": {"b:1", "a:1", "c:1"}, "moved:1": {"moved:1", "a:1", "b:1", "c:1"},
	} {
		if got := hubsInOrder(session, all); !slices.Equal(got, want) {
			t.Errorf("with a session to %q: %v", session, got)
		}
	}
	if !slices.Equal(all, []string{"a:1", "b:1", "c:1"}) {
		t.Errorf("the list has changed: %v", all)
	}
}

func TestWhereElseAPortMayBe(t *testing.T) {
	for code, want := range map[fault.Code]bool{
		fault.CodeHubAway: true, fault.CodeDraining: true, fault.CodeClusterUnknown: true, fault.CodePolicyDenied: false,
		fault.CodeUnauthorized: false, fault.CodeLimit: false, fault.CodeDialRefused: false, fault.CodeDialTimeout: false,
		fault.CodeCertRevoked: false,
	} {
		if elsewhere(code) != want {
			t.Errorf("%s: %v", code, !want)
		}
	}
}

// Who may not connect is closed without a word, and who finds no room is reset; both are counted, and no hub hears of
// them.
func TestConnectionsThatDoNotLeaveTheAgent(t *testing.T) {
	for _, c := range []struct {
		name, from string
		live       int64
		code       fault.Code
		reset      bool
	}{
		{"a source outside of from", "10.0.0.0/8", 0, fault.CodePolicyDenied, false},
		{"no room", "127.0.0.0/8", portConnections, fault.CodeLimit, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := New(DefaultConfig(), Options{Log: slog.New(slog.DiscardHandler), Reg: prometheus.NewRegistry()})
			a.back.live.Store(c.live)
			ln, err := listener.Listen(t.Context(), "ports", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			g := run.NewGroup(t.Context())
			p := Port{Name: "registry", From: sources([]string{c.from}, "", func(string, string, ...any) {})}
			g.Do(func(ctx context.Context) { a.servePort(ctx, ctx, p, ln) })
			conn, err := net.Dial("tcp", ln.Addr().String())
			if err == nil {
				conn.SetDeadline(time.Now().Add(runtest.Patience))
				_, err = conn.Read(make([]byte, 1))
				conn.Close()
			}
			if c.reset != errors.Is(err, syscall.ECONNRESET) || !c.reset && err != io.EOF {
				t.Errorf("it reads %v", err)
			}
			g.Stop()
			if err := g.Wait(); err != nil {
				t.Error(err)
			}
			var m dto.Metric
			if err := a.metrics.Ports.WithLabelValues("registry", string(c.code)).Write(&m); err != nil || m.GetCounter().GetValue() != 1 {
				t.Errorf("%v are counted: %v", m.GetCounter().GetValue(), err)
			}
			if n := a.back.live.Load(); n != c.live {
				t.Errorf("%d connections are counted as live", n)
			}
		})
	}
}
