// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery"
)

// Store is a discovery.Store whose truth is in etcd.
type Store struct {
	config Config
	prefix string
	times  Times
	remote remote
	board  *discovery.Board
	log    *slog.Logger
	tell   *telemetry.DiscoveryStore
	doubt  chan struct{} // a request had no answer: check whether etcd is away
	began  time.Time     // without all of the state; zero: with it

	// mu is held while the board changes, so that it and known are of one moment.
	mu     sync.Mutex
	origin origin
	seen   int64 // revision up to which the board shows everything
	top    int64 // the highest that etcd has reported
	asked  int64 // top when a sign of life was asked for: what comes is not below it
	known  map[discovery.Place]kept
	away   error // why etcd counts as away
	since  time.Time
	odd    string // a foreign key that came later
	oddAt  time.Time
	word   time.Time
}

// origin is which history of which etcd the board shows.
type origin struct {
	cluster uint64
	marker  int64 // revision at which the marker was made
	back    error // why that is lost for good
}

// kept is what belongs to a member beside its lease on the board.
type kept struct {
	rev int64 // of its key
	id  int64 // of its etcd lease
	ttl int64 // seconds that were asked for, for id
}

// Open connects, sees that the prefix is ours, and puts all members onto the
// board. Run must follow, or Close.
func Open(ctx context.Context, c Config, board *discovery.Board) (*Store, error) {
	if _, err := c.prefix(); err != nil {
		return nil, err
	}
	client, err := c.client(ctx)
	if err != nil {
		return nil, err
	}
	return open(ctx, c, board, real{client})
}

func open(ctx context.Context, c Config, board *discovery.Board, r remote) (*Store, error) {
	prefix, err := c.prefix()
	if err != nil {
		return nil, err
	}
	s := &Store{config: c, prefix: prefix, times: c.Times.filled(), remote: r, board: board, log: c.Log, tell: c.Tell,
		doubt: make(chan struct{}, 1), known: make(map[discovery.Place]kept)}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.tell == nil {
		s.tell = telemetry.NewDiscoveryStore(prometheus.NewRegistry(), nil)
	}
	if err := s.list(ctx, true); err != nil {
		s.Close()
		return nil, c.unreachable(err)
	}
	if !s.began.IsZero() {
		s.log.Info("members may exist that are not in etcd; they are awaited", "prefix", prefix, "settle", s.times.Settle)
	}
	return s, nil
}

// Close ends the connection of a store that does not run.
func (s *Store) Close() { _ = s.remote.Close() } // nothing is kept in it

// State implements discovery.Store.
func (s *Store) State() discovery.StoreState {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := discovery.StoreState{Kind: "etcd", Settled: true, Saved: s.word, Since: s.since}
	switch {
	case s.away != nil:
		out.Degraded, out.Closed = s.config.unreachable(s.away).Error(), true
	case s.odd != "":
		out.Degraded, out.Since = foreign(s.prefix, s.odd).Error(), s.oddAt
	}
	if until := s.began.Add(s.times.Settle); !s.began.IsZero() && time.Now().Before(until) {
		out.Settled, out.Settles = false, until
	}
	return out
}

func foreign(prefix, key string) *fault.Fault {
	return fault.Newf(fault.CodeStoreForeign, "the prefix %s/ in etcd is not the discovery service's alone", prefix).
		Whyf("%q stands there", key).Hint("choose an empty prefix for store.etcd.prefix")
}

// gate refuses writes while etcd is away, at once.
func (s *Store) gate(caller context.Context) error {
	if caller.Err() != nil {
		return context.Cause(caller)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away == nil {
		return nil
	}
	return s.config.unreachable(s.away)
}

// failed is the fault of a write. Whoever had no answer has it looked into.
func (s *Store) failed(caller context.Context, err error) error {
	if caller.Err() != nil {
		return context.Cause(caller)
	}
	f := s.config.unreachable(err)
	if f.Code == fault.CodeStoreAway && !refused(err) {
		s.look()
	}
	return f
}

// look has it seen, soon, whether etcd is there and is ours.
func (s *Store) look() {
	select {
	case s.doubt <- struct{}{}:
	default:
	}
}

// lost notes that etcd is away, and says so once for each reason.
func (s *Store) lost(err error) {
	s.mu.Lock()
	first := s.away == nil
	other := !first && codeOf(s.away) != codeOf(err)
	if first {
		s.since = time.Now()
	}
	s.away = err
	s.mu.Unlock()
	if first || other {
		s.log.Error("etcd cannot be used: what is known is served, and nothing is taken", "prefix", s.prefix,
			"error", s.config.unreachable(err))
	}
}

// codeOf distinguishes reasons.
func codeOf(err error) string {
	var f *fault.Fault
	if errors.As(err, &f) {
		return f.What
	}
	return ""
}

// sawLocked notes that the board shows everything up to a revision.
func (s *Store) sawLocked(rev int64) {
	s.seen = max(s.seen, rev)
	s.top = max(s.top, rev)
}

// thereLocked notes that etcd is there.
func (s *Store) thereLocked(rev int64, odd string) {
	if s.away != nil {
		s.log.Info("etcd can be used again", "prefix", s.prefix, "away", time.Since(s.since).Round(time.Second))
	}
	s.sawLocked(rev)
	s.away, s.since, s.word = nil, time.Time{}, time.Now()
	s.strangeLocked(odd)
}

// strangeLocked notes a foreign key, or that there is none.
func (s *Store) strangeLocked(key string) {
	if key != "" && s.odd == "" {
		s.oddAt = time.Now()
		s.log.Error("somebody else writes to the prefix in etcd", "prefix", s.prefix, "key", key)
	}
	s.odd = key
}
