// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// write is one change of one member on its way.
type write struct {
	*Store
	p     discovery.Place
	key   string
	from  head // what was known before anything was sent
	known kept
	was   roster.Lease
	fresh bool  // known and was are fresh from etcd
	spare int64 // a lease granted by us
	over  int64 // a lease that no key is attached to any longer
}

// Update implements discovery.Store. After a fault store_unavailable the write may still have
// been done.
func (s *Store) Update(caller context.Context, p discovery.Place, u roster.Update) error {
	return s.write(caller, p, func(ctx context.Context, w *write) (bool, error) { return w.update(ctx, u) })
}

// Delete implements discovery.Store.
func (s *Store) Delete(caller context.Context, p discovery.Place) error {
	return s.write(caller, p, func(ctx context.Context, w *write) (bool, error) { return w.remove(ctx) })
}

// errUnsure is of a write that may have been done.
type errUnsure struct{ error }

func (e errUnsure) Unwrap() error { return e.error }

// write tries until a try is done, or nothing more can be done.
func (s *Store) write(caller context.Context, p discovery.Place,
	try func(context.Context, *write) (bool, error)) (err error) {
	defer func() { s.tell.Writes.WithLabelValues(telemetry.Outcome(outcome(err))).Inc() }()
	if err := s.gate(caller); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(caller, s.times.Wait)
	defer cancel()
	w := &write{Store: s, p: p, key: key(s.prefix, p)}
	w.read()
	for range discoveryStoreTries {
		done, err := try(ctx, w)
		if err != nil {
			w.drop(ctx, errors.As(err, new(errUnsure)))
			return s.failed(caller, err)
		}
		if done {
			w.drop(ctx, false)
			return nil
		}
	}
	w.drop(ctx, false)
	return fault.New(fault.CodeStoreAway, "the member is not taken").
		Whyf("others changed it %d times meanwhile", discoveryStoreTries).Hint("try again").After(limit.DiscoveryStoreRetry)
}

// outcome is the code of a fault; whoever gave up has none.
func outcome(err error) fault.Code {
	var f *fault.Fault
	switch {
	case err == nil:
		return ""
	case errors.As(err, &f):
		return f.Code
	}
	return "gave_up"
}

func (w *write) read() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.from = head{cluster: w.origin.cluster, rev: w.top}
	w.known, w.was = w.Store.known[w.p], w.board.Get(w.p)
}

// over says whether the time of what is known has run out. Whether it has ended
// is etcd's word: an etcd with a new leader gives every lease its time anew.
func over(l roster.Lease) bool { return l.Exists() && !time.Now().Before(l.Expires) }

func (w *write) update(ctx context.Context, u roster.Update) (done bool, err error) {
	switch {
	case !w.fresh && (w.was.Stale(u) || over(w.was)):
		return false, w.fetch(ctx)
	case w.was.Stale(u):
		return false, discovery.Stale(w.was.Version, u.Version)
	case w.was.Repeats(u) && !over(w.was): // it had no answer, but was done
		w.wrote(w.p, u.From, w.was, w.known)
		return true, nil
	}
	now := time.Now()
	next, _ := w.was.Put(now, u)
	if err := w.board.Admit(w.p, u.From, next); err != nil {
		return false, err
	}
	is := kept{id: w.known.id, ttl: w.known.ttl}
	if is.id == 0 || !next.Expires.Equal(w.was.Expires) {
		if is, err = w.lease(ctx, int64((next.Expires.Sub(now)+time.Second-1)/time.Second)); err != nil {
			return false, err
		}
	}
	answer, err := w.remote.Swap(ctx, w.key, w.known.rev, encode(next, now, is.ttl), is.id)
	switch {
	case err == errNoLease: // it ran out just now
		w.spare = 0
		return false, w.fetch(ctx)
	case err != nil:
		return false, errUnsure{err}
	}
	if err := w.follows(answer.head); err != nil {
		return false, errUnsure{err}
	}
	if !answer.done {
		w.tell.Conflicts.Inc()
		return false, w.found(ctx, answer.is)
	}
	if is.id == w.spare {
		w.spare, w.over = 0, w.known.id
	}
	is.rev = answer.rev
	w.wrote(w.p, u.From, next, is)
	return true, nil
}

