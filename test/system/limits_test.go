// SPDX-License-Identifier: Apache-2.0

package system

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// used gives one limit of cluster c1 as status shows it; without who the first one.
func (h *testHub) used(scope, limit, who string) (out admin.LimitStatus) {
	h.t.Helper()
	for _, l := range h.status("c1").Limits {
		if l.Scope == scope && l.Limit == limit && strings.HasPrefix(l.Who, who) {
			return l
		}
	}
	return out
}

// wantLimited fails unless a dial was refused for a bound that the answer names.
func wantLimited(t *testing.T, w way, err error, says string) {
	t.Helper()
	text := fmt.Sprint(err)
	switch w.name {
	case "connect-unix", "connect-tls":
		r := wantRefused(t, err, http.StatusTooManyRequests, fault.CodeLimit)
		text = r.line
	case "admin":
		text = wantFault(t, err, fault.CodeLimit).Explain()
	}
	if !strings.Contains(text, string(fault.CodeLimit)) || !strings.Contains(text, says) {
		t.Errorf("%s: the refusal does not say %q: %s", w.name, says, text)
	}
}

// A cluster that has as many streams as it may is told so on every way in. A raised
// bound counts at once, and a lowered one ends nothing.
func TestStreamsOfAClusterAreLimited(t *testing.T) {
	bound := func(n int) string {
		return fmt.Sprintf("clusters: [{name: c1, limits: {cluster: {streams: %d}}}]\n", n)
	}
	h, _ := pair(t, hubSpec{extra: bound(2)}, agentSpec{})
	to := runtest.Echo(t)
	ways := h.ways("c1")
	live := openOnEach(t, ways[:2], to.Addr())
	for _, w := range ways {
		_, err := w.dial(runtest.Within(t), to.Addr())
		wantLimited(t, w, err, "cluster c1 may have 2 streams")
	}
	if l := h.used("cluster", "streams", ""); l.Used != 2 || l.Bound != 2 || l.Hits != int64(len(ways)) {
		t.Errorf("status: %+v", l)
	}
	if n := labelled(t, h.reg, "tombolo_hub_limit_hits_total", "streams"); n != float64(len(ways)) {
		t.Errorf("%v refusals are counted", n)
	}
	for _, m := range family(t, h.reg, "tombolo_hub_limit_use_ratio").GetMetric() {
		if of, n := m.GetLabel()[0].GetValue(), m.GetGauge().GetValue(); of == "streams" && n != 1 {
			t.Errorf("the use is %v", n)
		}
	}
	var st admin.Status
	if h.call("GET", "/v1/status", nil, &st); st.Clusters[0].LimitHits != int64(len(ways)) || st.Clusters[0].Limits != nil {
		t.Errorf("status of all: %+v", st.Clusters[0])
	}

	h.token("c2") // a neighbour has bounds of its own
	startAgent(t, agentSpec{join: h.token("c2").Join})
	othersWork(t, h.ways("c2")[:1], openOnEach(t, h.ways("c2")[:1], to.Addr()), to.Addr())

	if err := h.reload(bound(4)); err != nil {
		t.Fatal(err)
	}
	live = append(live, openOnEach(t, ways[2:], to.Addr())...)
	if err := h.reload(bound(1)); err != nil {
		t.Fatal(err)
	}
	for i, conn := range live {
		mustEcho(t, conn, "above the lowered bound on "+ways[i].name)
	}
	for _, conn := range live[1:] {
		conn.Close()
	}
	runtest.Eventually(t, "one stream is left", func() bool { return h.used("cluster", "streams", "").Used == 1 })
	_, err := ways[0].dial(runtest.Within(t), to.Addr())
	wantLimited(t, ways[0], err, "cluster c1 may have 1 streams")
	live[0].Close()
	runtest.Eventually(t, "the place is free again", func() bool {
		conn, err := ways[0].dial(runtest.Within(t), to.Addr())
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

// Who dials without a pause is refused at once, with the time to come again.
func TestDialsOfAClusterAreLimited(t *testing.T) {
	h, _ := pair(t, hubSpec{extra: "limits: {cluster: {dialsPerSecond: 1, dialBurst: 2}}\n"}, agentSpec{})
	to := runtest.Echo(t)
	for _, w := range h.ways("c1") {
		results := make(chan error, 5) // two make the burst, one waits for its turn
		for range cap(results) {
			go func() {
				conn, err := w.dial(runtest.Within(t), to.Addr())
				if err == nil {
					conn.Close()
				}
				results <- err
			}()
		}
		refused := 0
		for range cap(results) {
			if err := <-results; err != nil {
				refused++
				wantLimited(t, w, err, "cluster c1 may make 1 dials a second")
				wantLimited(t, w, err, "try again in ")
			}
		}
		if refused == 0 || refused == cap(results) {
			t.Errorf("%s: %d of %d are refused", w.name, refused, cap(results))
		}
	}
	if l := h.used("cluster", "dialsPerSecond", ""); l.Hits < 4 || l.Bound != 1 {
		t.Errorf("status: %+v", l)
	}
	if err := h.reload("limits: {cluster: {dialsPerSecond: none}}\n"); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		othersWork(t, h.ways("c1")[:1], openOnEach(t, h.ways("c1")[:1], to.Addr()), to.Addr())
	}
}

// The bound of an identity leaves the others of its cluster alone.
func TestCallersAndAgentsAreLimited(t *testing.T) {
	h, first := pair(t, hubSpec{extra: "limits: {agent: {streams: 1}, caller: {streams: 1, sessions: 2}}\n"}, agentSpec{})
	startAgent(t, agentSpec{join: h.token("c1").Join})
	to := runtest.Echo(t)
	ways := h.ways("c1")
	live := openOnEach(t, ways[:2], to.Addr()) // two callers, one on each agent
	for _, w := range ways[:2] {
		_, err := w.dial(runtest.Within(t), to.Addr())
		wantLimited(t, w, err, "caller.streams")
	}
	_, err := ways[2].dial(runtest.Within(t), to.Addr()) // a third caller finds no agent with a place
	wantLimited(t, ways[2], err, "agent.streams")
	if l := h.used("agent", "streams", ""); l.Used != 1 || l.Bound != 1 {
		t.Errorf("status: %+v", l)
	}
	if l := h.used("caller", "streams", "unix:c1/connect"); l.Used != 1 || l.Hits == 0 {
		t.Errorf("status: %+v", l)
	}
	for i, conn := range live {
		mustEcho(t, conn, ways[i].name)
	}
	// The connections of a caller, whether or not they have a stream.
	path := h.socket("c1", "connect")
	idle, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	runtest.Eventually(t, "it is counted", func() bool { return h.used("caller", "sessions", "unix:c1/connect").Used == 2 })
	_, err = dialConnect(runtest.Within(t), path, to.Addr())
	if r := asRefused(t, err); r.status != http.StatusTooManyRequests || !strings.Contains(r.body, "may have 2 connections") {
		t.Errorf("the third connection: %v", r)
	}
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
}

// Sessions above the bound are refused with the reason; when it is raised the agent
// comes in by itself, and when it is lowered nobody leaves.
func TestSessionsAreLimited(t *testing.T) {
	h, _ := pair(t, hubSpec{extra: "limits: {cluster: {sessions: 1}}\n"}, agentSpec{})
	second := runAgent(t, agentSpec{join: h.token("c1").Join})
	runtest.Eventually(t, "the second agent reads why", func() bool {
		return strings.Contains(second.log.String(), "cluster c1 may have 1 sessions")
	})
	if l := h.used("cluster", "sessions", ""); l.Used != 1 || l.Hits == 0 {
		t.Errorf("status: %+v", l)
	}
	if err := h.reload("limits: {cluster: {sessions: 2}}\n"); err != nil {
		t.Fatal(err)
	}
	runtest.Eventually(t, "it comes in", second.Ready)
	if err := h.reload("limits: {cluster: {sessions: 1}}\n"); err != nil {
		t.Fatal(err)
	}
	if n := h.connected("c1"); n != 2 || !second.Ready() {
		t.Errorf("%d sessions after the bound was lowered", n)
	}
}

// At a rate that a transfer would take minutes with, it waits and holds nothing up: a
// small stream goes ahead, and the raised rate counts for the transfer that is under
// way, both ways and on every way in.
func TestRatesOfBytesAreLimited(t *testing.T) {
	const slow = "limits: {cluster: {bytesInPerSecond: 64KiB, bytesOutPerSecond: 64KiB}}\n"
	const enough = 32 << 20 // more than what windows and sockets hold, or comes through in time
	for _, which := range []string{"out", "in"} {
		t.Run(which, func(t *testing.T) {
			h, _ := pair(t, hubSpec{extra: slow}, agentSpec{})
			field := map[string]string{"out": "bytesOutPerSecond", "in": "bytesInPerSecond"}[which]
			took := make(chan int64, 16)
			to := flood(t)
			if which == "in" {
				to = runtest.Serve(t, func(c *net.TCPConn) {
					n, _ := io.CopyN(io.Discard, c, enough)
					took <- n
					c.Close()
				})
			}
			echo := openOnEach(t, h.ways("c1")[:1], runtest.Echo(t).Addr())[0]
			for _, w := range h.ways("c1") {
				if err := h.reload(slow); err != nil {
					t.Fatal(err)
				}
				conn, err := w.dial(runtest.Within(t), to.Addr())
				if err != nil {
					t.Fatal(err)
				}
				done := make(chan int64, 1)
				go func() {
					if which == "in" {
						io.Copy(conn, io.LimitReader(zeros{}, enough))
						done <- <-took
						return
					}
					n, _ := io.CopyN(io.Discard, conn, enough)
					done <- n
				}()
				runtest.Eventually(t, "it has to wait", func() bool { return h.used("cluster", field, "").Waiting > 0 })
				mustEcho(t, echo, "keystrokes")
				select {
				case n := <-done:
					t.Fatalf("%s: %d bytes came through", w.name, n)
				default:
				}
				if err := h.reload("limits: {cluster: {bytesInPerSecond: none}}\n"); err != nil {
					t.Fatal(err)
				}
				if n := <-done; n != enough {
					t.Errorf("%s: %d bytes of %d", w.name, n, enough)
				}
				abandon(conn)
			}
			if l := h.used("cluster", field, ""); l.Hits == 0 || l.Bound != 0 {
				t.Errorf("status: %+v", l)
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// A stream that waits for its rate ends at once when its caller leaves, and does not
// keep the hub from ending.
func TestAStreamThatWaitsForItsRateEndsAtOnce(t *testing.T) {
	h, _ := pair(t, hubSpec{extra: "limits: {caller: {bytesOutPerSecond: 64KiB, bytesInPerSecond: 64KiB}}\n"}, agentSpec{})
	to, deaf := flood(t), runtest.Echo(t)
	for _, w := range h.ways("c1") {
		for what, target := range map[string]string{"out": to.Addr(), "in": deaf.Addr()} {
			conn, err := w.dial(runtest.Within(t), target)
			if err != nil {
				t.Fatal(err)
			}
			if what == "in" {
				go io.Copy(conn, zeros{}) // until it is closed
			}
			runtest.Eventually(t, "it has to wait", func() bool {
				for _, l := range h.status("c1").Limits {
					if l.Waiting > 0 {
						return true
					}
				}
				return false
			})
			abandon(conn)
			runtest.Eventually(t, w.name+" "+what+": the stream is gone", func() bool { return h.used("cluster", "streams", "").Used == 0 })
		}
	}
	last, err := h.ways("c1")[0].dial(runtest.Within(t), to.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer last.Close()
	runtest.Eventually(t, "the last one has to wait", func() bool { return h.used("caller", "bytesOutPerSecond", "unix:c1/connect").Waiting > 0 })
	if err := h.stop(); err != nil {
		t.Error(err)
	}
}

// A caller with many streams that wait for a low rate leaves: all their places are free
// at once, however long they would have waited, and so when their agent leaves.
func TestManyStreamsThatWaitForARateLeaveAtOnce(t *testing.T) {
	const many = 60 // with 64 KiB each, a second for each of them
	h, a := pair(t, hubSpec{extra: "limits: {caller: {bytesOutPerSecond: 64KiB, bytesInPerSecond: 64KiB}}\n"}, agentSpec{})
	to, deaf := flood(t), runtest.Echo(t)
	open := func(w way, target string, sends bool) (all []net.Conn) {
		for range many {
			conn, err := w.dial(runtest.Within(t), target)
			if err != nil {
				t.Fatal(err)
			}
			if sends {
				go io.Copy(conn, zeros{}) // until it is closed
			}
			all = append(all, conn)
		}
		return all
	}
	waiting := func(n int) func() bool {
		return func() bool {
			for _, l := range h.status("c1").Limits {
				if l.Scope == "caller" && l.Waiting >= n {
					return true
				}
			}
			return false
		}
	}
	for _, w := range h.ways("c1") {
		for what, target := range map[string]string{"out": to.Addr(), "in": deaf.Addr()} {
			all := open(w, target, what == "in")
			runtest.Eventually(t, w.name+" "+what+": most have to wait", waiting(many/2))
			for _, conn := range all {
				abandon(conn)
			}
			runtest.Eventually(t, w.name+" "+what+": their places are free", func() bool { return h.used("cluster", "streams", "").Used == 0 })
		}
	}
	for _, w := range h.ways("c1") {
		if w.name != "konnectivity" {
			continue
		}
		all := open(w, to.Addr(), false)
		runtest.Eventually(t, "most have to wait", waiting(many/2))
		for _, conn := range all {
			go conn.Close() // with a word, as kube-apiserver does: each waits for the answer
		}
		runtest.Eventually(t, "their places are free after they have closed", func() bool { return h.used("cluster", "streams", "").Used == 0 })
	}
	w := h.ways("c1")[0]
	all := open(w, to.Addr(), false)
	runtest.Eventually(t, "most have to wait", waiting(many/2))
	for _, conn := range all {
		go io.Copy(io.Discard, conn)
	}
	a.stop()
	runtest.Eventually(t, "without an agent their places are free", func() bool { return h.used("cluster", "streams", "").Used == 0 })
	for _, conn := range all {
		conn.Close()
	}
}

// Whoever sends, ends its direction and waits for the answer has not left: its rate
// holds, however many connections it makes.
func TestARateHoldsForWhoSendsNoMore(t *testing.T) {
	const conns, each, rate = 4, 96 << 10, 64 << 10
	h, _ := pair(t, hubSpec{extra: "limits: {caller: {bytesInPerSecond: 64KiB}}\n"}, agentSpec{})
	to := runtest.Echo(t)
	w := h.ways("c1")[0]
	var all []net.Conn
	for range conns {
		conn, err := w.dial(runtest.Within(t), to.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		all = append(all, conn)
	}
	begin := time.Now()
	got := make(chan int64, conns)
	for _, conn := range all {
		go func() {
			conn.Write(make([]byte, each))
			conn.(interface{ CloseWrite() error }).CloseWrite()
			n, _ := io.Copy(io.Discard, conn)
			got <- n
		}()
	}
	for range all {
		if n := <-got; n != each {
			t.Errorf("%d bytes came back, of %d", n, each)
		}
	}
	// A second's worth is there at first, and each may be a copy's unit ahead.
	least := time.Duration(conns*(each-limit.CopyBuffer)-rate) * time.Second / rate
	if took := time.Since(begin); took < least*3/4 {
		t.Errorf("it took %v, at this rate at least %v", took, least)
	}
}

// Who leaves too much unread gets no more streams until it has read; others do.
func TestUnreadBytesAreLimited(t *testing.T) {
	bound := func(who string) string {
		return fmt.Sprintf("limits: {%s: {unreadBytes: 64KiB}}\n", who)
	}
	h, _ := pair(t, hubSpec{extra: bound("caller")}, agentSpec{})
	to, fast := runtest.Echo(t), flood(t)
	ways := h.ways("c1")
	live := openOnEach(t, ways, to.Addr())
	lazy, err := ways[0].dial(runtest.Within(t), fast.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer abandon(lazy)
	// Not only on its way: then nothing moves any more.
	last, same := int64(0), 0
	runtest.Eventually(t, "much stays unread", func() bool {
		now := h.used("cluster", "unreadBytes", "").Used
		if same++; now != last {
			last, same = now, 0
		}
		return now >= 64<<10 && same >= 20
	})
	_, err = ways[0].dial(runtest.Within(t), to.Addr())
	wantLimited(t, ways[0], err, "caller unix:c1/connect may leave 64 KiB unread")
	othersWork(t, ways[1:], live[1:], to.Addr())
	for who, says := range map[string]string{"agent": "may leave 64 KiB unread: the bound agent.unreadBytes", "cluster": "cluster c1 may leave 64 KiB unread"} {
		if err := h.reload(bound(who)); err != nil {
			t.Fatal(err)
		}
		for _, w := range ways {
			_, err := w.dial(runtest.Within(t), to.Addr())
			wantLimited(t, w, err, says)
		}
		if l := h.used(who, "unreadBytes", ""); l.Used < 64<<10 || l.Bound != 64<<10 || l.Hits < int64(len(ways)) {
			t.Errorf("status: %+v", l)
		}
	}
	abandon(lazy)
	runtest.Eventually(t, "it is read", func() bool { return h.used("cluster", "unreadBytes", "").Used == 0 })
	othersWork(t, ways, live, to.Addr())
}
