// SPDX-License-Identifier: Apache-2.0

package system

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

func TestNewStreamsGoToTheLeastLoadedAgent(t *testing.T) {
	h := startHub(t, hubSpec{})
	line := h.tokenWith("c1", time.Hour, 3).Join
	for range 3 {
		startAgent(t, agentSpec{join: line})
	}
	to := runtest.Echo(t)
	socket := h.socket("c1", hub.ProtocolConnect)
	for range 12 {
		conn, err := dialConnect(runtest.Within(t), socket, to.Addr())
		if err != nil {
			t.Fatal(err)
		}
		closing(t, conn)
	}
	for _, a := range h.status("c1").Agents {
		if a.Streams != 4 {
			t.Errorf("agent %s has %d of 12 streams, of 3 agents", a.ID, a.Streams)
		}
	}
}

// mute takes dial requests and never answers; asked counts them.
func mute(t *testing.T, link carrier.Session) (asked *atomic.Int32) {
	t.Helper()
	asked = &atomic.Int32{}
	done := make(chan struct{})
	ctx := runtest.Within(t)
	go func() {
		defer close(done)
		for {
			s, err := link.AcceptStream(ctx)
			if err != nil {
				return
			}
			if _, err := wire.ReadDial(s); err == nil {
				asked.Add(1)
			}
		}
	}()
	t.Cleanup(func() {
		link.Close()
		<-done
	})
	return asked
}

// The agent of a pending dial is lost: the dial moves to another at once.
func TestPendingDialMovesToAnotherAgent(t *testing.T) {
	h := startHub(t, hubSpec{})
	first, control := h.rawSession(h.enrol(h.token("c1").Join), "mute")
	beatsOn(t, first, control) // who is silent is asked last
	asked := mute(t, first)
	runtest.Eventually(t, "the mute agent is in", func() bool { return h.connected("c1") == 1 })
	startAgent(t, agentSpec{join: h.token("c1").Join})
	to := runtest.Echo(t)
	for _, w := range h.ways("c1")[:1] {
		conns := make(chan net.Conn, 1)
		errs := make(chan error, 1)
		go func() {
			conn, err := w.dial(runtest.Within(t), to.Addr())
			conns <- conn
			errs <- err
		}()
		runtest.Eventually(t, "the mute agent was asked", func() bool { return asked.Load() > 0 })
		first.Close()
		conn, err := <-conns, <-errs
		if err != nil {
			t.Fatalf("%s: %v", w.name, err)
		}
		mustEcho(t, conn, "moved")
		conn.Close()
	}
}

// Without another agent the pending dial fails with its agent, long before its timeout.
func TestPendingDialFailsWithItsAgent(t *testing.T) {
	h := startHub(t, hubSpec{extra: "streams: {dialTimeout: 1h}"})
	link, control := h.rawSession(h.enrol(h.token("c1").Join), "mute")
	beatsOn(t, link, control) // who is silent is not asked
	asked := mute(t, link)
	runtest.Eventually(t, "the mute agent is in", func() bool { return h.connected("c1") == 1 })
	ways := h.ways("c1")
	errs := make(chan error, len(ways))
	for _, w := range ways {
		go func() {
			_, err := w.dial(runtest.Within(t), "10.0.0.1:80")
			errs <- err
		}()
	}
	runtest.Eventually(t, "every dial is pending", func() bool { return int(asked.Load()) == len(ways) })
	link.Close()
	for range ways {
		if err := <-errs; err == nil || fault.Has(err, fault.CodeDialTimeout) {
			t.Errorf("got %v", err)
		}
	}
}

