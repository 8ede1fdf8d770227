// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// ways are those in which kube-apiserver reaches a server.
func ways() map[string]func(*world, func(mode string, tcp bool, extra ...string) *proxy) *proxy {
	out := map[string]func(*world, func(mode string, tcp bool, extra ...string) *proxy) *proxy{}
	for _, mode := range []string{"grpc", "http-connect"} {
		for _, tcp := range []bool{false, true} {
			name := mode + map[bool]string{false: " uds", true: " tcp"}[tcp]
			out[name] = func(_ *world, start func(string, bool, ...string) *proxy) *proxy { return start(mode, tcp) }
		}
	}
	return out
}

// TestTheirAgentsOnOurServer dials through the reference's agent in each way.
func TestTheirAgentsOnOurServer(t *testing.T) {
	t.Parallel()
	for name, start := range ways() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := start(w, w.ours)
			w.theirAgent(p.agentPort)
			p.ready()
			echo := runtest.Echo(t)
			for range 3 {
				echoes(t, p.mustDial(echo.Addr()), 100_000)
			}
			conn := p.mustDial(echo.Addr())
			conn.Close()
			runtest.Eventually(t, "the connections have ended", func() bool {
				return metric(p.healthPort, "konnectivity_network_proxy_server_pending_backend_dials") == "0"
			})
			refused := w.ports(1)[0]
			ctx, cancel := context.WithTimeout(t.Context(), bound)
			defer cancel()
			_, err := p.dial(ctx, fmt.Sprintf("127.0.0.1:%d", refused))
			if err == nil {
				t.Fatal("a port where nobody listens was reached")
			}
			if p.mode != "grpc" && !strings.Contains(err.Error(), "refused") {
				t.Errorf("the dial failed with %v", err)
			}
		})
	}
}

// TestLargeTransfers carries more than every queue holds.
func TestLargeTransfers(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"grpc", "http-connect"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := w.ours(mode, false)
			w.theirAgent(p.agentPort)
			p.ready()
			const size = 24 << 20
			source := runtest.Serve(t, func(c *net.TCPConn) {
				io.CopyN(c, zeros{}, size)
				c.Close()
			})
			n, err := io.Copy(io.Discard, p.mustDial(source.Addr()))
			if n != size {
				t.Errorf("%d bytes came of %d: %v", n, size, err)
			}
			sum := make(chan int64, 1)
			sink := runtest.Serve(t, func(c *net.TCPConn) {
				n, _ := io.CopyN(io.Discard, c, size)
				sum <- n
			})
			conn := p.mustDial(sink.Addr())
			if _, err := io.CopyN(conn, zeros{}, size); err != nil {
				t.Fatal(err)
			}
			select {
			case n := <-sum:
				if n != size {
					t.Errorf("%d bytes arrived of %d", n, size)
				}
			case <-time.After(bound):
				t.Error("the upload does not end")
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }
