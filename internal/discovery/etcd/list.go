// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/discovery"
)

// member is one of a list.
type member struct {
	pair
	p   discovery.Place
	v   value
	end time.Time
}

// listing is the whole prefix at one revision.
type listing struct {
	head
	top     int64 // the highest revision that was known before
	members []member
	marker  *pair
	part    bool   // partName stands there
	odd     string // a foreign key
}

// list reads the whole prefix at one revision and puts the difference onto the
// board. The first time it sees whose the prefix is.
func (s *Store) list(ctx context.Context, first bool) error {
	s.mu.Lock()
	back, top := s.origin.back, s.top // a write may be done while the list is read
	s.mu.Unlock()
	if back != nil {
		return back
	}
	all, err := s.all(ctx, first)
	if err != nil {
		return err
	}
	all.top = top
	if err := s.begins(ctx, &all, first); err != nil {
		return err
	}
	if err := s.ends(ctx, all.members); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.origin.cluster, s.origin.marker = all.cluster, all.marker.made
	there := make(map[discovery.Place]bool, len(all.members))
	for _, m := range all.members {
		there[m.p] = true
		if m.rev > s.known[m.p].rev {
			s.putLocked(m)
		}
	}
	for p := range s.known {
		if !there[p] {
			s.goneLocked(p, all.rev)
		}
	}
	s.thereLocked(all.rev, all.odd)
	return nil
}

// begins checks that a list continues what is on the board; the first time, that the
// prefix is ours.
func (s *Store) begins(ctx context.Context, all *listing, first bool) error {
	if all.marker != nil {
		if err := s.ours(*all.marker); err != nil {
			return err
		}
	}
	switch {
	case !first:
		if err := s.lapse(*all); err != nil {
			if all.cluster == s.origin.cluster && !all.part {
				s.part(ctx) // whoever begins with it now lacks what we know
			}
			return err
		}
	case all.marker == nil && len(all.members) > 0:
		return foreign(s.prefix, all.members[0].key).Whyf("there are members, but no %s/%s", s.prefix, markerName)
	case all.marker == nil:
		// An empty prefix had no members, so none can be missing.
		all.part = all.part || s.config.Await
		marker, err := s.mark(ctx, all.part)
		all.marker = marker
		if err != nil {
			return err
		}
	}
	if first && all.part {
		s.began = time.Now()
	}
	return nil
}

// lapse is why a list does not continue what is on the board: nothing may be taken off the board
// because of it. An etcd that was restored, or lost acknowledged writes, has gone back for good.
func (s *Store) lapse(all listing) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	back := func(why string, args ...any) error {
		s.origin.back = fault.New(fault.CodeStoreAway, "etcd has gone back to an older state").Whyf(why, args...).
			Hint("restart every service of this prefix once etcd is in its final state: " +
				"they begin with what it has, and members come back")
		return s.origin.back
	}
	switch {
	case all.cluster != s.origin.cluster:
		return fault.New(fault.CodeStoreAway, "etcd is another one").
			Whyf("its cluster id is %x, and %x was followed", all.cluster, s.origin.cluster).
			Hint("see that store.etcd.endpoints are of one etcd; if it was replaced, restart this service, " +
				"which then begins with what it has")
	case all.marker == nil:
		return fault.New(fault.CodeStoreAway, "etcd has forgotten its members").
			Whyf("%s/%s is not there: it was emptied, or is another one", s.prefix, markerName).
			Hint("restore etcd; or restart this service, which then begins without members")
	case all.rev < all.top:
		return back("it is at revision %d, and was at %d", all.rev, all.top)
	case all.marker.made != s.origin.marker:
		return back("%s/%s was made anew", s.prefix, markerName)
	}
	for _, m := range all.members {
		if k := s.known[m.p]; m.rev < k.rev && k.rev <= all.rev {
			return back("a member was written at revision %d, and is there as of %d", k.rev, m.rev)
		}
	}
	return nil
}

