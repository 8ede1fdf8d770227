// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// TestAStalledConnection lets a caller not read what its target sends, and a target not read what its caller sends:
// other connections continue, and dials too. Where our end of a tunnel is not the one that has the bytes, the reference
// stands still, which we do not test.
func TestAStalledConnection(t *testing.T) {
	t.Parallel()
	for _, f := range fleets() {
		for _, mode := range []string{"grpc", "http-connect"} {
			if f.name != "our agent, their server" {
				t.Run(f.name+", "+mode+", the caller does not read", func(t *testing.T) {
					t.Parallel()
					w, p := started(t, f, mode)
					flood := runtest.Serve(w, func(c *net.TCPConn) { io.Copy(c, zeros{}) })
					other := w.echo(p)
					stalled := p.mustDial(flood.Addr()) // and nobody reads
					w.lives(p, other)
					if f.name == "both ours" { // it only waits
						stalled.Close()
					}
					io.Copy(io.Discard, stalled) // it was reset, and has an end
				})
			}
			if f.name != "their agent, our server" {
				t.Run(f.name+", "+mode+", the target does not read", func(t *testing.T) {
					t.Parallel()
					w, p := started(t, f, mode)
					stop := make(chan struct{})
					deaf := runtest.Serve(w, func(c *net.TCPConn) { <-stop; c.Close() })
					let := sync.OnceFunc(func() { close(stop) })
					defer let()
					other := w.echo(p)
					conn := p.mustDial(deaf.Addr())
					ended := make(chan struct{})
					go func() { defer close(ended); io.Copy(conn, zeros{}) }()
					w.lives(p, other)
					if f.name == "both ours" { // it only waits, and with gRPC so does the reference's Close
						let()
					}
					conn.Close()
					<-ended
				})
			}
		}
	}
}

func started(t *testing.T, f fleet, mode string) (*world, *proxy) {
	t.Helper()
	w := newWorld(t)
	p := f.server(w, mode, false)
	f.agent(w, p.agentPort)
	p.ready()
	return w, p
}

// echo is a connection to an echo that has answered.
func (w *world) echo(p *proxy) net.Conn {
	w.Helper()
	conn := p.mustDial(runtest.Echo(w).Addr())
	echoes(w, conn, 1000)
	return conn
}

// lives checks that connections and dials go on beside one that stands still.
func (w *world) lives(p *proxy, conn net.Conn) {
	w.Helper()
	for range 200 { // more than all queues and sockets hold: the flood is under way meanwhile
		echoes(w, conn, 10_000)
	}
	for range 5 {
		echoes(w, p.mustDial(runtest.Echo(w).Addr()), 10_000)
	}
}

// TestAnAgentThatGoes fails dials that wait for it, and ends its connections.
func TestAnAgentThatGoes(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"grpc", "http-connect"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := w.ours(mode, false)
			a := theirAgent(w, p.agentPort)
			p.ready()
			conn := w.echo(p)
			failed := make(chan error, 1)
			silent := w.silent()
			ctx, cancel := context.WithTimeout(t.Context(), bound)
			defer cancel()
			go func() {
				_, err := p.dial(ctx, silent)
				failed <- err
			}()
			eventually(t, "the dial is under way", func() bool {
				return metric(p.healthPort, "konnectivity_network_proxy_server_pending_backend_dials") == "1"
			})
			a.process.Process.Kill()
			select {
			case err := <-failed:
				if err == nil {
					t.Error("the dial has succeeded")
				}
			case <-time.After(bound):
				t.Error("the dial waits for an agent that is gone")
			}
			if _, err := io.Copy(io.Discard, conn); err != nil {
				t.Logf("the connection ended: %v", err)
			}
			const lost = `konnectivity_network_proxy_server_dial_failure_count{reason="backend_close"}`
			if got := metric(p.healthPort, lost); got != "1" {
				t.Errorf("%s is %s", lost, got)
			}
			_, err := p.dial(ctx, "127.0.0.1:1")
			if err == nil || mode != "grpc" && !strings.Contains(err.Error(), "No agent available") {
				t.Errorf("without an agent: %v", err)
			}
		})
	}
}