// lease is one of the time that is asked for: the one that is there, or a new
// one. Every update is a write of the key too, so that of two that renew at the
// same time one sees what the other did.
func (w *write) lease(ctx context.Context, seconds int64) (kept, error) {
	if w.known.id != 0 && w.known.ttl == seconds {
		err := w.remote.Renew(ctx, w.known.id)
		if err == nil {
			return kept{id: w.known.id, ttl: seconds}, nil
		}
		if err != errNoLease {
			return kept{}, err
		}
	}
	if w.spare == 0 {
		id, err := w.remote.Grant(ctx, seconds)
		if err != nil {
			return kept{}, err
		}
		w.spare = id
	}
	return kept{id: w.spare, ttl: seconds}, nil
}

func (w *write) remove(ctx context.Context) (done bool, err error) {
	forbidden := discovery.Removable(w.was)
	switch {
	case !w.fresh && (!w.was.Exists() || forbidden != nil):
		return false, w.fetch(ctx)
	case forbidden != nil:
		return false, forbidden
	case w.known.rev == 0:
		return true, nil
	}
	answer, err := w.remote.Swap(ctx, w.key, w.known.rev, nil, 0)
	if err != nil {
		return false, errUnsure{err}
	}
	if err := w.follows(answer.head); err != nil {
		return false, errUnsure{err}
	}
	if !answer.done {
		w.tell.Conflicts.Inc()
		return false, w.found(ctx, answer.is)
	}
	w.over = w.known.id
	w.mu.Lock()
	defer w.mu.Unlock()
	w.top = max(w.top, answer.rev)
	if rev := answer.rev; rev > w.seen && rev > w.Store.known[w.p].rev {
		w.goneLocked(w.p, rev)
		w.Store.known[w.p] = kept{rev: rev} // an earlier write that arrives late is ignored
	}
	return true, nil
}

// follows refuses answers of an etcd that is not the known one, or is behind what was seen of it;
// the next list shows what has happened.
func (w *write) follows(h head) error {
	if h.cluster == w.from.cluster && h.rev >= w.from.rev {
		return nil
	}
	return errors.New("etcd is not what it was")
}

func (w *write) fetch(ctx context.Context) error {
	answer, err := w.remote.Range(ctx, w.key, w.key+"\x00", 0, 1)
	if err != nil {
		return err
	}
	if err := w.follows(answer.head); err != nil {
		return err
	}
	if len(answer.pairs) == 0 {
		return w.found(ctx, nil)
	}
	return w.found(ctx, &answer.pairs[0])
}

// found is what stands at the key of a write.
func (w *write) found(ctx context.Context, is *pair) error {
	w.fresh, w.known, w.was = true, kept{}, roster.Lease{}
	if is == nil {
		return nil
	}
	v, err := decode(is.value)
	if err != nil {
		return foreign(w.prefix, w.key)
	}
	end, err := w.end(ctx, is.lease, v)
	if err != nil {
		return err
	}
	w.known = kept{rev: is.rev, id: is.lease, ttl: v.ttl}
	w.was, _ = v.at(end).ExpireEndpoints(time.Now())
	return nil
}

// drop revokes leases without a key. If that is unknown, etcd ends them in time.
func (w *write) drop(ctx context.Context, unsure bool) {
	if unsure {
		w.spare = 0
	}
	for _, id := range []int64{w.spare, w.over} {
		if id != 0 {
			_ = w.remote.Revoke(ctx, id) // it ends by itself
		}
	}
}

// wrote puts our own write onto the board, unless what came later is there.
func (s *Store) wrote(p discovery.Place, from netip.Addr, l roster.Lease, k kept) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.top = max(s.top, k.rev)
	if k.rev > s.seen && k.rev > s.known[p].rev {
		s.known[p] = k
		s.board.Follow(p, from, l)
	}
}

// goneLocked takes a member away that was not there at a revision.
func (s *Store) goneLocked(p discovery.Place, rev int64) {
	if s.known[p].rev > rev {
		return
	}
	delete(s.known, p)
	s.board.Follow(p, netip.Addr{}, roster.Lease{})
}
