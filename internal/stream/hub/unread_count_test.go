// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// What a caller has unread is what came for it and it did not read, and what frontends
// hold of it; not what it has written, which its agent is about to get.
func TestUnreadOfACaller(t *testing.T) {
	h := bareHub(t)
	e := eat(t, h, "c1")
	e.open(t, 3, 1000)
	me, other := e.accounts.caller("me"), e.accounts.caller("other")
	want := func(n int64) {
		t.Helper()
		if a, b := e.unreadOf(me), e.unreadOf(e.accounts.cluster); a != n || b != n || e.unreadOf(other) != 0 {
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
	if n := e.streams[1].unread(); n != 6000 {
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
	who := e.accounts.caller("me")
	b := *who.bounds.Load()
	b.unread = 1 << 20
	who.bound(b)
	s := &session{cluster: e.cluster, account: e.accounts.agent(agentOf(t, "a1"))}
	p := &places{}
	ask := func() {
		if err := h.roomFor(e.cluster, who); err != nil {
			t.Fatal(err)
		}
		if err := s.placeAt(p); err != nil {
			t.Fatal(err)
		}
		p.end()
	}
	who.unread.Add(1 << 10)
	defer who.unread.Add(-1 << 10)
	n := 0
	for _, streams := range []int{10, 10_000} {
		for ; n < streams; n++ {
			if _, ok := h.access.enter(e.name, &hubStream{hub: h, session: e.session}); !ok {
				t.Fatal("it may not live")
			}
		}
		if allocs := testing.AllocsPerRun(10, ask); allocs > 1 { // one for its turn
			t.Errorf("with %d streams a dial allocates %v times", streams, allocs)
		}
		done := make(chan struct{})
		h.access.mu.Lock() // as a stream that begins or ends
		go func() { defer close(done); ask() }()
		select {
		case <-done:
		case <-time.After(runtest.Patience):
			t.Error("a dial waits for the streams")
		}
		h.access.mu.Unlock()
	}
}

// Uploads that targets do not take count for their cluster's bound, and the newest and
// largest are cut when they stay beyond it.
func TestStalledUploadsAreCut(t *testing.T) {
	h := bareHub(t)
	e := eat(t, h, "c1")
	e.open(t, 8, 1)
	b := *e.accounts.cluster.bounds.Load()
	b.unread = 1 << 20
	e.accounts.cluster.bound(b)
	for _, s := range e.streams {
		s.Charge(limit.KonnectivityWindow)
	}
	if f := fault.From(h.roomFor(e.cluster, e.accounts.caller("me"))); f == nil || f.Code != fault.CodeLimit || !strings.Contains(f.Why, "cluster.unreadBytes") {
		t.Fatalf("a dial is told %v", f)
	}
	h.lookAtUnread()
	h.lookAtUnread()
	cut := 0
	for i, s := range e.streams {
		if s.ended != "" {
			cut++
			s.Charge(-limit.KonnectivityWindow)
		} else if cut > 0 {
			t.Fatalf("stream %d lives, an older one was cut", i)
		}
	}
	if n := e.unreadOf(e.accounts.cluster); cut != 5 || n > b.unread {
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
	s := &recordedStream{Stream: e.streams[0], inner: e.streams[0]}
	s.Charge(1000)
	if n := e.unreadOf(e.accounts.cluster); n != 1001 {
		t.Errorf("%d bytes are counted", n)
	}
	s.Charge(-1000)
	e.streams[0].Reset(1)
}

// oneByOne gives the connections that it is fed with.
type oneByOne struct {
	net.Listener
	conns chan net.Conn
}

func (l oneByOne) Accept() (net.Conn, error) { return <-l.conns, nil }

// TestASocketKeepsOneAccount: a listener outlives the account of its caller when many
// others come and it has had no connection for long. What comes later counts in the
// account that status, dials and limits see, and the bound holds over both.
func TestASocketKeepsOneAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &Hub{access: newAccess(), clusters: newRegistry(nil)}
		c := h.clusters.add(clusterOf(t, "c1"))
		l := c.accounts.limits
		l.caller.sessions = 1
		c.accounts.bound(l)
		const me = "unix:c1/konnectivity"
		ctx := withParty(t.Context(), party{cluster: c.name, caller: me})
		feed := oneByOne{conns: make(chan net.Conn, 4)}
		ln := h.metered(ctx, feed).(*metered)
		refused := 0
		ln.refuse = func(conn net.Conn, f *fault.Fault) { refused++; conn.Close() }
		accept := func() net.Conn {
			near, far := net.Pipe()
			t.Cleanup(func() { far.Close() })
			feed.conns <- near
			conn, _ := ln.Accept()
			return conn
		}
		evict := func() {
			time.Sleep(limit.CallerKept + time.Second)
			for i := range limit.CallerRecords + 1 {
				c.accounts.caller(fmt.Sprint("other", i))
			}
		}
		first := c.accounts.caller(me)
		accept().Close()
		evict()
		if c.accounts.callers[me] == first {
			t.Fatal("nothing was evicted")
		}
		conn := accept()
		mine := c.accounts.caller(me)
		if mine.sessions.Load() != 1 || first.sessions.Load() != 0 {
			t.Errorf("%d connections count now, %d in the account that is gone", mine.sessions.Load(), first.sessions.Load())
		}
		evict() // live: it stays
		if c.accounts.caller(me) != mine {
			t.Error("an account with a connection was evicted")
		}
		if f := ln.account().connect(); f == nil || f.Code != fault.CodeLimit {
			t.Errorf("one beyond the bound is told %v", f)
		}
		conn.Close()
		if h.callerOf(ctx) != mine || mine.sessions.Load() != 0 {
			t.Errorf("%d connections are left", mine.sessions.Load())
		}
		accept().Close()
		if refused != 0 {
			t.Errorf("%d were refused", refused)
		}
	})
}

// TestWhoHasAPlaceKeepsItsAccount: each kind of place alone does.
func TestWhoHasAPlaceKeepsItsAccount(t *testing.T) {
	now := time.Now()
	for name, take := range map[string]func(*account){
		"":                        func(*account) {},
		"a connection":            func(a *account) { a.sessions.Add(1) },
		"a stream":                func(a *account) { a.streams.Add(1) },
		"a session that comes":    func(a *account) { a.coming.Add(1) },
		"bytes that are unread":   func(a *account) { a.unread.Add(1) },
		"was looked for just now": func(a *account) { a.newest.Store(now.UnixNano()) },
	} {
		a, _ := testAccount(func(*bounds) {})
		take(a)
		if a.idle(now, limit.CallerKept) != (name == "") {
			t.Errorf("%q: idle is %v", name, name != "")
		}
	}
}
