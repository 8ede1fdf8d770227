// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/heartbeat"
	"github.com/tombolo-io/tombolo/internal/stream/hub/frontend"
	"github.com/tombolo-io/tombolo/internal/stream/hub/memory"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

const mib = 1 << 20

// eaters is a cluster whose callers do not read.
type eaters struct {
	*cluster
	hub     *Hub
	session *session
	agent   carrier.Session
	streams []*hubStream
	far     []carrier.Stream
}

// eat makes a cluster with a session.
func eat(t *testing.T, h *Hub, name string) *eaters {
	t.Helper()
	c := h.clusters.add(clusterOf(t, name))
	near, far := tcpPair(t)
	near.SetDeadline(time.Time{})
	far.SetDeadline(time.Time{})
	link, err := carrier.Server(near, carrier.Options{Incoming: 2, Budget: c.accounts.Budget})
	if err != nil {
		t.Fatal(err)
	}
	agent, err := carrier.Client(far, carrier.Options{Incoming: 1000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { link.Close(); agent.Close() })
	return &eaters{cluster: c, hub: h, agent: agent, session: &session{cluster: c, link: link, beat: heartbeat.New(heartbeat.Options{})}}
}

// open opens n streams; the agent sends size bytes on each, which nobody reads.
func (e *eaters) open(t *testing.T, n, size int) {
	t.Helper()
	for range n {
		inner, err := e.session.link.OpenStream(t.Context(), []byte{0})
		if err != nil {
			t.Fatal(err)
		}
		held, err := e.accounts.Admit(context.Background(), "me")
		if err != nil {
			t.Fatal(err)
		}
		e.hub.metrics.Streams.Inc()
		s := &hubStream{Stream: inner, parts: e.hub.parts, by: e.session, begun: time.Now(), request: policy.Request{Cluster: e.name.String(), Caller: "me"}}
		s.hold(held)
		if _, ok := e.hub.access.Enter(e.name, s); !ok {
			t.Fatal("it may not live")
		}
		far, err := e.agent.AcceptStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		before := e.accounts.Budget.Unread()
		if _, err := far.Write(make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		runtest.Eventually(t, "the bytes are there", func() bool { return e.accounts.Budget.Unread() >= before+int64(size) })
		e.streams, e.far = append(e.streams, s), append(e.far, far)
	}
}

// At the limit of memory the newest, largest streams of the largest cluster end with
// the fault; its older ones and its neighbour's live on, and it is served again when
// there is room.
func TestTheLargestGivesMemoryBack(t *testing.T) {
	const each = 240 << 10
	h := bareHub(t)
	h.memory.Collect = func() {}
	used := func() int64 { return 64*mib + h.clusters.add(clusterOf(t, "c1")).accounts.Budget.Unread() }
	h.memory.Usage = func() memory.Usage { return memory.Usage{Total: used()} }
	h.clusters.limits.Memory = 128 * mib

	greedy, quiet := eat(t, h, "c1"), eat(t, h, "c2")
	quiet.open(t, 1, 100<<10)
	dial := func(e *eaters) error {
		_, err := h.Dial(context.Background(), e.name, wire.Dial{Network: "tcp", Address: "10.0.0.1:80", Caller: "me"})
		return err
	}
	idle := 30
	greedy.open(t, idle, 1) // idle ones, the oldest of all
	for used() < 128*mib*82/100 {
		greedy.open(t, 1, each)
	}
	now := time.Now()
	h.memory.Look(now)
	if f := fault.From(dial(greedy)); f.Code != fault.CodeLimit || !strings.Contains(f.Why, "cluster c1 uses the most of it") || f.Again == 0 {
		t.Errorf("short of memory, its largest consumer is told %v", f)
	}
	if err := greedy.accounts.Enter(greedy.accounts.Agent(agentOf(t, "a1"))); !fault.Has(err, fault.CodeLimit) {
		t.Errorf("a session of the largest: %v", err)
	}
	if err := dial(quiet); !fault.Has(err, fault.CodeNoAgent) {
		t.Errorf("its neighbour is told %v", err)
	}
	for _, s := range greedy.streams {
		if s.ended != "" {
			t.Fatal("a stream was cut before it had to be")
		}
	}

	greedy.accounts.Press(false) // those that were under way
	for used() < 128*mib*91/100 {
		greedy.open(t, 1, each)
	}
	want := used() - 128*mib*limit.MemoryCut/100
	h.memory.Look(now)
	runtest.Eventually(t, "what was cut is given back", func() bool { return used() <= 128*mib*limit.MemoryCalm/100 })
	cut := 0
	for i, s := range greedy.streams {
		switch {
		case s.ended == "":
			if cut > 0 {
				t.Fatal("an older one was cut, and a newer one lives")
			}
		case i < idle:
			t.Fatal("an idle one was cut before those that hold something")
		default:
			cut++
			if _, err := s.Read(make([]byte, 1)); !fault.Has(err, fault.CodeLimit) || s.ended != fault.CodeLimit {
				t.Errorf("its reader is told %v, ended as %s", err, s.ended)
			}
		}
	}
	if n := int64(cut) * (each + 16<<10); n < want || n > want+each+16<<10 {
		t.Errorf("%d streams cut with %d, to give %d back", cut, n, want)
	}
	last := greedy.far[len(greedy.far)-1]
	last.SetReadDeadline(time.Now().Add(runtest.Patience))
	var reset *carrier.ResetError
	if _, err := io.Copy(io.Discard, last); !errors.As(err, &reset) || splice.ResetReason(reset.Code) != fault.CodeLimit {
		t.Errorf("the agent reads %v", err)
	}
	if quiet.streams[0].ended != "" {
		t.Error("the neighbour's stream was cut")
	}
	if n, err := io.ReadFull(quiet.streams[0], make([]byte, 100<<10)); err != nil {
		t.Errorf("the neighbour read %d, %v", n, err)
	}

	h.memory.Look(now) // calm by now
	if err := dial(greedy); !fault.Has(err, fault.CodeNoAgent) {
		t.Errorf("with room again it is told %v", err)
	}
	st := greedy.accounts.Status()
	for _, l := range st {
		if l.Limit == "memory" && l.Scope == "cluster" && l.Hits != 2 {
			t.Errorf("status: %+v", l)
		}
	}
	for _, s := range greedy.streams {
		s.Reset(1)
	}
	if a := greedy.accounts.Cluster; a.Streams() != 0 || a.Pending() != 0 {
		t.Errorf("%d streams, %d dials are left", a.Streams(), a.Pending())
	}
}

// What frontends hold for streams, and callers' connections without one, are their
// cluster's.
func TestCallersAreCharged(t *testing.T) {
	h := bareHub(t)
	c := eat(t, h, "c1")
	c.open(t, 1, 1)
	holds := func() (int64, int64) {
		holds, unread := c.accounts.Holds()
		return holds, unread
	}
	one, unread := holds()
	before := c.streams[0].Held()
	c.streams[0].Charge(4 * mib)
	if n, u := holds(); n-one != 4*mib || u-unread != 4*mib || c.streams[0].Held()-before != 4*mib {
		t.Errorf("charged, the cluster holds %d more, %d of it unread, the stream %d", n-one, u-unread, c.streams[0].Held()-before)
	}
	c.streams[0].Charge(-4 * mib)
	who := c.accounts.Caller("me")
	for range 3 { // the stream has one of them
		if f := who.Connect(); f != nil {
			t.Fatal(f)
		}
	}
	if n, _ := holds(); n-one != 2*limit.CallerCost {
		t.Errorf("with two idle connections it holds %d more", n-one)
	}
	for range 3 {
		who.Disconnect()
	}
	if n, _ := holds(); n != one {
		t.Errorf("%d are left of them", n-one)
	}
	c.streams[0].Reset(1)
}

// Where it is nobody's doing, nobody gets more, and nobody is cut.
func TestFullMemory(t *testing.T) {
	h := bareHub(t)
	h.memory.Usage = func() memory.Usage { return memory.Usage{Total: 200 * mib} }
	h.clusters.limits.Memory = 128 * mib
	c := eat(t, h, "c1")
	c.open(t, 1, 1)
	h.memory.Look(time.Now())
	if _, err := c.accounts.Admit(context.Background(), "me"); !strings.Contains(fault.From(err).Why, "all of limits.memory") {
		t.Errorf("got %v", err)
	}
	if c.streams[0].ended != "" || !h.memory.Status().Full {
		t.Error("cut, or not told")
	}
	h.memory.Usage = func() memory.Usage { return memory.Usage{Total: 10 * mib} }
	h.memory.Look(time.Now())
	if p, err := c.accounts.Admit(context.Background(), "me"); err != nil || h.memory.Status().Full {
		t.Errorf("with room: %v", err)
	} else {
		p.Cancel()
	}
	c.streams[0].Reset(1)
}

// They stand in the log, at the start and when a reload moves the limit, and in the status.
func TestContradictionsAreTold(t *testing.T) {
	config := func(memory string) Config {
		cfg, err := ParseConfig("hub.yaml", []byte("apiVersion: tombolo.dev/v1alpha1\nkind: HubConfig\nlimits: {memory: "+memory+"}\n"))
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	cfg := config("1GiB")
	cfg.StateDir = filepath.Join(t.TempDir(), "state")
	environment := int64(64 * mib)
	var log strings.Builder
	h, err := New(cfg, Options{Log: slog.New(slog.NewTextHandler(&log, nil)), Reg: prometheus.NewRegistry(), Memory: func(int64) int64 { return environment }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.state.Close() })
	h.sockets = frontend.NewSockets(t.Context(), "", nil, nil)
	close(h.ready)
	const below, above = "GOMEMLIMIT (64 MiB) is below limits.memory (1 GiB)", "GOMEMLIMIT (64 MiB) is below limits.memory (2 GiB)"
	for _, c := range []struct{ memory, says, not string }{{"1GiB", below, above}, {"2GiB", above, below}, {"none", "", "GOMEMLIMIT"}} {
		if c.memory != "1GiB" {
			log.Reset()
			if err := h.Reload(config(c.memory)); err != nil {
				t.Fatal(err)
			}
		}
		for where, text := range map[string]string{"log": log.String(), "status": strings.Join(h.Status().Warnings, "\n")} {
			if !strings.Contains(text, c.says) || strings.Contains(text, c.not) {
				t.Errorf("%s: the %s says %q", c.memory, where, text)
			}
		}
	}
}
