// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"sync"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	pb "github.com/tombolo-io/tombolo/proto/discovery"
)

// standing is the state of the store as members see it.
type standing struct{ closed, settled bool }

// standings polls the store for all attending members.
type standings struct {
	store Store

	mu      sync.Mutex
	now     standing
	changed chan struct{} // closed when now is another one
}

func newStandings(s Store) *standings {
	return &standings{store: s, now: standingOf(s.State()), changed: make(chan struct{})}
}

func standingOf(s StoreState) standing { return standing{s.Closed, s.Settled} }

func (s *standings) current() (standing, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now, s.changed
}

// run looks until ctx ends.
func (s *standings) run(ctx context.Context) error {
	return run.Every(ctx, limit.DiscoverySweep, s.look)
}

func (s *standings) look() {
	next := standingOf(s.store.State())
	s.mu.Lock()
	defer s.mu.Unlock()
	if next == s.now {
		return
	}
	s.now = next
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s standing) frame() *pb.FromService {
	return &pb.FromService{Frame: &pb.FromService_Standing{Standing: &pb.Standing{Closed: s.closed, Settled: s.settled}}}
}
