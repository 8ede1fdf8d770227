// SPDX-License-Identifier: Apache-2.0

package hub

import "testing"

// TestUseLooksAtEverybody: the greatest share counts, whoever has it, and what has no
// bound has none.
func TestUseLooksAtEverybody(t *testing.T) {
	h := &Hub{access: newAccess(), clusters: newRegistry(nil)}
	c := h.clusters.add(clusterOf(t, "c1"))
	h.clusters.add(clusterOf(t, "c2"))
	l := c.accounts.limits
	l.cluster.sessions, l.cluster.streams, l.cluster.unread = 10, 10, 1000
	l.agent.sessions, l.agent.streams = 4, 100
	l.caller.sessions, l.caller.unread = 100, 100
	c.accounts.bound(l)
	agent, caller := c.accounts.agent(agentOf(t, "a1")), c.accounts.caller("me")
	c.accounts.cluster.sessions.Store(1)
	c.accounts.cluster.streams.Store(2)
	agent.sessions.Store(3)
	agent.streams.Store(90)
	agent.unread.Store(1 << 30) // without a bound
	caller.sessions.Store(50)
	caller.streams.Store(1 << 20) // without a bound
	caller.unread.Store(70)
	c.accounts.waits.Store(500)
	for name, want := range map[string]float64{
		"sessions": 0.75, "streams": 0.9, "unreadBytes": 0.7, "pendingDials": 0, "dialsPerSecond": 0, "bytesInPerSecond": 0, "bytesOutPerSecond": 0,
	} {
		if got := h.limitUse(name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	c.accounts.cluster.streams.Store(10)
	if got := h.limitUse("streams"); got != 1 {
		t.Errorf("the cluster's own: %v", got)
	}
	for k := range resources { // bounded knows them all
		for _, a := range []*account{c.accounts.cluster, agent, caller} {
			if _, bound, _ := a.use(k, 0); a.bounded(k) != (bound != unbounded) {
				t.Errorf("%s of %s: bounded is %v", k, a.scope, a.bounded(k))
			}
		}
	}
}
