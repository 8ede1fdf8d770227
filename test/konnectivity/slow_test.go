// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// flooded is a connection to a target that sends as fast as it can.
func (x trial) flooded(p *proxy) net.Conn {
	x.Helper()
	flood := runtest.Serve(x, func(c *net.TCPConn) {
		if _, err := io.ReadFull(c, make([]byte, 1)); err == nil { // a target that speaks first fails dials
			io.Copy(c, zeros{})
		}
	})
	conn := x.connect(p, flood.Addr())
	_, err := io.WriteString(conn, "!")
	x.must(err)
	return conn
}

// callerStops reads nothing of what a target sends as fast as it can.
func callerStops(beside func(trial, *proxy, net.Conn) saw) func(trial) saw {
	return func(x trial) saw {
		p := x.started()
		other := x.echo(p)
		x.flooded(p)
		return beside(x, p, other)
	}
}

// callerIsSlow reads some of it all the time, and less than a tunnel of the reference's wire waits for: ours ends that
// connection.
func callerIsSlow(x trial) saw {
	var flags []string
	if x.name == "ours" {
		flags = []string{"--native=false"}
	}
	p := x.started(flags...)
	other := x.echo(p)
	conn := x.flooded(p)
	go x.readSlowly(conn, 4<<10)
	out := echoBeside(x, p, other)
	out.text += fmt.Sprintf(", %d answers", out.answers)
	if x.name == "ours" {
		eventually(x, "the slow connection is reset", func() bool {
			return strings.Contains(p.log.String(), "a connection was reset")
		})
	}
	return out
}

// readSlowly reads so much fifty times a second, to the end, and says how much it was.
func (w *world) readSlowly(conn net.Conn, bytes int) (n int) {
	next := time.NewTicker(20 * time.Millisecond)
	defer next.Stop()
	for b := make([]byte, bytes); ; {
		m, err := io.ReadFull(conn, b)
		if n += m; err != nil {
			return n
		}
		select {
		case <-next.C:
		case <-w.Context().Done():
			return n
		}
	}
}

// TestASteadyReader has all of a download that is larger than what waits on the way, at a pace that is far below the
// tunnel's: the tunnel waits for it nearly all the time.
func TestASteadyReader(t *testing.T) {
	t.Parallel()
	for _, f := range wires()[1:] { // a session does not wait
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := w.ours("http-connect", false)
			f.agent(w, p.agentPort)
			p.ready()
			const size = 5 << 20
			source := runtest.Serve(w, func(c *net.TCPConn) {
				defer c.Close()
				if _, err := io.ReadFull(c, make([]byte, 1)); err == nil {
					io.CopyN(c, zeros{}, size)
				}
			})
			conn := p.mustDial(source.Addr())
			_, err := conn.Write([]byte{1})
			w.must(err)
			if n := w.readSlowly(conn, 20<<10); n != size {
				t.Errorf("%d bytes came of %d", n, size)
			}
		})
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
	var answers int
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
			answers++
			mu.Unlock()
			select {
			case came <- struct{}{}:
			default:
			}
		}
	}()
	most := func() (out saw, stands time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		stands = time.Since(last)
		return saw{text: "at most " + rounded(max(longest, stands)), answers: answers}, stands
	}
	<-time.After(x.window)
	out, stands := most()
	if stands < time.Second {
		return out
	}
	select { // one byte that came within the window may be in the channel
	case <-came:
	default:
	}
	if x.name == "ours" { // it has all the time that it needs
		select {
		case <-came:
			out, _ = most()
			return out
		case <-time.After(bound):
		}
	}
	return saw{text: "stands still after " + rounded(stands), answers: out.answers, bad: true}
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
