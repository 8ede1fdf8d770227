// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity/server"
)

// gated has the servers of a world judge, bound and record dials, and gives a function that reads the records.
func (w *world) gated(sections string) (records func() string) {
	w.Helper()
	cfg, err := hub.ParseGateConfig("k.yaml", []byte("apiVersion: tombolo.dev/v1alpha1\nkind: HubConfig\nclusters: [{name: c1}]\n"+sections))
	w.must(err)
	log := slog.New(slog.DiscardHandler)
	out, err := audit.New(audit.Config{Path: w.file("audit.jsonl"), MaxSize: 1 << 20, MaxAge: time.Hour, Keep: 1},
		audit.Options{Log: log, Reg: prometheus.NewRegistry()})
	w.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- out.While(context.Background(), func() error { <-ctx.Done(); return nil }) }()
	w.Cleanup(func() { // after the servers
		cancel()
		if err := <-ended; err != nil {
			w.Error(err)
		}
	})
	w.gate = func(b server.Behind) (server.Gate, error) {
		return hub.NewGate(cfg, hub.GateOptions{Options: hub.Options{Log: log, Reg: prometheus.NewRegistry(), Audit: out},
			Open: b.Open, By: "konnectivity", Agents: b.Agents, Sockets: b.Sockets})
	}
	return func() string {
		text, _ := os.ReadFile(w.file("audit.jsonl"))
		return string(text)
	}
}

// TestGate puts a policy in front of the reference's agent, in each way in which kube-apiserver calls.
func TestGate(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"grpc", "http-connect"} {
		for _, tcp := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s tcp=%v", mode, tcp), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				echo, other := runtest.Echo(w), runtest.Echo(w)
				host, port, _ := net.SplitHostPort(echo.Addr())
				w.must(os.WriteFile(w.file("p.yaml"), fmt.Appendf(nil, "apiVersion: tombolo.dev/v1alpha1\nkind: AccessPolicy\n"+
					"rules:\n- {name: echo, allow: [\"%s:%s\"]}\n", host, port), 0o600))
				records := w.gated("policies: [" + w.file("p.yaml") + "]\nlimits: {caller: {streams: 2}}\n")
				p := w.ours(mode, tcp)
				theirAgent(w, p.agentPort, "--agent-id=agent-1")
				p.ready()

				conn := p.mustDial(echo.Addr())
				echoes(w, conn, 100_000)
				refused := func(address, want string) {
					ctx, cancel := context.WithTimeout(w.Context(), bound)
					defer cancel()
					if _, err := p.dial(ctx, address); err == nil || mode == "http-connect" && !strings.Contains(err.Error(), want) {
						w.Errorf("%s: %v, not %s", address, err, want)
					}
				}
				refused(other.Addr(), "policy_denied")
				refused("localhost:"+port, "policy_denied")
				second := p.mustDial(echo.Addr())
				refused(echo.Addr(), "limit_reached")
				conn.Close()
				who := map[bool]string{false: `"caller":"unix:c1/`, true: `"caller":"tls:client@c1/`}[tcp]
				eventually(w, "the record of the connection", func() bool {
					for line := range strings.Lines(records()) {
						if strings.Contains(line, `"bytesUp":100000,"bytesDown":100000`) && strings.Contains(line, who) &&
							strings.Contains(line, `"agent":"agent-1"`) && strings.Contains(line, `"rule":"echo"`) {
							return true
						}
					}
					return false
				})
				for _, want := range []string{`"code":"policy_denied"`, `"code":"limit_reached"`, who} {
					if !strings.Contains(records(), want) {
						w.Errorf("no record has %s:\n%s", want, records())
					}
				}
				eventually(w, "the place is free again", func() bool {
					ctx, cancel := context.WithTimeout(w.Context(), bound)
					defer cancel()
					conn, err := p.dial(ctx, echo.Addr())
					if err == nil {
						conn.Close()
					}
					return err == nil
				})
				w.must(os.WriteFile(w.file("p.yaml"), []byte("apiVersion: tombolo.dev/v1alpha1\nkind: AccessPolicy\n"+
					"rules:\n- {name: echo, allow: [\"192.0.2.1:1\"]}\n"), 0o600))
				late := time.AfterFunc(bound, func() { second.Close() })
				io.Copy(io.Discard, second)
				if !late.Stop() {
					w.Error("a connection that the changed policy refuses does not end")
				}
				refused(echo.Addr(), "policy_denied")
			})
		}
	}
}

// TestGateConnections closes the connection of a caller that has as many as it may.
func TestGateConnections(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"grpc", "http-connect"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			records := w.gated("limits: {caller: {sessions: 1}}\n")
			p := w.ours(mode, false)
			for i := range 2 {
				conn, err := net.Dial("unix", p.socket)
				w.must(err)
				defer conn.Close()
				if i == 0 {
					continue
				}
				conn.SetReadDeadline(time.Now().Add(bound))
				if n, err := conn.Read(make([]byte, 1)); err != io.EOF {
					t.Errorf("the second connection reads %d bytes, %v", n, err)
				}
			}
			eventually(t, "the refusal is recorded", func() bool { return strings.Contains(records(), "may have 1 connections") })
		})
	}
}

// TestGateConnectionsOverTLS counts the connections of each caller alone, and none before its handshake.
func TestGateConnectionsOverTLS(t *testing.T) {
	t.Parallel()
	for mode, protocol := range map[string]string{"grpc": "h2", "http-connect": "http/1.1"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			records := w.gated("limits: {caller: {sessions: 1}}\n")
			p := w.ours(mode, true)
			theirAgent(w, p.agentPort)
			p.ready()
			address := fmt.Sprintf("127.0.0.1:%d", p.serverPort)
			for range 10 { // nobody knows whose they are
				conn, err := net.Dial("tcp", address)
				w.must(err)
				defer conn.Close()
			}
			cfg := w.clientTLS("other")
			cfg.NextProtos = []string{protocol}
			for range 2 {
				conn, err := tls.Dial("tcp", address, cfg)
				w.must(err)
				defer conn.Close()
			}
			eventually(t, "the refusal of one of them is recorded", func() bool {
				return strings.Contains(records(), "may have 1 connections") && strings.Contains(records(), `"caller":"tls:other@c1/`)
			})
			w.echo(p) // by another caller
		})
	}
}
