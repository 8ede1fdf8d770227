// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
)

// Why a watch ends.
var (
	errSilent = errors.New("etcd gives no sign of life")
	errLook   = errors.New("something is in doubt") // a list may do at once
)

// Run implements discovery.Store: it follows the prefix. Whatever ends the watch,
// an etcd that is away or compacted changes, a new list repairs it: the board takes
// the difference.
func (s *Store) Run(ctx context.Context) error {
	defer s.Close()
	for {
		err := s.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if !errors.Is(err, errLook) && !errors.Is(err, errCompacted) {
			s.lost(err)
		}
		for {
			err := s.list(ctx, false)
			if ctx.Err() != nil {
				return nil
			}
			if err == nil {
				break
			}
			s.lost(err)
			run.Wait(ctx, s.times.Retry)
		}
	}
}

// follow watches from what is on the board, until the watch ends, and says why.
func (s *Store) follow(ctx context.Context) error {
	s.mu.Lock()
	// From the last revision that was seen, not the one after it: of a watch that
	// begins in the future etcd does not say that it lives.
	from := s.seen
	s.mu.Unlock()
	g := run.NewGroup(ctx)
	g.Go("watch", func(ctx context.Context) error { return s.remote.Watch(ctx, s.prefix+"/", s.prefix+"0", from, s.take) })
	g.Go("probe", s.probe)
	_ = g.Wait() // the first of its errors is the cause
	return context.Cause(g.Context())
}

// probe asks for signs of life, ends endpoints, and ends the watch when etcd is
// silent or in doubt.
func (s *Store) probe(ctx context.Context) error {
	probe, sweep := time.NewTicker(s.times.Probe), time.NewTicker(limit.DiscoverySweep)
	defer probe.Stop()
	defer sweep.Stop()
	for {
		select {
		case <-probe.C:
			s.mu.Lock()
			silent := time.Since(s.word) > s.times.Silence
			s.asked = s.top
			s.mu.Unlock()
			if silent {
				return errSilent
			}
			short, cancel := context.WithTimeout(ctx, s.times.Probe)
			_ = s.remote.Progress(short) // what does not come is noticed
			cancel()
		case <-sweep.C:
			s.board.ExpireEndpoints(time.Now())
		case <-s.doubt:
			return errLook
		case <-ctx.Done():
			return nil
		}
	}
}

// take puts the news of etcd onto the board.
func (s *Store) take(n news) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	marked := func(e event) bool {
		return e.key == s.prefix+"/"+markerName && (e.gone || e.made != s.origin.marker)
	}
	if n.cluster != s.origin.cluster || n.alive && n.rev < max(s.seen, s.asked) || slices.ContainsFunc(n.events, marked) {
		return errLook // of another etcd, of one that has gone back, or that is being emptied
	}
	s.word = time.Now()
	for _, e := range n.events {
		p, ours := place(s.prefix, e.key)
		switch {
		case !ours && !e.gone && !s.note(e.key):
			s.strangeLocked(e.key)
		case !ours && e.key == s.odd:
			s.strangeLocked("")
		case !ours:
		case e.gone:
			s.goneLocked(p, e.rev)
		case e.rev > s.known[p].rev:
			v, err := decode(e.value)
			if err != nil {
				s.strangeLocked(e.key)
				continue
			}
			s.putLocked(member{p: p, v: v, pair: e.pair, end: s.word.Add(v.left)})
		}
	}
	// The header's revision may be ahead of the events, but for a sign of life.
	if k := len(n.events); k > 0 {
		s.sawLocked(n.events[k-1].rev)
	} else if n.alive {
		s.sawLocked(n.rev)
	}
	return nil
}

// note reports whether a key is one of ours that is no member.
func (s *Store) note(key string) bool {
	return key == s.prefix+"/"+markerName || key == s.prefix+"/"+partName
}

// putLocked puts a member as etcd has it.
func (s *Store) putLocked(m member) {
	l, _ := m.v.at(m.end).ExpireEndpoints(time.Now())
	s.known[m.p] = kept{rev: m.rev, id: m.lease, ttl: m.v.ttl}
	s.board.Follow(m.p, netip.Addr{}, l)
}
