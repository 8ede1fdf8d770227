// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// TestWhoWaitsForOthers: who waits a moment for others that may send.
func TestWhoWaitsForOthers(t *testing.T) {
	l := &lane{}
	for i, c := range []struct {
		id   uint32
		bulk bool
		want bool
	}{
		{1, false, false}, // the first
		{1, false, false}, // a conversation
		{0, false, false}, // a WINDOW in between
		{1, false, false},
		{3, false, true}, // a second one
		{1, false, true},
		{3, true, false}, // bulk would wait
		{1, false, true},
		{1, false, false}, // the other one is silent
	} {
		l.old = streamQueue{}
		if c.bulk {
			l.old.push(&muxStream{})
		}
		if got := l.togetherLocked(c.id); got != c.want {
			t.Errorf("step %d: stream %d waits: %v", i, c.id, got)
		}
	}
}

// TestFramesShareAWrite: many streams that say a word at once need no write each.
func TestFramesShareAWrite(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // else chance decides who runs at the same time
	s, p := scripted(t, false, Options{})
	var streams []*muxStream
	for range 20 {
		streams = append(streams, open(t, s, "x"))
	}
	p.settle()
	var writes atomic.Int32
	l := s.lanes[0]
	l.mu.Lock()
	once := l.sock.attempt
	l.sock.attempt = func(fd uintptr) bool {
		writes.Add(1)
		return once(fd)
	}
	l.mu.Unlock()
	var all sync.WaitGroup
	for _, st := range streams {
		all.Go(func() { st.Write([]byte("a word")) })
	}
	all.Wait()
	p.settle()
	if n := writes.Load(); n > 5 {
		t.Errorf("%d streams needed %d writes", len(streams), n)
	}
}
