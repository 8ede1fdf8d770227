// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity"
)

// bothOurs are a server and an agent of ours, whose session is native or not.
func bothOurs(w *world, mode string, native bool, extra ...string) (*proxy, *agentOf) {
	w.Helper()
	p := w.ours(mode, false, extra...)
	a := ourAgent(w, p.agentPort)
	p.ready()
	a.ready()
	if got := strings.Contains(p.log.String(), konnectivity.ALPN); got != native {
		w.Fatalf("the session is native: %v, want %v; the server's log:\n%s", got, native, p.log.String())
	}
	return p, a
}

// TestAStoppedReaderHasAllOfItInTheEnd lets a caller stop for longer than a tunnel waits, while others continue. It is
// one of HTTP CONNECT: the reference's client with gRPC gives up a reader after 10 s of its own accord.
func TestAStoppedReaderHasAllOfItInTheEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, a := bothOurs(w, "http-connect", true)
	const size = 64 << 20 // more than all buffers on the way
	var sent counter
	source := runtest.Serve(w, func(c *net.TCPConn) {
		io.CopyN(io.MultiWriter(c, &sent), zeros{}, size)
		c.CloseWrite()
		io.Copy(io.Discard, c)
	})
	stopped := p.mustDial(source.Addr())
	other := w.echo(p)
	last, since := sent.Load(), time.Now()
	for time.Since(since) < 2*time.Second { // nothing moves for twice the patience of a tunnel of packets
		echoes(w, other, 10_000)
		if n := sent.Load(); n != last {
			last, since = n, time.Now()
		}
	}
	if last == 0 || last >= size {
		t.Fatalf("%d bytes were sent, and it did not stop", last)
	}
	w.lives(p, other)
	if n, err := io.Copy(io.Discard, stopped); n != size || err != nil {
		t.Errorf("%d bytes came of %d: %v", n, size, err)
	}
	for kind, port := range map[string]int{"server": p.healthPort, "agent": a.health} {
		for _, labels := range []string{`packet_type="DIAL_REQ",segment="to_agent"`, `packet_type="DATA",segment="from_agent"`} {
			name := "konnectivity_network_proxy_" + kind + "_stream_packets_total{" + labels + "}"
			if v := metric(port, name); v == "" || v == "0" {
				t.Errorf("%s is %q", name, v)
			}
		}
	}
}

// TestHalfClose lets a caller of HTTP CONNECT finish first. The answer comes after more than a tunnel of packets waits.
func TestHalfClose(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, _ := bothOurs(w, "http-connect", true)
	answer := make(chan struct{})
	target := runtest.Serve(w, func(c *net.TCPConn) {
		got, err := io.ReadAll(c)
		if err != nil {
			return
		}
		close(answer)
		c.Write(bytes.ToUpper(got))
		c.Close()
	})
	conn := p.mustDial(target.Addr())
	io.WriteString(conn, "a question")
	conn.(interface{ CloseWrite() error }).CloseWrite()
	select {
	case <-answer: // the target has seen the end, and the caller none yet
	case <-time.After(bound):
		t.Fatal("the target does not see that its caller has finished")
	}
	got, err := io.ReadAll(conn)
	if string(got) != "A QUESTION" || err != nil {
		t.Errorf("the answer is %q, %v", got, err)
	}
}

// TestOlderEnds lets one end not offer the session: that is what older releases do.
func TestOlderEnds(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][2]string{
		"an older server": {"--native=false", "--native=true"}, "an older agent": {"--native=true", "--native=false"},
		"both": {"--native=false", "--native=false"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := w.ours("grpc", false, flags[0])
			ourAgent(w, p.agentPort, flags[1])
			p.ready()
			w.echo(p)
			if strings.Contains(p.log.String(), konnectivity.ALPN) {
				t.Error("the session is native")
			}
		})
	}
}

// TestAServerThatComesBack lets the agent find it again, first without the session and then with it.
func TestAServerThatComesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.ours("grpc", false, "--native=false", "--server-id=one")
	ports := make(chan string, 1)
	ports <- fmt.Sprintf("127.0.0.1:%d", p.agentPort)
	n := w.forward(func() string { at := <-ports; ports <- at; return at }, nil)
	a := ourAgent(w, n)
	p.ready()
	conn := w.echo(p)
	next := w.ours("grpc", false, "--server-id=one")
	<-ports
	ports <- fmt.Sprintf("127.0.0.1:%d", next.agentPort)
	p.soft()
	next.ready()
	if _, err := io.Copy(io.Discard, conn); err != nil {
		t.Logf("the connection ended: %v", err)
	}
	w.echo(next)
	if !strings.Contains(next.log.String(), konnectivity.ALPN) {
		t.Error("the session is not native")
	}
	a.ready()
}

// TestANativeAgentThatGoes ends connections and dials, which a session has of its own.
func TestANativeAgentThatGoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.ours("http-connect", false)
	cut := make(chan struct{})
	n := w.forward(func() string { return fmt.Sprintf("127.0.0.1:%d", p.agentPort) }, cut)
	ourAgent(w, n)
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
	close(cut)
	select {
	case err := <-failed:
		if err == nil {
			t.Error("the dial has succeeded")
		}
	case <-time.After(bound):
		t.Fatal("the dial waits for an agent that is gone")
	}
	if _, err := io.Copy(io.Discard, conn); err != nil {
		t.Logf("the connection ended: %v", err)
	}
	const lost = `konnectivity_network_proxy_server_dial_failure_count{reason="backend_close"}`
	if got := metric(p.healthPort, lost); got != "1" {
		t.Errorf("%s is %s", lost, got)
	}
	eventually(t, "no connection is open", func() bool {
		return metric(p.healthPort, "konnectivity_network_proxy_server_established_connections") == "0"
	})
}

// TestNativeIdentities refuses an agent whose id is another holder's.
func TestNativeIdentities(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.ours("grpc", false)
	ourAgent(w, p.agentPort, "--agent-id=same")
	p.ready()
	other := ourAgent(w, p.agentPort, "--agent-id=same", "--agent-cert="+w.file("other.crt"),
		"--agent-key="+w.file("other.key"))
	eventually(t, "the agent knows why", func() bool { return strings.Contains(other.log.String(), "is taken") })
	w.echo(p)
}

// counter counts what is written to it.
type counter struct{ atomic.Int64 }

func (c *counter) Write(b []byte) (int, error) { c.Add(int64(len(b))); return len(b), nil }

// forward gives a port whose connections lead to an address until cut is closed.
func (w *world) forward(to func() string, cut <-chan struct{}) (port int) {
	s := runtest.Serve(w, func(c *net.TCPConn) {
		defer c.Close()
		out, err := net.Dial("tcp", to())
		if err != nil {
			return
		}
		over := make(chan struct{})
		defer close(over)
		go func() {
			select {
			case <-cut:
			case <-over:
			}
			c.Close()
			out.Close()
		}()
		go func() { io.Copy(out, c); out.Close() }()
		io.Copy(c, out)
	})
	_, text, err := net.SplitHostPort(s.Addr())
	w.must(err)
	fmt.Sscan(text, &port)
	return port
}
