// SPDX-License-Identifier: Apache-2.0

package system

import (
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
	pb "github.com/tombolo-io/tombolo/proto"
)

// An agent has no business opening streams towards the hub. Thousands of them,
// each with bytes in it, are bounded and harm nobody.
func TestAgentThatOpensStreams(t *testing.T) {
	h, _ := pair(t, hubSpec{}, agentSpec{})
	link, _ := h.rawSession(h.enrol(h.token("c1").Join), "opener")
	runtest.Eventually(t, "it is in", func() bool { return h.connected("c1") == 2 })
	before := runtime.NumGoroutine()
	junk := make([]byte, 64<<10)
	refused, opened := 0, 0
	for range 3000 {
		s, err := link.OpenStream(runtest.Within(t), nil)
		if err != nil {
			break // the hub has had enough of this session
		}
		opened++
		s.SetDeadline(time.Now().Add(200 * time.Millisecond))
		if _, err := s.Write(junk); err != nil {
			refused++
		}
		s.Reset(1)
	}
	t.Logf("opened %d, of which %d were refused at once", opened, refused)
	if n := runtime.NumGoroutine(); n > before+200 {
		t.Errorf("%d goroutines instead of %d", n, before)
	}
	othersServed(t, h)
}

// Streams that an agent opens and keeps are refused beyond a handful.
func TestAgentThatKeepsStreamsOpen(t *testing.T) {
	h, _ := pair(t, hubSpec{}, agentSpec{})
	link, _ := h.rawSession(h.enrol(h.token("c1").Join), "keeper")
	runtest.Eventually(t, "it is in", func() bool { return h.connected("c1") == 2 })
	var kept []carrier.Stream
	for range 300 {
		s, err := link.OpenStream(runtest.Within(t), nil)
		if err != nil {
			break
		}
		s.SetDeadline(time.Now().Add(runtest.Patience))
		s.Write([]byte("hello?"))
		kept = append(kept, s)
	}
	runtest.Eventually(t, "the hub keeps a handful of them", func() bool { // a refusal is under way for a while
		alive := 0
		for _, s := range kept {
			s.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
			if _, err := s.Read(make([]byte, 1)); isTimeout(err) {
				alive++
			}
		}
		return alive <= limit.AgentStreams
	})
	othersServed(t, h)
}

// Sessions of one cluster are bounded; the one too many reads why.
func TestSessionsOfAClusterAreBounded(t *testing.T) {
	h := startHub(t, hubSpec{})
	line := h.tokenWith("c1", time.Hour, limit.SessionsPerCluster/limit.SessionsPerAgent+1).Join
	var cert certificate
	for i := range limit.SessionsPerCluster {
		if i%limit.SessionsPerAgent == 0 {
			cert = h.enrol(line)
		}
		link, control := h.rawSession(cert, "many-"+itoa(i))
		beatsOn(t, link, control) // the first must outlive the time that the others take
	}
	cert = h.enrol(line)
	runtest.Eventually(t, "all places are taken", func() bool { return h.connected("c1") == limit.SessionsPerCluster })
	link, control := h.rawSession(cert, "one-too-many")
	control.SetReadDeadline(time.Now().Add(runtest.Patience))
	var m pb.Control
	if err := wire.Read(control, limit.ControlFrame, &m); err != nil || m.GetGoodbye().GetReason().GetCode() != string(fault.CodeLimit) {
		t.Errorf("got %v, %v", &m, err)
	}
	link.Close()
	if n := h.connected("c1"); n != limit.SessionsPerCluster {
		t.Errorf("%d sessions", n)
	}
	h.token("c2")
	startAgent(t, agentSpec{join: h.token("c2").Join}) // another cluster has its own places
}

// Peers that do not finish their handshake fill a bounded number of places and
// give them back; live streams do not notice.
func TestUnknownPeersAreBounded(t *testing.T) {
	t.Parallel()
	h, _ := pair(t, hubSpec{}, agentSpec{})
	live := openVia(t, h, runtest.Echo(t))
	const extra = 30
	turned := make(chan struct{}, limit.Unauthenticated+extra)
	for range limit.Unauthenticated + extra {
		conn := h.dialTCP()
		go func() {
			io.Copy(io.Discard, conn) // ends when the hub closes, or the test
			turned <- struct{}{}
		}()
	}
	for range extra {
		<-turned
	}
	mustEcho(t, live, "while all places are taken")
	othersServed(t, h) // at the cost of the oldest
	for range limit.Unauthenticated {
		<-turned // after limit.Handshake at the latest
	}
	othersServed(t, h)
}
