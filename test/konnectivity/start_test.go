// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity/server"
)

// TestAServerThatHasJustStarted lets a dial wait for the first agent: it is the successor of one that had agents.
func TestAServerThatHasJustStarted(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]startAgent{"their agent": theirAgent, "our agent": ourAgent} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := w.ours("http-connect", false)
			conn, err := net.Dial("unix", p.socket)
			w.must(err)
			defer conn.Close()
			_, err = fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", runtest.Echo(t).Addr())
			w.must(err)
			start(w, p.agentPort)
			answer, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect})
			w.must(err)
			if answer.StatusCode != http.StatusOK {
				t.Fatal(answer.Status)
			}
			echoes(t, conn, 1000)
		})
	}
}

// TestASecondServer with the same arguments is refused for its ports, and leaves the first one its socket.
func TestASecondServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.ours("http-connect", false)
	ourAgent(w, p.agentPort)
	p.ready()
	if err := w.ourServer(p.args, io.Discard).Run(t.Context(), t.Context()); !fault.Has(err, fault.CodeAddressBusy) {
		t.Errorf("the second one ended with %v", err)
	}
	conn := p.mustDial(runtest.Echo(t).Addr())
	defer conn.Close()
	echoes(t, conn, 1000)
}

// TestAServerWithoutAnAgent says so when the first one has had its time.
func TestAServerWithoutAnAgent(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"grpc", "http-connect"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := w.ours(mode, false)
			ctx, cancel := context.WithTimeout(t.Context(), bound)
			defer cancel()
			_, err := p.dial(ctx, "127.0.0.1:1")
			if err == nil || mode != "grpc" && !strings.Contains(err.Error(), "No agent available") || ctx.Err() != nil {
				t.Errorf("a dial: %v", err)
			}
		})
	}
}

// TestTheLastAgentThatDrains is dialled through for as long as there is no other one, also between two connections.
func TestTheLastAgentThatDrains(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.ours("grpc", false)
	a := ourAgent(w, p.agentPort)
	p.ready()
	a.soft()
	for begin := time.Now(); time.Since(begin) < 3*time.Second; {
		conn := p.mustDial(runtest.Echo(t).Addr())
		echoes(t, conn, 1000)
		conn.Close()
		eventually(t, "the connection has ended", func() bool {
			return metric(a.health, "konnectivity_network_proxy_agent_open_endpoint_connections") == "0"
		})
	}
	eventually(t, "the agent ends when nobody uses it any more", func() bool {
		status, _ := get(a.health, "/healthz")
		return status == 0
	})
}

// ourServer makes our server, which is not started.
func (w *world) ourServer(args []string, to io.Writer) *server.Server {
	w.Helper()
	var o server.Options
	fl := pflag.NewFlagSet("konnectivity-server", pflag.ContinueOnError)
	o.Flags(fl, func(string) string { return "" })
	w.must(fl.Parse(args))
	log := slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s, err := server.New(o, server.Deps{Log: log, Reg: prometheus.NewRegistry(), Getenv: func(string) string { return "" }, Gate: w.gate,
		Reviews: w.reviews})
	w.must(err)
	return s
}
