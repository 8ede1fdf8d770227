// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bytes"
	"crypto/rand"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// An agent that offers no mux of ours is told why, and what helps.
func TestAnAgentWithoutTheMuxIsRefused(t *testing.T) {
	h := startHub(t, hubSpec{})
	cert, m := h.enrol(h.token("c1").Join), hello("older")
	m.GetHello().Capabilities = []string{"mux/0"}
	r := greet(t, h.dialTLS(&cert.Certificate, trust.ALPNSession), m).GetRefusal()
	if r.GetCode() != string(fault.CodeVersion) || r.GetNext() == "" {
		t.Errorf("refused with %v", r)
	}
	runtest.Eventually(t, "the hub's log says so", func() bool { return len(h.log.records("refused")) > 0 })
}

// bulk keeps a stream through the hub busy until the test ends, or its
// connection is closed: from the target's side without an end and, with both, back
// to it too.
func (h *testHub) bulk(t *testing.T, to *runtest.Target, both bool) net.Conn {
	t.Helper()
	conn := mustConnect(t, h, to)
	var wg sync.WaitGroup
	wg.Go(func() { io.Copy(io.Discard, conn) })
	if both {
		wg.Go(func() {
			for buf := make([]byte, 64<<10); ; {
				if _, err := conn.Write(buf); err != nil {
					return
				}
			}
		})
	}
	t.Cleanup(func() {
		conn.Close()
		wg.Wait()
	})
	return conn
}

// carries waits until so many bytes more have come out of the cluster.
func (h *testHub) carries(t *testing.T, bytes int64) {
	t.Helper()
	before := h.status("c1").Agents[0].BytesOut
	runtest.Eventually(t, "bulk has moved for long", func() bool { return h.status("c1").Agents[0].BytesOut > before+bytes })
}

// onMux is a hub and an agent that have agreed on the mux, with two connections at most.
func onMux(t *testing.T) (*testHub, *testAgent) {
	t.Helper()
	return pair(t, hubSpec{extra: "connections: 2"}, agentSpec{})
}

func (h *testHub) connections(n int) func() bool {
	return func() bool {
		agents := h.status("c1").Agents
		return len(agents) == 1 && agents[0].Connections == n
	}
}

