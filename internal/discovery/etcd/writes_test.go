// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// TestAWriteWithoutAnAnswerIsSaidAgain: it was done, and the answer was lost.
func TestAWriteWithoutAnAnswerIsSaidAgain(t *testing.T) {
	simulated(t, func(t *testing.T, f *fake) {
		b := discovery.NewBoard(discovery.Bounds{})
		s, stop := running(t, f, Config{}, b)
		defer stop()
		u := roster.Update{Data: []byte("5"), Version: 5, TTL: time.Minute}
		f.change(func() { f.after = func(string) error { f.after = nil; return context.DeadlineExceeded } })
		if err := s.Update(t.Context(), signed(1), u); !fault.Has(err, fault.CodeStoreAway) {
			t.Fatalf("%v", err)
		}
		for range 2 { // before the watch has told, perhaps, and after
			if err := s.Update(t.Context(), signed(1), u); err != nil {
				t.Fatal(err)
			}
			if got := b.Get(signed(1)); string(got.Data) != "5" || got.Version != 5 {
				t.Fatalf("%+v", got)
			}
			synctest.Wait()
		}
		u.Data = []byte("other")
		if err := s.Update(t.Context(), signed(1), u); !fault.Has(err, fault.CodeEntryStale) {
			t.Errorf("%v", err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if n := len(f.state.leases); n != 1 { // the member's
			t.Errorf("there are %d leases", n)
		}
	})
}

// TestWritesThatMeet: the loser tries again, on what the other wrote.
func TestWritesThatMeet(t *testing.T) {
	simulated(t, func(t *testing.T, f *fake) {
		a, stopA := running(t, f, Config{}, discovery.NewBoard(discovery.Bounds{}))
		defer stopA()
		reg := prometheus.NewRegistry()
		metrics := telemetry.NewDiscoveryStore(reg, nil)
		board := discovery.NewBoard(discovery.Bounds{})
		b, err := open(t.Context(), Config{Prefix: prefix, Tell: metrics}, board, f) // it does not follow
		if err != nil {
			t.Fatal(err)
		}
		put(t, a, member1(1), says("x", time.Minute, "e"))
		put(t, b, member1(1), says("y", time.Minute, "f"))
		if got := board.Get(member1(1)); string(got.Data) != "y" || len(got.Endpoints) != 2 {
			t.Errorf("%+v", got)
		}
		if n := figure(t, reg, "tombolo_discovery_store_conflicts_total", ""); n != 1 {
			t.Errorf("%v conflicts", n)
		}
	})
}