// Agents come and go, stopped, killed and cut off in the middle, but one is
// always there: no dial fails.
func TestNoDialFailsWhileOneAgentIsHealthy(t *testing.T) {
	h := startHub(t, hubSpec{})
	to := runtest.Echo(t)
	l := newLink(t, h.listen)
	var specs [3]agentSpec // two that take turns, one behind a link that breaks
	for i := range specs {
		line := h.token("c1").Join
		if i == 2 {
			line = l.through(line)
		}
		specs[i] = agentSpec{join: line, dir: filepath.Join(runtest.Dir(t), "agent")}
	}
	socket := h.socket("c1", hub.ProtocolConnect)
	current := startAgent(t, specs[0])

	const dials, turns = 200, 8
	var made, good atomic.Int32
	var over atomic.Bool
	var wg sync.WaitGroup
	ctx := runtest.Within(t)
	for range 4 {
		wg.Go(func() {
			for !over.Load() || made.Load() < dials {
				made.Add(1)
				conn, err := dialConnect(ctx, socket, to.Addr())
				if err != nil {
					t.Errorf("dial: %v", err)
					return
				}
				good.Add(1)
				conn.Close()
			}
		})
	}
	for turn := range turns {
		cut := startAgent(t, specs[2])
		l.cut()
		other := startAgent(t, specs[(turn+1)%2])
		cut.stop()
		if turn%4 < 2 {
			current.soft() // drains
			current.wait(t)
		} else {
			current.stop() // at once
		}
		current = other
	}
	over.Store(true)
	wg.Wait()
	if good.Load() != made.Load() || made.Load() < dials {
		t.Errorf("%d of %d dials succeeded", good.Load(), made.Load())
	}
}

// A link that swallows everything without an end: dials go to the other agent.
func TestFrozenAgentIsPassedOver(t *testing.T) {
	h := startHub(t, hubSpec{})
	to := runtest.Echo(t)
	l := newLink(t, h.listen)
	startAgent(t, agentSpec{join: l.through(h.token("c1").Join)})
	startAgent(t, agentSpec{join: h.token("c1").Join})
	l.freeze()
	socket := h.socket("c1", hub.ProtocolConnect)
	for range 6 {
		conn, err := dialConnect(runtest.Within(t), socket, to.Addr())
		if err != nil {
			t.Fatal(err)
		}
		mustEcho(t, conn, "over the live one")
		conn.Close()
	}
	runtest.Eventually(t, "the dead session is noticed", func() bool {
		conn, err := dialConnect(runtest.Within(t), socket, to.Addr()) // a live stream sets the pace
		if err == nil {
			conn.Close()
		}
		for _, a := range h.status("c1").Agents {
			if !a.Connected && a.LastDisconnect.Code == string(fault.CodeSessionLost) {
				return true
			}
		}
		return false
	})
}

// The hub comes back on its port with its state: every agent returns, and
// neither goroutines nor descriptors pile up. Ten agents and five restarts are
// fifty reconnects, without the backoff of fifty in a row.
func TestReconnectsLeakNothing(t *testing.T) {
	h := startHub(t, hubSpec{})
	const agents = 10
	line := h.tokenWith("c1", time.Hour, agents).Join
	for range agents {
		startAgent(t, agentSpec{join: line})
	}
	to := runtest.Echo(t)
	var goroutines, descriptors int
	for round := range 5 {
		if err := h.stop(); err != nil {
			t.Fatal(err)
		}
		h = startHub(t, hubSpec{dir: h.dir, listen: h.listen})
		runtest.Eventually(t, "all agents are back", func() bool { return h.connected("c1") == agents })
		conn, err := dialConnect(runtest.Within(t), h.socket("c1", hub.ProtocolConnect), to.Addr())
		if err != nil {
			t.Fatal(err)
		}
		mustEcho(t, conn, "after the restart")
		conn.Close()
		runtest.Eventually(t, "the stream is gone", func() bool { return h.status("c1").Streams == 0 })
		if round == 0 {
			goroutines, descriptors = runtime.NumGoroutine(), countDescriptors(t)
			continue
		}
		runtest.Eventually(t, "goroutines and descriptors are as many as before", func() bool {
			return runtime.NumGoroutine() <= goroutines+5 && countDescriptors(t) <= descriptors+3
		})
	}
}

func countDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
