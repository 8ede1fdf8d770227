// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// set puts data onto a board; empty data takes the member away.
func set(b *Board, p Place, data string, ttl time.Duration) error {
	return b.Apply(p, netip.Addr{}, func(was roster.Lease) (roster.Lease, roster.Change, error) {
		if data == "" {
			return roster.Lease{}, roster.Gone, nil
		}
		is, change := was.Put(time.Now(), roster.Update{Data: []byte(data), TTL: ttl})
		return is, change, nil
	})
}

func mustSet(t testing.TB, b *Board, p Place, data string) {
	t.Helper()
	if err := set(b, p, data, long); err != nil {
		t.Fatal(err)
	}
}

func watching(t testing.TB, b *Board, c Cluster) *Watcher {
	t.Helper()
	w := b.Watch(c)
	t.Cleanup(w.Close)
	return w
}

// next is what a watcher is told that does not wait.
func next(t testing.TB, w *Watcher) []Listing {
	t.Helper()
	out, _, err := w.since()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAnIdleClusterIsForgotten(t *testing.T) {
	b := NewBoard(Bounds{Clusters: 1})
	c := sidero("").Cluster
	empty := func(when string) {
		t.Helper()
		if clusters, members, bytes := b.Counts(); clusters+members+int(bytes)+len(b.clusters)+len(b.shares.of) != 0 {
			t.Fatalf("%s: %d clusters, %d members, %d bytes; %v, %v", when, clusters, members, bytes, b.clusters, b.shares.of)
		}
	}
	if err := set(b, sidero("a"), "", long); err != nil {
		t.Fatal(err)
	}
	empty("a delete of what never was")
	refuse := fault.New(fault.CodeEntryStale, "no")
	if err := b.Apply(sidero("a"), netip.Addr{}, func(l roster.Lease) (roster.Lease, roster.Change, error) { return l, 0, refuse }); err == nil {
		t.Fatal("no error")
	}
	empty("a refusal")
	mustSet(t, b, sidero("a"), "x")
	b.Expire(time.Now().Add(long))
	empty("the end of the last lease")
	mustSet(t, b, sidero("a"), "x")
	w := watching(t, b, c)
	mustSet(t, b, sidero("a"), "")
	if clusters, _, _ := b.Counts(); clusters != 0 || len(b.clusters) != 1 {
		t.Fatalf("%d clusters with a member, %d at all, while one is watched", clusters, len(b.clusters))
	}
	mustSet(t, b, sidero("b"), "y")
	if got := ids(next(t, w)); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("told of %q", got)
	}
	mustSet(t, b, sidero("b"), "")
	w.Close()
	w.Close() // once more harms nobody
	empty("the end of the last watch")
	// Who only watches takes no cluster from anybody.
	watching(t, b, Cluster{Sidero, "other"})
	watching(t, b, Cluster{Sidero, "third"})
	mustSet(t, b, sidero("a"), "x")
	if err := set(b, Place{Cluster{Sidero, "other"}, "a"}, "x", long); !fault.Has(err, fault.CodeLimit) {
		t.Errorf("a second cluster is taken: %v", err)
	}
}

// TestAWatcherThatIsBehind is told of each member once, and begins anew when it is
// further behind than the log.
func TestAWatcherThatIsBehind(t *testing.T) {
	b := NewBoard(Bounds{})
	c := sidero("").Cluster
	for n := range 5 {
		mustSet(t, b, sidero("early"), strconv.Itoa(n)) // nobody watches: no log
	}
	slow, quick := watching(t, b, c), watching(t, b, c)
	for n := range discoveryLogFew / 2 {
		mustSet(t, b, sidero("a"), strconv.Itoa(n))
		mustSet(t, b, sidero("b"), strconv.Itoa(n))
	}
	if got := next(t, quick); !slices.Equal(ids(got), []string{"a", "b"}) || string(got[0].Lease.Data) != "31" {
		t.Errorf("%+v", got)
	}
	late := watching(t, b, c) // between a note and the trimming of the log
	mustSet(t, b, sidero("b"), "z")
	for name, w := range map[string]*Watcher{"quick": quick, "late": late} {
		if got := next(t, w); !slices.Equal(ids(got), []string{"b"}) {
			t.Errorf("%s: %q", name, ids(got))
		}
	}
	_, err := slow.Next(runtest.Within(t))
	wantFault(t, err, fault.CodeWatchLost)
	drawn(t, slow, func(all []Listing) [][]byte {
		if !slices.Equal(ids(all), []string{"a", "b", "early"}) {
			t.Errorf("%q", ids(all))
		}
		return nil
	})
	if got := next(t, slow); len(got) != 0 {
		t.Errorf("after a new beginning: %q", ids(got))
	}
	ctx, cancel := context.WithCancel(runtest.Within(t))
	cancel()
	if _, err := slow.Next(ctx); err == nil {
		t.Error("Next went on after its context")
	}
}

