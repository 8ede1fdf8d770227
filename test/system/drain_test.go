// SPDX-License-Identifier: Apache-2.0

package system

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
)

func ended(p *process) bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// mustConnect dials a target through an agent whose certificate lives for seconds: on a busy machine the agent may be
// without one for a moment.
func mustConnect(t *testing.T, h *testHub, to *runtest.Target) (conn net.Conn) {
	t.Helper()
	socket := h.socket("c1", hub.ProtocolConnect)
	runtest.Eventually(t, "a dial", func() bool {
		var err error
		conn, err = dialConnect(runtest.Within(t), socket, to.Addr())
		return connected(t, err)
	})
	return conn
}

// connected reports whether a dial has met an agent; any other failure is the test's.
func connected(t *testing.T, err error) bool {
	t.Helper()
	var r *refused
	if err != nil && !(errors.As(err, &r) && (r.code == fault.CodeNoAgent || r.code == fault.CodeDraining)) {
		t.Fatal(err)
	}
	return err == nil
}

// openVia opens a stream through the only agent and gives it.
func openVia(t *testing.T, h *testHub, to *runtest.Target) net.Conn {
	t.Helper()
	conn, err := dialConnect(runtest.Within(t), h.socket("c1", hub.ProtocolConnect), to.Addr())
	if err != nil {
		t.Fatal(err)
	}
	closing(t, conn)
	mustEcho(t, conn, "begin")
	return conn
}

// SIGTERM for an agent: its live stream goes on, new dials go elsewhere, and it
// ends with its last stream.
func TestAgentDrains(t *testing.T) {
	h, a := pair(t, hubSpec{}, agentSpec{})
	to := runtest.Echo(t)
	live := openVia(t, h, to)
	first := h.status("c1").Agents[0].ID
	startAgent(t, agentSpec{join: h.token("c1").Join})
	a.soft()
	runtest.Eventually(t, "the hub knows", func() bool {
		for _, ag := range h.status("c1").Agents {
			if ag.ID == first && ag.Draining {
				return true
			}
		}
		return false
	})
	if a.Ready() {
		t.Error("a draining agent is ready")
	}
	for range 5 {
		conn := openVia(t, h, to)
		conn.Close()
	}
	mustEcho(t, live, "goes on")
	if ended(a.process) {
		t.Fatal("the agent did not wait for its stream")
	}
	for _, ag := range h.status("c1").Agents {
		if ag.ID == first && ag.Streams != 1 {
			t.Errorf("the draining agent got new streams: %+v", ag)
		}
	}
	live.Close()
	if err := a.wait(t); err != nil {
		t.Errorf("end: %v", err)
	}
	runtest.Eventually(t, "the hub remembers why it left", func() bool {
		for _, ag := range h.status("c1").Agents {
			if ag.ID == first && !ag.Connected {
				return ag.LastDisconnect.Code == string(fault.CodeDraining)
			}
		}
		return false
	})
}

// What a target has said before it ended comes through to a reader who takes its
// time, though the agent's own part in the stream is over: neither an agent that
// stops nor a session that is replaced leaves the last bytes behind.
func TestDrainBringsTheLastBytes(t *testing.T) {
	const size = 420 << 10 // more than window and socket hold, less than with what the agent's mux holds
	for name, leave := range map[string]func(a *testAgent){
		"the agent stops": func(a *testAgent) { a.soft() },
		"the session is replaced": func(a *testAgent) {
			runtest.Eventually(t, "a new session", func() bool { return len(a.log.records("connected")) > 1 })
		},
	} {
		t.Run(name, func(t *testing.T) {
			spec := hubSpec{}
			if name == "the session is replaced" {
				spec.extra = "certificates: {agentLife: 3s}" // renewed at two thirds
			}
			h, a := pair(t, spec, agentSpec{})
			to := runtest.Serve(t, func(c *net.TCPConn) {
				defer c.Close()
				io.Copy(io.Discard, c)
				c.Write(make([]byte, size))
			})
			conn := mustConnect(t, h, to)
			closing(t, conn)
			conn.(interface{ CloseWrite() error }).CloseWrite()
			runtest.Eventually(t, "the agent's part is over", func() bool { return gauge(t, a.reg, "tombolo_agent_streams") == 0 })
			leave(a)
			runtest.Eventually(t, "it drains", func() bool {
				return strings.Contains(a.log.String(), "drain") || gauge(t, a.reg, "tombolo_agent_sessions") > 1 || h.status("c1").Agents[0].Draining
			})
			got, err := io.Copy(io.Discard, conn)
			if err != nil || got != size {
				t.Errorf("%d of %d bytes, %v", got, size, err)
			}
		})
	}
}

