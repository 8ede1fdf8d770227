// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// crowded is a source that knows n members, each with a lease of 15 minutes, and has handed them out.
type crowded struct {
	*Source
	n    int
	stop func()

	mu sync.Mutex
	handed
}

// handed is what was handed out.
type handed struct {
	copied int // words
	times  int
	last   []roster.Said
}

func (c *crowded) sofar() handed {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.handed
}

func newCrowd(t *testing.T, n int) *crowded {
	t.Helper()
	s, err := New(NewClient(Access{}, nil), Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	c := &crowded{Source: s, n: n}
	l := listing{version: "1"}
	for i := range n {
		l.items = append(l.items, s.followers[0].what.read(time.Now(), c.object(i, 0, "")))
	}
	group := run.NewGroup(t.Context())
	group.Go("news", func(ctx context.Context) error {
		return s.hand(ctx, func(said []roster.Said) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.handed = handed{c.copied + len(said), c.times + 1, said}
		})
	})
	c.stop = func() {
		group.Stop()
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
	}
	s.followers[0].listed(l)
	time.Sleep(time.Minute)
	if h := c.sofar(); h.times != 1 || len(h.last) != n {
		t.Fatalf("handed out %d times, %d members at last, of %d", h.times, len(h.last), n)
	}
	return c
}

// object is that of a member: the number of its renewal, and what it says.
func (c *crowded) object(i, renewal int, host string) json.RawMessage {
	return fmt.Appendf(nil, `{"metadata":{"name":"n%d","generation":%d},"spec":{"hostname":%q,"renewTime":"%d","leaseSeconds":900}}`, i, renewal+1, host, renewal)
}

// TestWorkOfAChange: what is copied for changes all the time has a bound that does not know the number of members;
// one change after silence is told at once.
func TestWorkOfAChange(t *testing.T) {
	for _, n := range []int{100, kubeObjects} {
		synctest.Test(t, func(t *testing.T) {
			c := newCrowd(t, n)
			defer c.stop()
			f := c.followers[0]
			f.event("MODIFIED", c.object(7, 1, "first"))
			first := c.sofar()
			if first.times != 2 {
				t.Errorf("%d members: the first change was told %d times", n, first.times-1)
			}
			const changes = 1000
			for i := range changes {
				f.event("MODIFIED", c.object(i%n, i+2, fmt.Sprint("h", i)))
				time.Sleep(10 * time.Millisecond)
			}
			if bound, did := int(changes*10*time.Millisecond/kubeGatherEach)+2*n, c.sofar().copied-first.copied; did > bound {
				t.Errorf("%d members: %d words copied in 10 s of changes, at most %d should be", n, did, bound)
			}
			time.Sleep(kubeGather + time.Duration(n)*kubeGatherEach)
			found := false
			for _, s := range c.sofar().last {
				found = found || s.Facts.Hostname == fmt.Sprint("h", changes-1)
			}
			if !found {
				t.Errorf("%d members: the last change is not told in time", n)
			}
		})
	}
}

// TestRenewalsAreGathered: what a crowd renews costs a copy each minute, and no lease ends by that.
func TestRenewalsAreGathered(t *testing.T) {
	for _, n := range []int{100, 1000} {
		synctest.Test(t, func(t *testing.T) {
			c := newCrowd(t, n)
			defer c.stop()
			f := c.followers[0]
			minutes := 45
			for m := range minutes {
				for i := range n { // each renews each 5 minutes
					if i%5 == m%5 {
						f.event("MODIFIED", c.object(i, m+1, ""))
						time.Sleep(time.Duration(rand.IntN(int(time.Minute) / n)))
					}
				}
				time.Sleep(30 * time.Second)
				if left, _ := roster.Expire(time.Now(), c.sofar().last); len(left) != n {
					t.Fatalf("after %d min %d of %d live", m, len(left), n)
				}
			}
			if times := c.sofar().times; times > minutes+2 {
				t.Errorf("%d members: handed out %d times in %d min", n, times, minutes)
			}
		})
	}
}

// TestDue: a change is told at once, a renewal before half of what was left is over.
func TestDue(t *testing.T) {
	of := func(host string, lease time.Duration) word {
		w := word{object: object{states: true}}
		w.said.Facts.Hostname = host
		if lease > 0 {
			w.said.Until = begin().Add(lease)
		}
		return w
	}
	for what, tc := range map[string]struct {
		old, now word
		want     time.Duration
	}{
		"a renewal":                    {of("a", 10*time.Minute), of("a", 15*time.Minute), kubeRenewed},
		"of a short lease":             {of("a", 10*time.Second), of("a", 20*time.Second), 5 * time.Second},
		"after the end":                {of("a", -time.Second), of("a", 20*time.Second), 0},
		"a change":                     {of("a", 10*time.Minute), of("b", 15*time.Minute), 0},
		"a lease where none was":       {of("a", 0), of("a", 15*time.Minute), 0},
		"a lease that is no more":      {of("a", 10*time.Minute), of("a", 0), 0},
		"one who comes":                {word{}, of("a", 15*time.Minute), 0},
		"what cannot be read any more": {of("a", 10*time.Minute), word{}, 0},
	} {
		if got := due(begin(), tc.old, tc.now).Sub(begin()); got != tc.want {
			t.Errorf("%s is told after %v, not %v", what, got, tc.want)
		}
	}
}

func BenchmarkEvent(b *testing.B) {
	for _, n := range []int{100, kubeObjects} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s, err := New(NewClient(Access{}, nil), Options{Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				b.Fatal(err)
			}
			c := &crowded{Source: s, n: n}
			for i := range n {
				s.followers[0].event("ADDED", c.object(i, 0, ""))
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				s.followers[0].event("MODIFIED", c.object(i%n, i, "x"))
			}
		})
	}
}