// silent is an address that answers no SYN: its backlog is full.
func (w *world) silent() string {
	w.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	w.must(err)
	w.Cleanup(func() { unix.Close(fd) })
	w.must(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	w.must(unix.Listen(fd, 0))
	name, err := unix.Getsockname(fd)
	w.must(err)
	address := fmt.Sprintf("127.0.0.1:%d", name.(*unix.SockaddrInet4).Port)
	for range 8 {
		conn, err := net.DialTimeout("tcp", address, 100*time.Millisecond)
		if err != nil {
			return address
		}
		w.Cleanup(func() { conn.Close() })
	}
	w.Fatal("a full backlog takes connections")
	return ""
}

// TestDrains lets a server and an agent end when their last connection has.
func TestDrains(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.ours("grpc", false, "--graceful-shutdown-timeout=10m")
	a := ourAgent(w, p.agentPort)
	p.ready()
	conn := w.echo(p)
	a.soft()
	eventually(t, "the agent drains", func() bool { return strings.Contains(a.log.String(), "draining") })
	echoes(t, conn, 1000)
	p.soft()
	eventually(t, "the server drains", func() bool { return strings.Contains(p.log.String(), "draining") })
	echoes(t, conn, 1000)
	if _, err := p.dial(t.Context(), "127.0.0.1:1"); err == nil {
		t.Error("a server that drains dials")
	}
	conn.Close()
	for _, ended := range []chan error{a.ended, p.ended} {
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
			ended <- nil
		case <-time.After(bound):
			t.Fatal("it does not end")
		}
	}
}

// TestAnAgentThatDrains is not dialled through while there is another one.
func TestAnAgentThatDrains(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.ours("grpc", false, "--proxy-strategies=destHost,default")
	first := ourAgent(w, p.agentPort, "--agent-id=first", "--agent-identifiers=ipv4=127.0.0.1")
	p.ready()
	held := w.echo(p)
	first.soft()
	const drains = `konnectivity_network_proxy_server_stream_packets_total{packet_type="DRAIN",segment="from_agent"}`
	eventually(t, "the server knows of the drain", func() bool { return metric(p.healthPort, drains) == "1" })
	w.echo(p).Close() // the only one is the last resort
	ourAgent(w, p.agentPort, "--agent-id=second", "--agent-identifiers=ipv4=127.0.0.1")
	eventually(t, "the second agent is connected", func() bool {
		return metric(p.healthPort, `konnectivity_network_proxy_server_ready_backends{proxy_strategy="destHost"}`) == "2"
	})
	for range 12 {
		w.echo(p)
	}
	if n := metric(first.health, "konnectivity_network_proxy_agent_open_endpoint_connections"); n != "1" {
		t.Errorf("the agent that drains has %s connections, and had one when the other came", n)
	}
	held.Close()
	select {
	case err := <-first.ended: // nothing new came to it
		first.ended <- err
	case <-time.After(bound):
		t.Fatal("the first agent does not end")
	}
	w.echo(p)
}

// TestOneIDOfTwoAgents refuses the second one if its certificate is another one's.
func TestOneIDOfTwoAgents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.ours("grpc", false)
	theirAgent(w, p.agentPort, "--agent-id=same")
	p.ready()
	theirAgent(w, p.agentPort, "--agent-id=same", "--agent-cert="+w.file("other.crt"), "--agent-key="+w.file("other.key"))
	eventually(t, "it is refused", func() bool { return strings.Contains(p.log.String(), "is taken") })
	theirAgent(w, p.agentPort, "--agent-id=same") // the same certificate: a tunnel of its own, and ids of its own
	eventually(t, "a second tunnel", func() bool {
		return metric(p.healthPort, "konnectivity_network_proxy_server_ready_backend_connections") == "2"
	})
	for range 10 {
		echoes(t, p.mustDial(runtest.Echo(t).Addr()), 10_000)
	}
}

// TestSeveralServers connects one agent to each of several servers by a load balancer, and again when one is back.
func TestSeveralServers(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]startAgent{"their agent": theirAgent, "our agent": ourAgent} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			one := w.ours("grpc", false, "--server-count=2", "--server-id=one")
			two := w.theirs("grpc", false, "--server-count=2", "--server-id=two")
			balancer := balance(w, fmt.Sprintf("127.0.0.1:%d", one.agentPort), fmt.Sprintf("127.0.0.1:%d", two.agentPort))
			a := start(w, balancer)
			one.ready()
			two.ready()
			a.ready()
			eventually(t, "both are counted", func() bool {
				return metric(a.health, "konnectivity_network_proxy_agent_open_server_connections") == "2" &&
					metric(a.health, "konnectivity_network_proxy_agent_known_server_count") == "2"
			})
			w.echo(one)
			w.echo(two)
		})
	}
}

// balance forwards connections to addresses in turn, and gives its port.
func balance(w *world, to ...string) int {
	var n atomic.Int64
	s := runtest.Serve(w, func(c *net.TCPConn) {
		turn := n.Add(1)
		out, err := net.Dial("tcp", to[turn%int64(len(to))])
		if err != nil {
			c.Close()
			return
		}
		go func() { io.Copy(out, c); out.Close() }()
		io.Copy(c, out)
		c.Close()
	})
	_, port, err := net.SplitHostPort(s.Addr())
	w.must(err)
	var p int
	fmt.Sscan(port, &p)
	return p
}
