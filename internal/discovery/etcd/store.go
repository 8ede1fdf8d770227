// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tombolo-io/tombolo/internal/discovery"
	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/limit"
	"github.com/tombolo-io/tombolo/internal/roster"
)

// Store is a discovery.Store whose truth is in etcd.
type Store struct {
	config Config
	prefix string
	times  Times
	client *clientv3.Client
	board  *discovery.Board
	doubt  chan struct{} // somebody had no answer: look whether etcd is away

	// mu is held while the board changes, so that it and known are of one moment.
	mu    sync.Mutex
	seen  int64 // revision up to which the board shows everything
	known map[discovery.Place]kept
	away  error // why etcd counts as away
	since time.Time
	odd   string // a key of somebody else's that came later
	word  time.Time
}

// kept is what belongs to a member beside its lease on the board.
type kept struct {
	rev int64 // of its key
	id  clientv3.LeaseID
	ttl int64 // seconds that were asked for, for id
}

// Open connects, sees that the prefix is ours, and puts all members onto the
// board. Run must follow, or Close.
func Open(ctx context.Context, c Config, board *discovery.Board) (*Store, error) {
	prefix, err := c.prefix()
	if err != nil {
		return nil, err
	}
	client, err := c.client(ctx)
	if err != nil {
		return nil, err
	}
	s := &Store{config: c, prefix: prefix, times: c.Times.filled(), client: client, board: board,
		doubt: make(chan struct{}, 1), known: make(map[discovery.Place]kept)}
	if err := s.list(ctx, true); err != nil {
		s.Close()
		return nil, c.unreachable(err)
	}
	return s, nil
}

// Close ends the connection of a store that does not run.
func (s *Store) Close() { _ = s.client.Close() } // nothing is kept in it

// State implements discovery.Store.
func (s *Store) State() discovery.StoreState {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := discovery.StoreState{Kind: "etcd", Settled: true, Saved: s.word, Since: s.since}
	switch {
	case s.away != nil:
		out.Degraded = s.config.unreachable(s.away).Error()
	case s.odd != "":
		out.Degraded = foreign(s.prefix, s.odd).Error()
	}
	return out
}

func foreign(prefix, key string) *fault.Fault {
	return fault.Newf(fault.CodeStoreForeign, "the prefix %s/ in etcd is not the discovery service's alone", prefix).
		Whyf("%q stands there", key).Hint("choose an empty prefix for store.etcd.prefix")
}

// gate refuses writes while etcd is away, at once.
func (s *Store) gate() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away == nil {
		return nil
	}
	return s.config.unreachable(s.away)
}

// failed is the fault of a write. Whoever had no answer has it looked into.
func (s *Store) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	f := s.config.unreachable(err)
	if f.Code == fault.CodeStoreAway && !refused(err) {
		select {
		case s.doubt <- struct{}{}:
		default:
		}
	}
	return f
}

// Update implements discovery.Store. A fault store_unavailable of a write that
// was under way does not say that it was not done.
func (s *Store) Update(caller context.Context, p discovery.Place, u roster.Update) error {
	if err := s.gate(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(caller, s.times.Wait)
	defer cancel()
	w := &write{Store: s, p: p, key: key(s.prefix, p), u: u, ttl: int64((u.TTL + time.Second - 1) / time.Second)}
	w.read()
	for range limit.DiscoveryStoreTries {
		done, err := w.try(ctx)
		if err != nil {
			w.drop(ctx, done)
			return s.failed(caller, err)
		}
		if done {
			w.drop(ctx, false)
			return nil
		}
	}
	w.drop(ctx, false)
	return fault.New(fault.CodeStoreAway, "the member is not taken").
		Whyf("others changed it %d times meanwhile", limit.DiscoveryStoreTries).Hint("try again").After(limit.DiscoveryStoreRetry)
}

// write is one update on its way.
type write struct {
	*Store
	p     discovery.Place
	key   string
	u     roster.Update
	ttl   int64
	known kept
	was   roster.Lease
	fresh bool             // known and was are etcd's word of just now
	spare clientv3.LeaseID // granted by us
	over  clientv3.LeaseID // no key hangs on it any more
}

func (w *write) read() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known, w.was = w.Store.known[w.p], w.board.Get(w.p)
}

