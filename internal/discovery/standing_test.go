// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	pb "github.com/tombolo-io/tombolo/proto/discovery"
)

// standingStore is a store that stands as a test says.
type standingStore struct {
	*Memory
	mu sync.Mutex
	as standing
}

func (s *standingStore) State() StoreState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return StoreState{Kind: "etcd", Closed: s.as.closed, Settled: s.as.settled}
}

func (s *standingStore) stands(as standing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.as = as
}

// TestStandingIsTold: all who attend hear when the service takes entries no longer, and
// again, and when it has settled; who comes in between hears it after the snapshot.
func TestStandingIsTold(t *testing.T) {
	store := &standingStore{}
	opt := Options{Etcd: func(_ context.Context, _ EtcdConfig, b *Board, _ *telemetry.DiscoveryStore) (Store, error) {
		m, err := OpenMemory(MemoryConfig{Board: b, Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
		store.Memory = m
		return store, err
	}}
	r := serveWith(t, opt, func(c *v1alpha1.DiscoveryConfig) {
		c.Settle = v1alpha1.Duration{}
		c.Store.Etcd = &v1alpha1.DiscoveryEtcdConfig{Endpoints: []string{"http://x"}}
	})
	a, k := r.attend(), newKeys(t)
	if _, settled := a.enter(k, nil); settled {
		t.Error("it has settled at once")
	}
	for _, want := range []standing{{false, true}, {true, true}} {
		store.stands(want)
		if s := a.next().GetStanding(); s == nil || s.Closed != want.closed || s.Settled != want.settled {
			t.Fatalf("the service says %v, want %+v", s, want)
		}
	}
	b := r.attend()
	if _, settled := b.enter(k, nil); !settled {
		t.Error("the snapshot does not say that it has settled")
	}
	if s := b.next().GetStanding(); !s.GetClosed() || !s.GetSettled() {
		t.Errorf("who comes later is told %v", s)
	}
	store.stands(standing{false, true})
	for _, of := range []attending{a, b} {
		of.until("that it takes entries", func(m *pb.FromService) bool { return m.GetStanding() != nil && !m.GetStanding().Closed })
	}
}
