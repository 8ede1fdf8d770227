// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/hub/quota"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

// TestWhoIsOverdue: at a bound of 100.
func TestWhoIsOverdue(t *testing.T) {
	for name, c := range map[string]struct {
		unread, before, cut, beyond string
	}{
		"nobody":                         {"", "", "", ""},
		"below the bound, for long":      {"a:99", "", "", ""},
		"at the bound":                   {"a:100", "a", "", ""},
		"beyond it for the first time":   {"a:300", "", "", "a"},
		"still, the second time":         {"a:300", "a", "a:200", ""},
		"it was a burst":                 {"a:20", "a", "", ""},
		"and again after it has given":   {"a:101", "", "", "a"},
		"each for itself":                {"a:150 b:150 c:50", "a", "a:50", "b"},
		"who has nothing is not kept":    {"b:150", "a", "", "b"},
		"both":                           {"a:101 b:900", "a b", "a:1 b:800", ""},
		"who was cut has two looks more": {"a:300 b:1", "b", "", "a"},
	} {
		t.Run(name, func(t *testing.T) {
			var all []leaver
			each := func(text string, do func(who id.Cluster, n int64)) {
				for _, f := range strings.Fields(text) {
					var n int64
					who, rest, _ := strings.Cut(f, ":")
					fmt.Sscan(rest, &n)
					do(clusterOf(t, who), n)
				}
			}
			before, cut, beyond := map[id.Cluster]bool{}, map[id.Cluster]int64{}, map[id.Cluster]bool{}
			each(c.unread, func(who id.Cluster, n int64) { all = append(all, leaver{&cluster{name: who}, n, 100}) })
			each(c.before, func(who id.Cluster, _ int64) { before[who] = true })
			each(c.cut, func(who id.Cluster, n int64) { cut[who] = n })
			each(c.beyond, func(who id.Cluster, _ int64) { beyond[who] = true })
			gotCut, gotBeyond := overdue(all, before)
			if !maps.Equal(gotCut, cut) || !maps.Equal(gotBeyond, beyond) {
				t.Errorf("cut %v, beyond %v", gotCut, gotBeyond)
			}
		})
	}
}

// Streams that were idle when they got their windows bring more than the cluster may
// leave unread: it comes back below its bound, without a limit of memory, and nobody
// else is touched.
func TestUnreadComesBackBelowItsBound(t *testing.T) {
	const (
		bound = 1 << 20
		each  = 200 << 10
		n     = 40
	)
	h := bareHub(t)
	greedy, slow := eat(t, h, "c1"), eat(t, h, "c2")
	for _, e := range []*eaters{greedy, slow} {
		b := e.accounts.Cluster.Bounds()
		b.Unread = bound
		e.accounts.Cluster.Bound(b)
		e.accounts.Budget.Bound(bound)
	}
	greedy.open(t, n, 1) // idle: all have their windows
	slow.open(t, 1, each)
	for _, far := range greedy.far {
		if _, err := far.Write(make([]byte, each)); err != nil {
			t.Fatal(err)
		}
	}
	runtest.Eventually(t, "all of it is there", func() bool { return greedy.cluster.accounts.Budget.Unread() == n*(each+1) })
	h.lookAtUnread()
	if got := greedy.cluster.accounts.Budget.Unread(); got != n*(each+1) {
		t.Fatalf("a burst was cut to %d", got)
	}
	h.lookAtUnread()
	runtest.Eventually(t, "it is below its bound", func() bool { return greedy.cluster.accounts.Budget.Unread() <= bound })
	if got := greedy.cluster.accounts.Budget.Unread(); got < bound-each-1 {
		t.Errorf("%d bytes are unread, the bound is %d", got, bound)
	}
	h.lookAtUnread()
	h.lookAtUnread()

	cut := 0
	for i, s := range greedy.streams {
		switch {
		case s.ended != "":
			cut++
			f := fault.From(read(s))
			if f.Code != fault.CodeLimit || !strings.Contains(f.Why, "cluster.unreadBytes") || !strings.Contains(f.What, "1 MiB") {
				t.Fatalf("its reader is told %+v", f)
			}
		case cut > 0:
			t.Fatal("an older one was cut, and a newer one lives")
		default:
			if _, err := io.ReadFull(s, make([]byte, each)); err != nil {
				t.Errorf("one that lives, %d: %v", i, err)
			}
		}
	}
	if want := n - bound/(each+1); cut != want {
		t.Errorf("%d of %d streams were cut, want %d", cut, n, want)
	}
	if hits := greedy.accounts.Cluster.Hits(quota.UnreadBytes); int(hits) != cut {
		t.Errorf("%d hits, %d streams cut", hits, cut)
	}
	last := greedy.far[n-1]
	last.SetReadDeadline(time.Now().Add(runtest.Patience))
	var reset *carrier.ResetError
	if _, err := io.Copy(io.Discard, last); !errors.As(err, &reset) || splice.ResetReason(reset.Code) != fault.CodeLimit {
		t.Errorf("the agent reads %v", err)
	}
	if _, err := io.ReadFull(slow.streams[0], make([]byte, each)); err != nil || slow.streams[0].ended != "" {
		t.Errorf("the slow reader below the bound: %v", err)
	}
	for _, s := range append(greedy.streams, slow.streams...) {
		s.Reset(1)
	}
	runtest.Eventually(t, "no byte is unread at the end", func() bool {
		return greedy.cluster.accounts.Budget.Unread()+slow.cluster.accounts.Budget.Unread() == 0
	})
}

func read(s *hubStream) error {
	_, err := s.Read(make([]byte, 1))
	return err
}
