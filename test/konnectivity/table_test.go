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
		{"its caller reads 200 KiB/s, the reference's wire: an echo beside it", []string{"grpc", "http-connect"}, callerIsSlow},
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
	text    string
	answers int // of an echo
	bad     bool
}

func (x trial) start(serverFlags ...string) *proxy {
	return x.server(x.world, x.mode, false, serverFlags...)
}

func (x trial) started(serverFlags ...string) *proxy {
	p := x.start(serverFlags...)
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