// try tries once. With an error, done says that the write may have been done.
func (w *write) try(ctx context.Context) (done bool, err error) {
	if w.was.Stale(w.u) {
		if !w.fresh {
			return false, w.fetch(ctx)
		}
		return false, discovery.Stale(w.was.Version, w.u.Version)
	}
	now := time.Now()
	was, _ := w.was.ExpireEndpoints(now)
	next, _ := was.Put(now, w.u)
	if err := w.board.Admit(w.p, next); err != nil {
		return false, err
	}
	is := kept{id: w.known.id, ttl: w.known.ttl}
	if is.id == 0 || next.Expires.After(w.was.Expires) {
		if is, err = w.renew(ctx); err != nil {
			return false, err
		}
	}
	put := clientv3.OpPut(w.key, string(encode(next, now, is.ttl)), clientv3.WithLease(is.id))
	answer, err := w.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(w.key), "=", w.known.rev)).
		Then(put).Else(clientv3.OpGet(w.key)).Commit()
	switch {
	case err == rpctypes.ErrLeaseNotFound: // it ran out just now
		w.spare = 0
		return false, w.fetch(ctx)
	case err != nil:
		return true, err
	case !answer.Succeeded:
		return false, w.found(ctx, answer.Responses[0].GetResponseRange().Kvs)
	}
	if is.id == w.spare {
		w.spare, w.over = 0, w.known.id
	}
	is.rev = answer.Header.Revision
	w.wrote(w.p, next, is)
	return true, nil
}

// renew is a lease of the time that is asked for: the one that is there, or a new
// one. Every update is a write of the key too, so that of two that renew at the
// same time one sees what the other did.
func (w *write) renew(ctx context.Context) (kept, error) {
	if w.known.id != 0 && w.known.ttl == w.ttl {
		_, err := w.client.KeepAliveOnce(ctx, w.known.id)
		if err == nil {
			return kept{id: w.known.id, ttl: w.ttl}, nil
		}
		if err != rpctypes.ErrLeaseNotFound {
			return kept{}, err
		}
	}
	if w.spare == 0 {
		granted, err := w.client.Grant(ctx, w.ttl)
		if err != nil {
			return kept{}, err
		}
		w.spare = granted.ID
	}
	return kept{id: w.spare, ttl: w.ttl}, nil
}

func (w *write) fetch(ctx context.Context) error {
	answer, err := w.client.Get(ctx, w.key)
	if err != nil {
		return err
	}
	return w.found(ctx, answer.Kvs)
}

// drop gives back what no key hangs on. Where nobody knows whether one does,
// etcd does it in time.
func (w *write) drop(ctx context.Context, unsure bool) {
	if unsure {
		w.spare = 0
	}
	for _, id := range []clientv3.LeaseID{w.spare, w.over} {
		if id != 0 {
			_, _ = w.client.Revoke(ctx, id) // it ends by itself
		}
	}
}

// wrote puts our own write onto the board, unless what came later is there.
func (s *Store) wrote(p discovery.Place, l roster.Lease, k kept) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k.rev > s.seen && k.rev > s.known[p].rev {
		s.known[p] = k
		s.board.Follow(p, l)
	}
}

// Delete implements discovery.Store.
func (s *Store) Delete(caller context.Context, p discovery.Place) error {
	if err := s.gate(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(caller, s.times.Wait)
	defer cancel()
	answer, err := s.client.Delete(ctx, key(s.prefix, p), clientv3.WithPrevKV())
	if err != nil {
		return s.failed(caller, err)
	}
	for _, kv := range answer.PrevKvs {
		_, _ = s.client.Revoke(ctx, clientv3.LeaseID(kv.Lease)) // it ends by itself
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if rev := answer.Header.Revision; len(answer.PrevKvs) > 0 && rev > s.seen && rev > s.known[p].rev {
		s.gone(p, rev)
		s.known[p] = kept{rev: rev} // a write from before it, of which we hear late, stays away
	}
	return nil
}

// gone takes a member away that was not there at a revision. mu is held.
func (s *Store) gone(p discovery.Place, rev int64) {
	if s.known[p].rev > rev {
		return
	}
	delete(s.known, p)
	s.board.Follow(p, roster.Lease{})
}