// Under load a session gets a second connection, by a resumed handshake, and
// carries bytes unchanged over both. Nothing logs its secret.
func TestLoadGetsAnotherConnection(t *testing.T) {
	h, a := onMux(t)
	to := runtest.Echo(t)
	live := openVia(t, h, to)
	h.bulk(t, flood(t), false)
	runtest.Eventually(t, "the session has two connections", h.connections(2))
	if n := gauge(t, h.reg, "tombolo_hub_session_connections"); n != 2 {
		t.Errorf("the hub counts %v connections", n)
	}
	runtest.Eventually(t, "the agent counts them too", func() bool { return gauge(t, a.reg, "tombolo_agent_session_connections") == 2 })
	if n := h.status("c1").Agents; len(n) != 1 {
		t.Errorf("a further connection is no agent: %+v", n)
	}
	runtest.Eventually(t, "the hub's log has it", func() bool { return len(h.log.records("connection added")) == 1 })
	if added := h.log.records("connection added"); added[0]["resumed"] != true {
		t.Errorf("the hub's log: %v", added)
	}
	mustEcho(t, live, "beside the bulk")
	both := make([]byte, 8<<20)
	rand.Read(both)
	sent := make(chan error, 1)
	go func() { _, err := live.Write(both); sent <- err }()
	got := make([]byte, len(both))
	if _, err := io.ReadFull(live, got); err != nil || !bytes.Equal(got, both) {
		t.Errorf("the bytes came back changed: %v", err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// The first connection, with the control stream, is cut: the session goes on over
// the other one. Only the loss of the last one ends it.
func TestTheControlStreamMovesToAnotherConnection(t *testing.T) {
	h := startHub(t, hubSpec{extra: "connections: 2"})
	l := newLink(t, h.listen)
	a := startAgent(t, agentSpec{join: l.through(h.token("c1").Join)})
	first := l.count() - 1 // after the enrolment
	to := runtest.Echo(t)
	lost := openVia(t, h, to) // interactive, so on the first connection
	h.bulk(t, to, true)
	runtest.Eventually(t, "the session has two connections", h.connections(2))
	h.carries(t, 32<<20) // so that the bulk stream is on the second
	since := h.status("c1").Agents[0].Since
	l.cutOne(first)
	if _, err := io.ReadAll(lost); isTimeout(err) {
		t.Error("the stream of the lost connection goes on")
	}
	runtest.Eventually(t, "pings go on and the lost connection is replaced", func() bool {
		ag := h.status("c1").Agents[0]
		return ag.Connected && ag.Connections == 2 && ag.RTTMillis > 0
	})
	for range 3 {
		var ping admin.PingResult
		h.call("POST", "/v1/clusters/c1/ping", nil, &ping)
		if len(ping.Agents) != 1 || ping.Agents[0].Fault != nil {
			t.Errorf("ping: %+v", ping)
		}
	}
	openVia(t, h, to)
	if !a.Ready() || len(a.log.records("disconnected")) > 0 {
		t.Error("the agent has lost its session")
	}
	if ag := h.status("c1").Agents; len(ag) != 1 || !ag[0].Since.Equal(since) || ag[0].LastDisconnect != nil {
		t.Errorf("it is another session: %+v", ag)
	}
	saysOfALoss(t, h, a)
	l.cut()
	runtest.Eventually(t, "the loss of all ends the session, and another begins", func() bool {
		ag := h.status("c1").Agents
		return len(ag) == 1 && ag[0].Connected && ag[0].Since.After(since)
	})
	if n := labelled(t, a.reg, "tombolo_agent_session_ends_total", string(fault.CodeSessionLost)); n != 1 {
		t.Errorf("the agent counts %v sessions that were lost", n)
	}
}

// saysOfALoss: both sides count one connection that broke, and log its loss and
// the connection that replaces it; the hub's status shows it.
func saysOfALoss(t *testing.T, h *testHub, a *testAgent) {
	t.Helper()
	runtest.Eventually(t, "both have seen the loss and its repair", func() bool {
		return len(h.log.records("connection added")) == 2 && len(a.log.records("further connection")) == 2 &&
			labelled(t, h.reg, "tombolo_hub_connections_lost_total", "broken") == 1
	})
	for role, c := range map[string]struct {
		reg      *prometheus.Registry
		log      *journal
		repaired string
	}{"hub": {h.reg, h.log, "connection added"}, "agent": {a.reg, a.log, "further connection"}} {
		if n := labelled(t, c.reg, "tombolo_"+role+"_connections_lost_total", "broken"); n != 1 {
			t.Errorf("%s: %v connections that broke", role, n)
		}
		lost := c.log.records("connection lost")
		if len(lost) != 1 || lost[0]["cause"] != "broken" || lost[0]["reason"] == "" || lost[0]["remain"] != 1.0 {
			t.Errorf("%s's log of the loss: %v", role, lost)
		}
		if added := c.log.records(c.repaired); len(added) != 2 || added[0]["level"] != "DEBUG" || added[1]["level"] != "INFO" {
			t.Errorf("%s's log of the repair: %v", role, added)
		}
	}
	ag := h.status("c1").Agents[0]
	if ag.ConnectionsLost != 1 || ag.LastLoss == nil || ag.LastLoss.Cause != "broken" || ag.LastLoss.Reason == "" {
		t.Errorf("the status: %+v, %+v", ag, ag.LastLoss)
	}
}

// labelled reads a counter with one label.
func labelled(t *testing.T, reg *prometheus.Registry, name, value string) (n float64) {
	t.Helper()
	for _, m := range family(t, reg, name).GetMetric() {
		if m.GetLabel()[0].GetValue() == value {
			n = m.GetCounter().GetValue()
		}
	}
	return n
}

// What an agent said of its drain is not lost with the connection that took it.
func TestADrainSurvivesTheLossOfAConnection(t *testing.T) {
	h := startHub(t, hubSpec{extra: "connections: 2"})
	l := newLink(t, h.listen)
	a := startAgent(t, agentSpec{join: l.through(h.token("c1").Join), extra: "drainTimeout: 1h"})
	first := l.count() - 1
	fast := h.bulk(t, runtest.Echo(t), true)
	runtest.Eventually(t, "the session has two connections", h.connections(2))
	h.carries(t, 32<<20) // so that the bulk stream is on the second
	l.freeze()
	a.soft()
	l.cutOne(first)
	l.thaw()
	runtest.Eventually(t, "the hub knows of the drain", func() bool {
		ag := h.status("c1").Agents[0]
		return ag.Connected && ag.Draining && ag.Streams == 1
	})
	fast.Close()
	if err := a.wait(t); err != nil {
		t.Error(err)
	}
}

// A retired session, whose certificate has even run out, still gets a connection
// for the bulk that it carries: with the certificate of now.
func TestARetiredSessionGetsAnotherConnection(t *testing.T) {
	h := startHub(t, hubSpec{extra: "connections: 2\ncertificates: {agentLife: 2s}"})
	a := startAgent(t, agentSpec{join: h.token("c1").Join})
	begin := make(chan struct{})
	slow := runtest.Serve(t, func(c *net.TCPConn) {
		<-begin
		for buf := make([]byte, 64<<10); ; {
			if _, err := c.Write(buf); err != nil {
				return
			}
		}
	})
	h.bulk(t, slow, false)
	retired := func() *admin.AgentStatus {
		for _, ag := range h.status("c1").Agents {
			if ag.Draining {
				return &ag
			}
		}
		return nil
	}
	runtest.Eventually(t, "its certificate has run out", func() bool {
		ag := retired()
		return ag != nil && time.Now().After(ag.CertificateEnd)
	})
	close(begin)
	runtest.Eventually(t, "the retired session has two connections", func() bool {
		ag := retired()
		return ag != nil && ag.Connections == 2
	})
	if len(a.log.records("disconnected")) > 0 {
		t.Error("the agent was disconnected")
	}
}
