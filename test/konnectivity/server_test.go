// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

type startServer = func(w *world, mode string, tcp bool, extra ...string) *proxy

// fleet is a pair of which at least one is ours.
type fleet struct {
	name   string
	server startServer
	agent  startAgent
}

func fleets() []fleet {
	return []fleet{
		{"their agent, our server", (*world).ours, theirAgent},
		{"our agent, their server", (*world).theirs, ourAgent},
		{"both ours", (*world).ours, ourAgent},
	}
}

// each runs a test for each fleet and each way in which kube-apiserver reaches a server.
func each(t *testing.T, tcp []bool, test func(w *world, f fleet, p *proxy)) {
	t.Parallel()
	for _, f := range fleets() {
		for _, mode := range []string{"grpc", "http-connect"} {
			for _, overTCP := range tcp {
				name := fmt.Sprintf("%s, %s %s", f.name, mode, map[bool]string{false: "uds", true: "tcp"}[overTCP])
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					w := newWorld(t)
					test(w, f, f.server(w, mode, overTCP))
				})
			}
		}
	}
}

// TestFleets dials in each way through each fleet.
func TestFleets(t *testing.T) {
	each(t, []bool{false, true}, func(w *world, f fleet, p *proxy) {
		f.agent(w, p.agentPort)
		p.ready()
		echo := runtest.Echo(w)
		for range 3 {
			echoes(w, p.mustDial(echo.Addr()), 100_000)
		}
		p.mustDial(echo.Addr()).Close()
		eventually(w, "no dial is under way", func() bool {
			return metric(p.healthPort, "konnectivity_network_proxy_server_pending_backend_dials") == "0"
		})
		const writes = "konnectivity_network_proxy_server_frontend_write_duration_seconds_count"
		if n, err := strconv.Atoi(metric(p.healthPort, writes)); err != nil || n < 6 {
			w.Errorf("%s is %d (%v), after two packets of each of three connections", writes, n, err)
		}
		ctx, cancel := context.WithTimeout(w.Context(), bound)
		defer cancel()
		_, err := p.dial(ctx, fmt.Sprintf("127.0.0.1:%d", w.ports(1)[0]))
		if err == nil {
			w.Fatal("a port where nobody listens was reached")
		}
		if p.mode != "grpc" && p.process == nil && !strings.Contains(err.Error(), "refused") {
			w.Errorf("the dial failed with %v", err)
		}
	})
}

// TestLargeTransfers carries more than every queue holds.
func TestLargeTransfers(t *testing.T) {
	each(t, []bool{false}, func(w *world, f fleet, p *proxy) {
		f.agent(w, p.agentPort)
		p.ready()
		const size = 24 << 20
		source := runtest.Serve(w, func(c *net.TCPConn) { // asked: their CONNECT loses to who speaks first
			io.ReadFull(c, make([]byte, 1))
			io.CopyN(c, zeros{}, size)
			c.Close()
		})
		from := p.mustDial(source.Addr())
		io.WriteString(from, "x")
		n, err := io.Copy(io.Discard, from)
		if n != size {
			w.Errorf("%d bytes came of %d: %v", n, size, err)
		}
		sum := make(chan int64, 1)
		sink := runtest.Serve(w, func(c *net.TCPConn) {
			n, _ := io.CopyN(io.Discard, c, size)
			sum <- n
		})
		conn := p.mustDial(sink.Addr())
		if _, err := io.CopyN(conn, zeros{}, size); err != nil {
			w.Fatal(err)
		}
		select {
		case n := <-sum:
			if n != size {
				w.Errorf("%d bytes arrived of %d", n, size)
			}
		case <-time.After(bound):
			w.Error("the upload does not end")
		}
	})
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// TestSilentCallers opens more connections than may do their handshake at a time: silent ones make room.
func TestSilentCallers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.ours("http-connect", true)
	theirAgent(w, p.agentPort)
	p.ready()
	for range 300 {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", p.serverPort))
		w.must(err)
		defer conn.Close()
	}
	w.echo(p)
	if !strings.Contains(p.log.String(), "a silent connection of --server-port was closed for a newer one") {
		t.Error("no silent connection has made room")
	}
}
