// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/hub/quota"
	"github.com/tombolo-io/tombolo/internal/stream/hub/record"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// What a caller has unread is what came for it and it did not read, and what frontends
// hold of it; not what it has written, which its agent is about to get.
func TestUnreadOfACaller(t *testing.T) {
	h := bareHub(t)
	e := eat(t, h, "c1")
	e.open(t, 3, 1000)
	me, other := e.accounts.Caller("me"), e.accounts.Caller("other")
	want := func(n int64) {
		t.Helper()
		if a, b := e.accounts.Unread(me), e.accounts.Unread(e.accounts.Cluster); a != n || b != n || e.accounts.Unread(other) != 0 {
			t.Fatalf("%d of the caller, %d of the cluster are unread, want %d", a, b, n)
		}
	}
	want(3000)
	if _, err := e.streams[0].Write(make([]byte, 4000)); err != nil {
		t.Fatal(err)
	}
	want(3000)
	if _, err := e.streams[0].Read(make([]byte, 400)); err != nil {
		t.Fatal(err)
	}
	want(2600)
	e.streams[1].Charge(5000)
	want(7600)
	if n := e.streams[1].UnreadBytes(); n != 6000 {
		t.Errorf("the stream has %d of it", n)
	}
	e.streams[1].Reset(1)
	want(1600 + 5000)
	e.streams[1].Charge(-5000) // its frontend is later
	want(1600)
	e.streams[0].Close()
	e.streams[2].Reset(1)
	want(0)
}

// A dial asks what is unread of its cluster and its caller, and looks at no stream for
// that: with ten thousand of them it takes no more memory than with ten, and no lock
// that a stream takes.
func TestADialLooksAtNoStreams(t *testing.T) {
	h := bareHub(t)
	e := eat(t, h, "c1")
	who := e.accounts.Caller("me")
	b := who.Bounds()
	b.Unread = 1 << 20
	who.Bound(b)
	s := &session{cluster: e.cluster, account: e.accounts.Agent(agentOf(t, "a1"))}
	p := &quota.Grant{}
	ask := func() {
		if err := e.accounts.Room(who); err != nil {
			t.Fatal(err)
		}
		if err := e.accounts.TakeAt(s.account, p); err != nil {
			t.Fatal(err)
		}
		p.Cancel()
	}
	who.UnreadTally().Add(1 << 10)
	defer who.UnreadTally().Add(-1 << 10)
	n := 0
	for _, streams := range []int{10, 10_000} {
		for ; n < streams; n++ {
			if _, ok := h.access.Enter(e.name, &hubStream{parts: h.parts, by: e.session}); !ok {
				t.Fatal("it may not live")
			}
		}
		if allocs := testing.AllocsPerRun(10, ask); allocs > 1 { // one for its turn
			t.Errorf("with %d streams a dial allocates %v times", streams, allocs)
		}
	}
}

// Uploads that targets do not take count for their cluster's bound, and the newest and
// largest are cut when they stay beyond it.
func TestStalledUploadsAreCut(t *testing.T) {
	h := bareHub(t)
	e := eat(t, h, "c1")
	e.open(t, 8, 1)
	b := e.accounts.Cluster.Bounds()
	b.Unread = 1 << 20
	e.accounts.Cluster.Bound(b)
	for _, s := range e.streams {
		s.Charge(limit.KonnectivityWindow)
	}
	if f := fault.From(e.accounts.Room(e.accounts.Caller("me"))); f == nil || f.Code != fault.CodeLimit || !strings.Contains(f.Why, "cluster.unreadBytes") {
		t.Fatalf("a dial is told %v", f)
	}
	h.memory.LookAtUnread()
	h.memory.LookAtUnread()
	cut := 0
	for i, s := range e.streams {
		if s.ended != "" {
			cut++
			s.Charge(-limit.KonnectivityWindow)
		} else if cut > 0 {
			t.Fatalf("stream %d lives, an older one was cut", i)
		}
	}
	if n := e.accounts.Unread(e.accounts.Cluster); cut != 5 || n > b.Unread {
		t.Errorf("%d streams were cut, %d bytes are left", cut, n)
	}
	for _, s := range e.streams[:3] {
		s.Charge(-limit.KonnectivityWindow)
		s.Reset(1)
	}
}

// A stream of which a record is kept is charged as one without.
func TestRecordedStreamsAreCharged(t *testing.T) {
	h := bareHub(t)
	e := eat(t, h, "c1")
	e.open(t, 1, 1)
	s := h.record.Dial(record.Party{}, wire.Dial{}, time.Now()).Opened(e.streams[0]).(*record.Dial)
	s.Charge(1000)
	if n := e.accounts.Unread(e.accounts.Cluster); n != 1001 {
		t.Errorf("%d bytes are counted", n)
	}
	s.Charge(-1000)
	e.streams[0].Reset(1)
}