func TestASnapshotIsSharedAndForgotten(t *testing.T) {
	b := NewBoard(Bounds{})
	c := sidero("").Cluster
	const members = 64
	for n := range members {
		mustSet(t, b, sidero(fmt.Sprintf("%02d", n)), "x")
	}
	rendered := 0
	ask := func(w *Watcher) *Rendered {
		return drawn(t, w, func(all []Listing) [][]byte {
			rendered++
			if len(all) != members {
				t.Errorf("%d members", len(all))
			}
			return [][]byte{[]byte("bytes")}
		})
	}
	first, second := watching(t, b, c), watching(t, b, c)
	r := ask(first)
	if ask(second) != r || rendered != 1 {
		t.Errorf("rendered %d times", rendered)
	}
	for n := range 4 {
		mustSet(t, b, sidero(fmt.Sprintf("%02d", n)), "y")
	}
	third := watching(t, b, c)
	if ask(third) == r && !slices.Equal(ids(next(t, third)), []string{"00", "01", "02", "03"}) {
		t.Error("what the shared snapshot lacks was not told")
	}
	for n := range members {
		mustSet(t, b, sidero(fmt.Sprintf("%02d", n)), "z")
	}
	if ask(third) == r {
		t.Error("a snapshot of long ago was given out")
	}
	before := rendered
	runtime.KeepAlive(r)
	runtest.Eventually(t, "the snapshot is forgotten", func() bool {
		runtime.GC()
		ask(third)
		return rendered > before
	})
}

// TestBytesHoldAgainstManyAtOnce: no more get in than fit.
func TestBytesHoldAgainstManyAtOnce(t *testing.T) {
	const room, one = 100 * 1000, costMember + 10
	b := NewBoard(Bounds{Bytes: room})
	g := run.NewGroup(context.Background())
	var taken atomic.Int64
	for n := range 8 {
		g.Do(func(context.Context) {
			for m := range 100 {
				if set(b, Place{Cluster{Sidero, strconv.Itoa(n)}, fmt.Sprintf("%02d", m)}, "12345678", long) == nil {
					taken.Add(1)
				}
				if _, _, bytes := b.Counts(); bytes > room+8*(one+costCluster+1) { // what is being refused just now
					t.Errorf("%d bytes", bytes)
				}
			}
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	clusters, members, bytes := b.Counts()
	if bytes > room || int64(members) != taken.Load() || bytes != one*int64(members)+(costCluster+1)*int64(clusters) || bytes < room*8/10 {
		t.Errorf("%d clusters, %d members, %d taken, %d bytes", clusters, members, taken.Load(), bytes)
	}
}

// TestWatchersAgreeWithTheBoard: members come, change, end and are deleted while
// watchers begin, re-list and end; each of them knows the board in the end.
func TestWatchersAgreeWithTheBoard(t *testing.T) {
	b := NewBoard(Bounds{})
	c := sidero("").Cluster
	const writers, rounds = 4, 400
	g := run.NewGroup(runtest.Within(t))
	var writing atomic.Int64
	writing.Store(writers)
	for n := range writers {
		g.Go("writer", func(context.Context) error {
			defer writing.Add(-1)
			for i := range rounds {
				data := strconv.Itoa(i)
				if i%7 == 6 {
					data = ""
				}
				if err := set(b, sidero(fmt.Sprintf("%d-%d", n, i%40)), data, time.Millisecond*time.Duration(i%3*100_000+1)); err != nil {
					return err
				}
				if i%50 == 0 {
					b.Expire(time.Now())
				}
			}
			return nil
		})
	}
	for n := range 8 {
		g.Go("watcher", func(ctx context.Context) error {
			for again := 20 + n; ; again *= 2 { // each begins anew a few times, and then stays
				over, err := follow(b, c, again, func() bool { return writing.Load() == 0 || ctx.Err() != nil })
				if over || err != nil {
					return err
				}
			}
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	b.Expire(time.Now().Add(time.Hour))
	if clusters, members, bytes := b.Counts(); clusters+members+int(bytes) != 0 {
		t.Errorf("%d clusters, %d members, %d bytes are left", clusters, members, bytes)
	}
}

// follow watches until it has asked a number of times, or fell behind, or all is
// over: then what it knows must be what is on the board.
func follow(b *Board, c Cluster, times int, end func() bool) (over bool, err error) {
	w := b.Watch(c)
	defer w.Close()
	known := map[string]string{}
	all, err := w.Snapshot(pieces, nil)
	if err != nil {
		return false, err
	}
	for _, piece := range all.Pieces {
		id, data, _ := strings.Cut(string(piece), "=")
		known[id] = data
	}
	for ; times > 0 && !over; times-- {
		over = end()
		out, _, err := w.since()
		if fault.Has(err, fault.CodeWatchLost) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		for _, l := range out {
			known[l.ID] = string(l.Lease.Data)
			if !l.Lease.Listed() {
				delete(known, l.ID)
			}
		}
		runtime.Gosched()
	}
	if !over {
		return false, nil
	}
	for _, l := range b.List(c) {
		if known[l.ID] != string(l.Lease.Data) {
			return true, fmt.Errorf("member %s is %q, known as %q", l.ID, l.Lease.Data, known[l.ID])
		}
		delete(known, l.ID)
	}
	if len(known) > 0 {
		return true, fmt.Errorf("known, and not there: %v", known)
	}
	return true, nil
}

func pieces(all []Listing) (out [][]byte) {
	for _, l := range all {
		out = append(out, []byte(l.ID+"="+string(l.Lease.Data)))
	}
	return out
}
