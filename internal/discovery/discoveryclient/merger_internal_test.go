// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// gathered is a counter that is told when a merge has gathered what is stated.
type gathered struct {
	prometheus.Counter
	then func()
}

func (g *gathered) Add(float64) { g.then() }

// TestALateMergeHidesNothing: a merge that has gathered before a member came, and ends after another one that knows
// it, does not take the member away. Nothing would merge again before the next news.
func TestALateMergeHidesNothing(t *testing.T) {
	box, counter := &mailbox{}, &gathered{then: func() {}}
	m := &merger{news: newNews(), native: newNativeBook(), subs: &subscriptions{}, sources: []*mailbox{box},
		merged: counter, seen: make(chan struct{})}
	m.subs.held.Store(&held{})
	now := time.Now()
	counter.then = func() {
		counter.then = func() {}
		static := roster.Source{Tier: roster.TierStatic, Name: "file"}
		box.put([]roster.Said{{Source: static, Facts: member.Facts{ID: "a", Node: "a", Key: keyOf("a")}}})
		m.merge(now)
	}
	m.merge(now)
	if r, _ := m.current(); len(r.Members) != 1 || r.Members[0].Node != "a" {
		t.Errorf("the members are %+v", r.Members)
	}
	m.merge(now)
	if r, _ := m.current(); len(r.Members) != 1 {
		t.Errorf("after one more the members are %+v", r.Members)
	}
}
