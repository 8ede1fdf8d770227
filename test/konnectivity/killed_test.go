// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"fmt"
	"io"
	"net"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// TestKilled kills a server, and an agent, with SIGKILL while bytes move in both directions. These connections end at
// both of their ends, what is dialled next goes by the other server or agent, and the one that was killed comes back with
// the same arguments, at the socket that it left.
func TestKilled(t *testing.T) {
	t.Parallel()
	tombolo := runtest.Program(t)
	for _, mode := range []string{"grpc", "http-connect"} {
		for _, native := range []string{"--native=true", "--native=false"} {
			t.Run(mode+" "+native, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				one := w.program(tombolo, mode, native, "--server-count=2", "--server-id=one")
				two := w.program(tombolo, mode, native, "--server-count=2", "--server-id=two")
				balancer := balance(w, fmt.Sprintf("127.0.0.1:%d", one.agentPort), fmt.Sprintf("127.0.0.1:%d", two.agentPort))
				first := w.agentProgram(tombolo, balancer, native)
				first.ready()

				ended := w.transfers(one)
				one.process.End(t, syscall.SIGKILL)
				ended()
				w.echo(two)
				one.restart(tombolo)
				one.agents("1")
				w.echo(one)

				ended = w.transfers(one)
				second := w.agentProgram(tombolo, balancer, native)
				second.ready()
				first.process.End(t, syscall.SIGKILL)
				ended()
				one.agents("1")
				two.agents("1")
				w.echo(one)
				w.echo(two)
				first.restart(tombolo)
				first.ready()
				one.agents("2")
				two.agents("2")
			})
		}
	}
}

// program starts our server as a process.
func (w *world) program(tombolo, mode string, extra ...string) *proxy {
	w.Helper()
	p, args := w.prepare(mode, false, extra)
	p.args = append([]string{"konnectivity-server"}, args...)
	p.restart(tombolo)
	return p
}

// restart starts it, again with the same arguments.
func (p *proxy) restart(tombolo string) {
	p.w.Helper()
	p.process = runtest.Start(p.w, exec.Command(tombolo, p.args...))
	p.up()
}

// agents waits until the server has so many.
func (p *proxy) agents(n string) {
	p.w.Helper()
	eventually(p.w, "the server has agents: "+n, func() bool {
		return metric(p.healthPort, "konnectivity_network_proxy_server_ready_backend_connections") == n
	})
}

// agentProgram starts our agent as a process.
func (w *world) agentProgram(tombolo string, port int, extra ...string) *agentOf {
	w.Helper()
	a := &agentOf{w: w}
	a.health, a.admin, a.args = w.agentFlags(port, extra)
	a.restart(tombolo)
	return a
}

func (a *agentOf) restart(tombolo string) {
	a.w.Helper()
	a.process = runtest.Start(a.w, exec.Command(tombolo, append([]string{"konnectivity-agent"}, a.args...)...))
}

// transfers has bytes move through a server, one connection for each direction, and gives what waits for the ends of
// both at both ends.
func (w *world) transfers(p *proxy) (ended func()) {
	w.Helper()
	var down, up counter
	ends := map[string]chan struct{}{}
	for _, name := range []string{"the target that sends", "the target that reads", "the caller that reads", "the caller that sends"} {
		ends[name] = make(chan struct{})
	}
	source := runtest.Serve(w, func(c *net.TCPConn) {
		defer close(ends["the target that sends"])
		io.Copy(c, zeros{})
	})
	sink := runtest.Serve(w, func(c *net.TCPConn) {
		defer close(ends["the target that reads"])
		io.Copy(&up, c)
	})
	from, to := p.mustDial(source.Addr()), p.mustDial(sink.Addr())
	go func() {
		defer close(ends["the caller that reads"])
		io.Copy(&down, from)
	}()
	go func() {
		defer close(ends["the caller that sends"])
		io.Copy(to, zeros{})
	}()
	eventually(w, "bytes move", func() bool { return down.Load() > 4<<20 && up.Load() > 4<<20 })
	return func() {
		w.Helper()
		since := time.Now()
		for name, end := range ends {
			select {
			case <-end:
			case <-time.After(bound):
				w.Fatalf("%s has no end", name)
			}
		}
		w.Logf("all ended within %v", time.Since(since))
	}
}
