// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/hub/quota"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

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
	h.memory.LookAtUnread()
	if got := greedy.cluster.accounts.Budget.Unread(); got != n*(each+1) {
		t.Fatalf("a burst was cut to %d", got)
	}
	h.memory.LookAtUnread()
	runtest.Eventually(t, "it is below its bound", func() bool { return greedy.cluster.accounts.Budget.Unread() <= bound })
	if got := greedy.cluster.accounts.Budget.Unread(); got < bound-each-1 {
		t.Errorf("%d bytes are unread, the bound is %d", got, bound)
	}
	h.memory.LookAtUnread()
	h.memory.LookAtUnread()

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
