// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// TestTable does the same to two of ours and to two of the reference's, and prints what connections see of it, as the
// table of docs/reference/konnectivity.md. What it asserts is about ours, and no time. TOMBOLO_TABLE_WINDOW=15s looks
// for longer whether something moves again.
func TestTable(t *testing.T) {
	t.Parallel()
	window := 2 * time.Second
	if text := os.Getenv("TOMBOLO_TABLE_WINDOW"); text != "" {
		var err error
		if window, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	pairs := []fleet{{"ours", (*world).ours, ourAgent}, {"reference", (*world).theirs, theirAgent}}
	events := []event{
		{"its caller stops to read: an echo beside it", []string{"grpc", "http-connect"}, callerStops(echoBeside)},
		{"the same: a new dial", []string{"grpc", "http-connect"}, callerStops(dialBeside)},
		{"its target stops to read: an echo beside it", []string{"grpc", "http-connect"}, targetStops(echoBeside)},
		{"the same: a new dial", []string{"grpc", "http-connect"}, targetStops(dialBeside)},
		{"its caller finishes while the target is at its answer", []string{"http-connect"}, halfClose},
		{"its caller finishes, and the target waits for that", []string{"http-connect"}, halfCloseSeen},
		{"two agents with one id: their connections", []string{"grpc", "http-connect"}, oneID},
		{"its agent is killed: a dial under way", []string{"grpc", "http-connect"}, deadAgent},
	}
	var mu sync.Mutex
	cells := map[string]string{}
	t.Run("all", func(t *testing.T) {
		for i, e := range events {
			for _, f := range pairs {
				for _, mode := range e.modes {
					t.Run(fmt.Sprintf("%d %s %s", i, f.name, mode), func(t *testing.T) {
						t.Parallel()
						w := newWorld(t)
						saw := e.do(trial{world: w, fleet: f, mode: mode, window: window})
						if f.name == "ours" && saw.bad {
							t.Errorf("%s: %s", e.name, saw.text)
						}
						mu.Lock()
						defer mu.Unlock()
						cells[fmt.Sprint(i, f.name, mode)] = saw.text
					})
				}
			}
		}
	})
	var s strings.Builder
	s.WriteString("\n| what happens to a connection | here, gRPC | the reference | here, CONNECT | the reference |\n" +
		"| --- | --- | --- | --- | --- |\n")
	for i, e := range events {
		fmt.Fprintf(&s, "| %s |", e.name)
		for _, mode := range []string{"grpc", "http-connect"} {
			for _, f := range pairs {
				cell, ok := cells[fmt.Sprint(i, f.name, mode)]
				if !ok {
					cell = "-"
				}
				fmt.Fprintf(&s, " %s |", cell)
			}
		}
		s.WriteString("\n")
	}
	t.Log(s.String())
}

// event is what is done, and in which modes of a server it can be.
type event struct {
	name  string
	modes []string
	do    func(trial) saw
}

// trial is one pair that it is done to.
type trial struct {
	*world
	fleet
	mode   string
	window time.Duration
}

// saw is what was seen of it; bad of what ours must not do.
type saw struct {
	text string
	bad  bool
}

func (x trial) start(serverFlags ...string) *proxy {
	return x.server(x.world, x.mode, false, serverFlags...)
}

func (x trial) started() *proxy {
	p := x.start()
	x.agent(x.world, p.agentPort)
	p.ready()
	return p
}

// echo is a connection to an echo that has answered.
func (x trial) echo(p *proxy) net.Conn {
	x.Helper()
	conn := x.connect(p, runtest.Echo(x).Addr())
	echoes(x, conn, 1000)
	return conn
}

// connect dials. Nobody waits for the connection to be closed, which takes the reference's client until its server is
// gone where a tunnel stands still.
func (x trial) connect(p *proxy, address string) net.Conn {
	x.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	x.Cleanup(cancel)
	conn, err := p.dial(ctx, address)
	x.must(err)
	x.Cleanup(func() { go conn.Close() })
	return conn
}

// callerStops reads nothing of what a target sends as fast as it can.
func callerStops(beside func(trial, *proxy, net.Conn) saw) func(trial) saw {
	return func(x trial) saw {
		p := x.started()
		flood := runtest.Serve(x, func(c *net.TCPConn) {
			if _, err := io.ReadFull(c, make([]byte, 1)); err == nil { // a target that speaks first fails dials
				io.Copy(c, zeros{})
			}
		})
		other := x.echo(p)
		_, err := io.WriteString(x.connect(p, flood.Addr()), "!")
		x.must(err)
		return beside(x, p, other)
	}
}

// targetStops lets a target read nothing of what a caller sends.
func targetStops(beside func(trial, *proxy, net.Conn) saw) func(trial) saw {
	return func(x trial) saw {
		p := x.started()
		deaf := runtest.Serve(x, func(*net.TCPConn) { <-x.Context().Done() })
		other := x.echo(p)
		conn := x.connect(p, deaf.Addr())
		go io.Copy(conn, zeros{})
		return beside(x, p, other)
	}
}

// echoBeside sends a byte again and again on another connection for the window, and says how long it waited at most.
func echoBeside(x trial, _ *proxy, conn net.Conn) saw {
	var mu sync.Mutex
	var longest time.Duration
	last := time.Now()
	came := make(chan struct{}, 1)
	go func() {
		var b [1]byte
		for {
			if _, err := conn.Write(b[:]); err != nil {
				return
			}
			if _, err := io.ReadFull(conn, b[:]); err != nil {
				return
			}
			now := time.Now()
			mu.Lock()
			longest, last = max(longest, now.Sub(last)), now
			mu.Unlock()
			select {
			case came <- struct{}{}:
			default:
			}
		}
	}()
	most := func() (waited, stands time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		stands = time.Since(last)
		return max(longest, stands), stands
	}
	<-time.After(x.window)
	waited, stands := most()
	if stands < time.Second {
		return saw{text: "at most " + rounded(waited)}
	}
	select { // one byte that came within the window may be in the channel
	case <-came:
	default:
	}
	if x.name == "ours" { // it has all the time that it needs
		select {
		case <-came:
			waited, _ = most()
			return saw{text: "at most " + rounded(waited)}
		case <-time.After(bound):
		}
	}
	return saw{text: "stands still after " + rounded(stands), bad: true}
}

// dialBeside makes connections for the window, one after the other, and says what the slowest dial took.
func dialBeside(x trial, p *proxy, _ net.Conn) saw {
	echo := runtest.Echo(x)
	var longest time.Duration
	most := x.window
	if x.name == "ours" {
		most = bound
	}
	next := time.NewTicker(x.window / 40) // all ends are in this process, and each connection has descriptors for a while
	defer next.Stop()
	for end := time.Now().Add(x.window); time.Now().Before(end); <-next.C {
		begin := time.Now()
		ctx, cancel := context.WithTimeout(x.Context(), most)
		conn, err := p.dial(ctx, echo.Addr())
		took := time.Since(begin)
		if err != nil {
			cancel()
			x.Logf("a dial after %v: %v", took, err)
			return saw{text: "none within " + rounded(took), bad: true}
		}
		go conn.Close()
		cancel()
		longest = max(longest, took)
	}
	return saw{text: "at most " + rounded(longest)}
}

// rounded has two digits.
func rounded(d time.Duration) string {
	if d < 100*time.Millisecond {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// halfClose finishes while the target is at its answer.
func halfClose(x trial) saw {
	finished := make(chan struct{})
	return x.finish(bound, finished, func(c *net.TCPConn) {
		if _, err := io.ReadFull(c, make([]byte, len(question))); err == nil {
			<-finished
			io.WriteString(c, "answer")
		}
		c.Close()
	})
}

// halfCloseSeen finishes, and the target answers when it has seen that, which the wire does not tell it.
func halfCloseSeen(x trial) saw {
	out := x.finish(x.window, make(chan struct{}), func(c *net.TCPConn) {
		io.Copy(io.Discard, c)
		io.WriteString(c, "answer")
		c.Close()
	})
	out.bad = false
	return out
}

const question = "question"

func (x trial) finish(patience time.Duration, finished chan struct{}, serve func(*net.TCPConn)) saw {
	p := x.started()
	conn := x.connect(p, runtest.Serve(x, serve).Addr())
	_, err := io.WriteString(conn, question)
	x.must(err)
	x.must(conn.(interface{ CloseWrite() error }).CloseWrite())
	close(finished)
	x.must(conn.SetReadDeadline(time.Now().Add(patience)))
	if got, _ := io.ReadAll(conn); string(got) != "answer" {
		return saw{text: "the answer is lost", bad: true}
	}
	return saw{text: "the answer comes"}
}

// oneID gives two agents one id and one certificate. Each has a connection of its own.
func oneID(x trial) saw {
	p := x.start("--proxy-strategies=destHost")
	agents := []string{"ipv4=127.0.0.1", "host=localhost"}
	for _, near := range agents {
		x.agent(x.world, p.agentPort, "--agent-id=same", "--agent-identifiers="+near)
	}
	_, port, err := net.SplitHostPort(runtest.Echo(x).Addr())
	x.must(err)
	dial := func(host string) (conn net.Conn) { // an agent may not be there yet
		eventually(x, "a dial by the agent of "+host, func() bool {
			ctx, cancel := context.WithTimeout(x.Context(), bound)
			x.Cleanup(cancel)
			var err error
			conn, err = p.dial(ctx, net.JoinHostPort(host, port))
			return err == nil
		})
		x.Cleanup(func() { go conn.Close() })
		return conn
	}
	conns := []net.Conn{dial("127.0.0.1"), dial("localhost")}
	got := make(chan string, len(conns))
	for i, conn := range conns {
		own := fmt.Sprintf("of connection %d", i)
		if _, err := io.WriteString(conn, own); err != nil {
			got <- err.Error()
			continue
		}
		go func() {
			b := make([]byte, len(own))
			_, err := io.ReadFull(conn, b)
			if err == nil && string(b) != own {
				got <- "bytes cross"
				return
			}
			got <- fmt.Sprint(err)
		}()
	}
	limit := time.NewTimer(x.window)
	if x.name == "ours" {
		limit.Reset(bound)
	}
	defer limit.Stop()
	out := saw{text: "each has its own"}
	for range conns {
		select {
		case said := <-got:
			switch {
			case said == "bytes cross":
				return saw{text: said, bad: true}
			case said != "<nil>":
				out = saw{text: "one is lost", bad: true}
			}
		case <-limit.C:
			return saw{text: "one is lost", bad: true}
		}
	}
	return out
}

// deadAgent kills an agent that dials an address that does not answer.
func deadAgent(x trial) saw {
	p := x.start()
	a := theirAgent(x.world, p.agentPort) // of both: what is looked at is the server
	p.ready()
	silent := x.silent()
	failed := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(x.Context(), bound)
		defer cancel()
		_, err := p.dial(ctx, silent)
		failed <- err
	}()
	eventually(x, "the dial is under way", func() bool {
		return metric(p.healthPort, "konnectivity_network_proxy_server_pending_backend_dials") == "1"
	})
	a.process.Process.Kill()
	begin := time.Now()
	limit := time.NewTimer(x.window)
	if x.name == "ours" {
		limit.Reset(bound)
	}
	defer limit.Stop()
	select {
	case <-failed:
		return saw{text: "fails after " + rounded(time.Since(begin))}
	case <-limit.C:
		return saw{text: "waits after " + rounded(x.window), bad: true}
	}
}