// The only agent drains: the answer says so, and not that there is none.
func TestDialWhileTheOnlyAgentDrains(t *testing.T) {
	h, a := pair(t, hubSpec{}, agentSpec{})
	to := runtest.Echo(t)
	live := openVia(t, h, to)
	a.soft()
	runtest.Eventually(t, "the hub knows", func() bool { return h.status("c1").Agents[0].Draining })
	_, err := dialConnect(runtest.Within(t), h.socket("c1", hub.ProtocolConnect), to.Addr())
	wantRefused(t, err, http.StatusServiceUnavailable, fault.CodeDraining)
	mustEcho(t, live, "goes on")
}

func TestDrainOfAnAgentIsBounded(t *testing.T) {
	h, a := pair(t, hubSpec{}, agentSpec{extra: "drainTimeout: 300ms"})
	live := openVia(t, h, runtest.Echo(t))
	a.soft()
	if err := a.wait(t); err != nil {
		t.Errorf("end: %v", err)
	}
	if _, err := io.ReadAll(live); isTimeout(err) {
		t.Error("the stream outlived its agent")
	}
}

func TestSecondSignalCutsTheDrainOfAnAgent(t *testing.T) {
	h, a := pair(t, hubSpec{}, agentSpec{extra: "drainTimeout: 1h"})
	live := openVia(t, h, runtest.Echo(t))
	a.soft()
	runtest.Eventually(t, "it drains", func() bool { return h.status("c1").Agents[0].Draining })
	mustEcho(t, live, "goes on")
	a.hard()
	if err := a.wait(t); err != nil {
		t.Errorf("end: %v", err)
	}
}

// SIGTERM for a hub: live streams of every frontend go on, new dials and new
// sessions are refused with the reason, probes say that it is not ready.
func TestHubDrains(t *testing.T) {
	h, a := pair(t, hubSpec{extra: "drainTimeout: 1h"}, agentSpec{})
	to := runtest.Echo(t)
	ways := h.ways("c1")
	live := openOnEach(t, ways, to.Addr())
	spare := h.enrol(h.token("c1").Join)
	h.soft()
	runtest.Eventually(t, "probes say so", func() bool {
		status, _ := httpGet(t, h.adminURL+"/readyz")
		return status == http.StatusServiceUnavailable
	})
	for i, w := range ways {
		mustEcho(t, live[i], "goes on")
		if conn, err := w.dial(runtest.Within(t), to.Addr()); err == nil {
			conn.Close()
			t.Errorf("%s: a draining hub takes new streams", w.name)
		} else if w.name == "connect-unix" || w.name == "connect-tls" {
			wantRefused(t, err, http.StatusServiceUnavailable, fault.CodeDraining)
		} else if w.name == "admin" {
			wantFault(t, err, fault.CodeDraining)
		}
	}
	refusal := greet(t, h.dialTLS(&spare.Certificate, "tombolo-session/1"), hello("late")).GetRefusal()
	if refusal.GetCode() != string(fault.CodeDraining) {
		t.Errorf("a new session: %v", refusal)
	}
	runtest.Eventually(t, "the agent knows", func() bool { return !a.Ready() })
	if status, _ := httpGet(t, h.adminURL+"/livez"); status != http.StatusOK {
		t.Errorf("livez: %d", status)
	}
	if ended(h.process) {
		t.Fatal("the hub did not wait for its streams")
	}
	for _, conn := range live {
		conn.Close()
	}
	if err := h.wait(t); err != nil {
		t.Errorf("end: %v", err)
	}
	runtest.Eventually(t, "the agent read why the session ended", func() bool {
		for _, r := range a.log.records("disconnected") {
			if r["code"] == string(fault.CodeDraining) {
				return true
			}
		}
		return false
	})
}

func TestDrainOfAHubIsBounded(t *testing.T) {
	h, _ := pair(t, hubSpec{extra: "drainTimeout: 300ms"}, agentSpec{})
	live := openOnEach(t, h.ways("c1"), runtest.Echo(t).Addr())
	h.soft()
	if err := h.wait(t); err != nil {
		t.Errorf("end: %v", err)
	}
	for _, conn := range live {
		if _, err := io.ReadAll(conn); isTimeout(err) {
			t.Error("a stream outlived its hub")
		}
	}
}

func TestSecondSignalCutsTheDrainOfAHub(t *testing.T) {
	h, _ := pair(t, hubSpec{extra: "drainTimeout: 1h"}, agentSpec{})
	live := openVia(t, h, runtest.Echo(t))
	h.soft()
	runtest.Eventually(t, "it drains", func() bool { return len(h.log.records("draining")) > 0 })
	mustEcho(t, live, "goes on")
	h.hard()
	if err := h.wait(t); err != nil {
		t.Errorf("end: %v", err)
	}
}
