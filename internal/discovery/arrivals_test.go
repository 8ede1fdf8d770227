// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	sdr "github.com/tombolo-io/tombolo/proto/sidero"
)

func (a *arrivals) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.order.Len()
}

// TestCallsThatDoNotComeAreEnded: of a request that is never whole as much is kept as a
// window has, and no bound of whoever calls looks at it.
func TestCallsThatDoNotComeAreEnded(t *testing.T) {
	const each = 20
	r := serve(t, func(*v1alpha1.DiscoveryConfig) {})
	c := r.older()
	watch := mustWatchOf(t, c, "c")
	d := r.deaf(1 << 20)
	for _, method := range []string{methodHello, methodWatch} {
		for range each {
			d.begin(method, discoveryWindow/2)
		}
	}
	runtest.Eventually(t, "all have begun", func() bool { return r.begun.count() == 2*each })
	now := time.Now()
	r.begun.sweep(now)
	if n, _ := d.ended("1"); n > 0 || r.begun.count() != 2*each {
		t.Errorf("%d are ended at once", n)
	}
	r.begun.sweep(now.Add(discoveryBegin))
	runtest.Eventually(t, "they are ended", func() bool {
		n, _ := d.ended("1")
		return n == 2*each && r.begun.count() == 0 && r.watchers.Load() == 1
	})
	mustUpdate(t, c, affiliateUpdate("a", "x"))
	wantTold(t, watch, "")
	if _, err := c.Hello(runtest.Within(t), &sdr.HelloRequest{ClusterId: "c"}); err != nil {
		t.Error(err)
	}
}

// TestManyThatDoNotComeAreEndedSoon: but none that has only just begun, for a crowd of
// callers does so at once.
func TestManyThatDoNotComeAreEndedSoon(t *testing.T) {
	const many = discoveryBegun + 10
	var b arrivals
	now := time.Now()
	for range many {
		if _, err := b.tap(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(b.late(now.Add(limit.DiscoverySweep / 2))); n != 0 {
		t.Errorf("%d that have just begun are ended", n)
	}
	if n := len(b.late(now.Add(2 * limit.DiscoverySweep))); n != many-discoveryBegun {
		t.Errorf("%d are ended, want %d", n, many-discoveryBegun)
	}
	if n := len(b.late(now.Add(2 * discoveryBegin))); n != many {
		t.Errorf("%d are ended, want all %d", n, many)
	}
}
