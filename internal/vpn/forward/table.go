// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"context"
	"net/netip"
	"sync"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
)

// table has the clusters that are served, and counts what they have open.
type table struct {
	mu   sync.Mutex
	all  map[netip.Addr]*served
	open int
	most int // open of all
	each int // open of one
}

// served is a cluster that is served. What it has open ends with it.
type served struct {
	Cluster
	live *run.Group
	open int
}

// place is what one connection or flow holds until it is given back.
type place struct {
	*served
	ctx  context.Context
	back func()
}

// set serves other clusters, within parent. What a cluster has open stays if nothing about it has changed.
func (t *table) set(parent context.Context, next map[netip.Addr]Cluster) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make(map[netip.Addr]*served, len(next))
	for a, c := range next {
		if was := t.all[a]; was != nil && was.Cluster == c {
			all[a] = was
			continue
		}
		all[a] = &served{Cluster: c, live: run.NewGroup(parent)}
	}
	for a, was := range t.all {
		if all[a] != was {
			was.live.Stop()
		}
	}
	t.all = all
}

// admit takes a place for a connection from an address.
func (t *table) admit(from netip.Addr) (place, *fault.Fault) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.all[from.Unmap()]
	switch {
	case s == nil:
		return place{}, fault.Newf(fault.CodeClusterUnknown, "%s is the address of no cluster", from).
			Hint("add the cluster to clusters in the configuration")
	case s.open >= t.each:
		return place{}, fault.Newf(fault.CodeLimit, "the cluster %s has %d connections open", s.Name, s.open)
	case t.open >= t.most:
		return place{}, fault.Newf(fault.CodeLimit, "%d connections are open", t.open)
	}
	s.open++
	t.open++
	ctx, done := s.live.Begin()
	var once sync.Once
	return place{s, ctx, func() {
		once.Do(func() {
			t.mu.Lock()
			s.open--
			t.open--
			t.mu.Unlock()
			done()
		})
	}}, nil
}

func (t *table) opened() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open
}

func (t *table) clusters() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.all)
}