// ends asks etcd when members end: only for those with an endpoint that ends before them, and
// that differ on the board. Each is a request of its own, so many run at once.
func (s *Store) ends(ctx context.Context, all []member) error {
	s.mu.Lock()
	ask := make([]*member, 0, len(all))
	for i := range all {
		m := &all[i]
		m.end = time.Now().Add(m.v.left)
		if m.v.timed() && m.rev > s.known[m.p].rev {
			ask = append(ask, m)
		}
	}
	s.mu.Unlock()
	var next atomic.Int64
	g := run.NewGroup(ctx)
	for range min(discoveryStoreAsks, len(ask)) {
		g.Go("ask", func(ctx context.Context) error {
			for i := next.Add(1) - 1; i < int64(len(ask)); i = next.Add(1) - 1 {
				if err := s.ask(ctx, ask[i]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func (s *Store) ask(ctx context.Context, m *member) (err error) {
	ctx, cancel := context.WithTimeout(ctx, s.times.Wait)
	defer cancel()
	m.end, err = s.end(ctx, m.lease, m.v)
	return err
}

// end asks etcd when the lease of a member ends, for its value may be old.
func (s *Store) end(ctx context.Context, lease int64, v value) (time.Time, error) {
	left, err := s.remote.Left(ctx, lease)
	switch {
	case err != nil:
		return time.Time{}, err
	case left < 0: // the key goes with it
		return time.Now(), nil
	}
	// etcd gives whole seconds, rounded down: half a second more is right on average.
	return time.Now().Add(min(left+time.Second/2, v.left)), nil
}

// all reads every key of the prefix at one revision.
func (s *Store) all(ctx context.Context, first bool) (all listing, err error) {
	from, to := s.prefix+"/", s.prefix+"0"
	for more := true; more; {
		answer, err := s.page(ctx, from, to, all.rev)
		if err != nil {
			return listing{}, err
		}
		if all.rev == 0 {
			all.head = answer.head
		}
		for _, kv := range answer.pairs {
			from = kv.key + "\x00"
			if err := s.sort(&all, kv, first); err != nil {
				return listing{}, err
			}
		}
		more = answer.more
	}
	return all, nil
}

// sort puts a key where it belongs. What is not ours is refused the first time,
// and later noted.
func (s *Store) sort(all *listing, kv pair, first bool) error {
	switch kv.key {
	case s.prefix + "/" + markerName:
		all.marker = &kv
		return nil
	case s.prefix + "/" + partName:
		all.part = true
		return nil
	}
	p, ours := place(s.prefix, kv.key)
	v, err := decode(kv.value)
	switch {
	case ours && err == nil:
		all.members = append(all.members, member{pair: kv, p: p, v: v})
	case first:
		return foreign(s.prefix, kv.key)
	default:
		all.odd = kv.key
	}
	return nil
}

func (s *Store) page(ctx context.Context, from, to string, rev int64) (page, error) {
	ctx, cancel := context.WithTimeout(ctx, s.times.Wait)
	defer cancel()
	return s.remote.Range(ctx, from, to, rev, limit.DiscoveryStorePage)
}

// ours looks at the marker.
func (s *Store) ours(kv pair) error {
	switch n, ok := markerFormat(kv.value); {
	case !ok:
		return foreign(s.prefix, kv.key)
	case n > format:
		return fault.Newf(fault.CodeStateVersion, "the members in etcd are of a newer version").
			Whyf("%s says format %d, and this program knows %d", kv.key, n, format).
			Hint("run the newer version, or choose another prefix")
	}
	return nil
}

// mark makes an empty prefix ours, unless another service was quicker. If there may
// be members that are not in it yet, that is noted first.
func (s *Store) mark(ctx context.Context, part bool) (*pair, error) {
	ctx, cancel := context.WithTimeout(ctx, s.times.Wait)
	defer cancel()
	if part {
		s.part(ctx)
	}
	name := s.prefix + "/" + markerName
	answer, err := s.remote.Swap(ctx, name, 0, []byte(markerText+"1\n"), 0)
	switch {
	case err != nil:
		return nil, err
	case answer.done:
		return &pair{key: name, rev: answer.rev, made: answer.rev}, nil
	}
	return answer.is, s.ours(*answer.is)
}

// part shows services that start within the longest lease that members may exist which are not
// in etcd. Without it they merely do not wait for them.
func (s *Store) part(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.times.Wait)
	defer cancel()
	lease, err := s.remote.Grant(ctx, int64(limit.DiscoveryTTL/time.Second))
	if err == nil {
		_, err = s.remote.Swap(ctx, s.prefix+"/"+partName, 0, []byte("1\n"), lease)
	}
	if err != nil {
		s.log.Warn("it could not be noted in etcd that members may be missing there", "prefix", s.prefix, "error", err)
	}
}
