// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/id"
)

// TestUseLooksAtEverybody: the greatest share counts, whoever has it, and what has no
// bound has none.
func TestUseLooksAtEverybody(t *testing.T) {
	book := testBook(t)
	l := book.limits
	l.Cluster.Sessions, l.Cluster.Streams, l.Cluster.Unread = 10, 10, 1000
	l.Agent.Sessions, l.Agent.Streams = 4, 100
	l.Caller.Sessions, l.Caller.Unread = 100, 100
	book.Bound(l)
	agent, caller := book.Agent(id.Agent{}), book.Caller("me")
	book.Cluster.sessions.Store(1)
	book.Cluster.streams.Store(2)
	agent.sessions.Store(3)
	agent.streams.Store(90)
	agent.unread.Store(1 << 30) // without a bound
	caller.sessions.Store(50)
	caller.streams.Store(1 << 20) // without a bound
	caller.unread.Store(70)
	book.waits.Store(500)
	for name, want := range map[string]float64{
		"sessions": 0.75, "streams": 0.9, "unreadBytes": 0.7, "pendingDials": 0, "dialsPerSecond": 0, "bytesInPerSecond": 0, "bytesOutPerSecond": 0,
	} {
		if got := book.GreatestUse(name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	book.Cluster.streams.Store(10)
	if got := book.GreatestUse("streams"); got != 1 {
		t.Errorf("the cluster's own: %v", got)
	}
	for k := range resources { // bounded knows them all
		for _, a := range []*Account{book.Cluster, agent, caller} {
			if _, bound, _ := a.use(k, 0); a.bounded(k) != (bound != Unbounded) {
				t.Errorf("%s of %s: bounded is %v", k, a.scope, a.bounded(k))
			}
		}
	}
}
