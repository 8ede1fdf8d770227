// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"context"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// ended remembers that it was closed; nothing else of it is used.
type ended struct {
	net.Conn
	closed bool
}

func (e *ended) Close() error {
	e.closed = true
	return nil
}

// closed are the numbers of those that were closed.
func closed(conns []*ended) (out []int) {
	for i, c := range conns {
		if c.closed {
			out = append(out, i)
		}
	}
	return out
}

// TestUnauthenticatedConnectionsWait: on a full hub one more waits for a place, or for the oldest
// to have kept us waiting for its grace. One that waits for us keeps its place.
func TestUnauthenticatedConnectionsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unread := map[net.Conn]int{}
		s := NewUnauthenticated(2, func() {})
		s.unread = func(c net.Conn) int { return unread[c] }
		conns := make([]*ended, 6)
		for i := range conns {
			conns[i] = &ended{}
		}
		took := func(i int) (*Pending, time.Duration) {
			begin := time.Now()
			return s.Add(t.Context(), conns[i]), time.Since(begin)
		}
		want := func(i int, got, want time.Duration, shed ...int) {
			t.Helper()
			if got != want || !slices.Equal(closed(conns), shed) {
				t.Errorf("connection %d waited %v, want %v; closed %v, want %v", i, got, want, closed(conns), shed)
			}
		}
		first, d := took(0)
		want(0, d, 0)
		time.Sleep(limit.SilentGrace / 4)
		_, d = took(1)
		want(1, d, 0)
		time.AfterFunc(limit.SilentGrace/4, first.Authenticated)
		_, d = took(2)
		want(2, d, limit.SilentGrace/4) // a place has become free
		_, d = took(3)
		want(3, d, limit.SilentGrace*3/4, 1) // the oldest was silent for its grace
		unread[conns[2]] = 5
		_, d = took(4)
		if d < limit.SilentGrace*19/20 || !slices.Equal(closed(conns), []int{1, 3}) {
			t.Errorf("after %v closed %v: whoever waits for us loses no place", d, closed(conns))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		begin := time.Now()
		last := s.Add(ctx, conns[5])
		if time.Since(begin) != 0 {
			t.Error("it waits although the hub ends")
		}
		last.Gone()
		before := s.order.Len()
		last.Authenticated()
		first.Gone()
		if s.order.Len() != before {
			t.Error("a place was given back twice")
		}
	})
}

// TestGrace: as long as connections authenticate they have time; a flood of
// silent ones has little, and it comes back afterwards.
func TestGrace(t *testing.T) {
	l := successRate(1)
	step := func(n int, known bool) time.Duration {
		for range n {
			l.add(known)
		}
		return l.grace()
	}
	for _, c := range []struct {
		n           int
		known       bool
		least, most time.Duration
	}{
		{0, true, limit.SilentGrace, limit.SilentGrace},
		{10_000, true, limit.SilentGrace, limit.SilentGrace},
		{1, false, limit.SilentGrace * 9 / 10, limit.SilentGrace},
		{500, false, limit.SilentLeast, limit.SilentLeast + time.Millisecond},
		{1_000_000, false, limit.SilentLeast, limit.SilentLeast + time.Millisecond},
		{500, true, limit.SilentGrace - time.Millisecond, limit.SilentGrace},
	} {
		if got := step(c.n, c.known); got < c.least || got > c.most {
			t.Errorf("after %d with known %v the grace is %v, want %v to %v", c.n, c.known, got, c.least, c.most)
		}
	}
}
