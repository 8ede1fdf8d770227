// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tombolo-io/tombolo/internal/discovery"
	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/limit"
	"github.com/tombolo-io/tombolo/internal/roster"
)

// Run implements discovery.Store: it follows the prefix. What ends the watch, be
// it that etcd is away or that it forgot what was between, is made good by a new
// list, of which the board takes the difference.
func (s *Store) Run(ctx context.Context) error {
	defer s.Close()
	for {
		err := s.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
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
			pause(ctx, s.times.Retry)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// lost notes that etcd is away.
func (s *Store) lost(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away == nil {
		s.since = time.Now()
	}
	s.away = err
}

var errSilent = errors.New("etcd gives no sign of life")

// follow watches from what is on the board, until the watch ends. It returns no
// error if a list may do at once.
func (s *Store) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	s.mu.Lock()
	from := s.seen + 1
	s.mu.Unlock()
	watch := s.client.Watch(ctx, s.prefix+"/", clientv3.WithPrefix(), clientv3.WithRev(from))
	probe, sweep := time.NewTicker(s.times.Probe), time.NewTicker(limit.DiscoverySweep)
	silence := time.NewTimer(s.times.Silence)
	defer probe.Stop()
	defer sweep.Stop()
	defer silence.Stop()
	for {
		select {
		case answer, ok := <-watch:
			switch err := answer.Err(); {
			case errors.Is(err, rpctypes.ErrCompacted):
				return nil
			case err != nil:
				return err
			case !ok:
				return errSilent
			}
			silence.Reset(s.times.Silence)
			s.take(answer)
		case <-probe.C:
			short, cancel := context.WithTimeout(ctx, s.times.Probe)
			_ = s.client.RequestProgress(short) // what does not come is noticed
			cancel()
		case <-sweep.C:
			s.board.ExpireEndpoints(time.Now())
		case <-silence.C:
			return errSilent
		case <-s.doubt:
			return nil
		}
	}
}

// take puts onto the board what etcd told.
func (s *Store) take(answer clientv3.WatchResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.word = time.Now()
	for _, e := range answer.Events {
		p, ours := place(s.prefix, string(e.Kv.Key))
		switch {
		case !ours && e.Type == mvccpb.PUT && string(e.Kv.Key) != s.prefix+"/"+markerName:
			s.odd = string(e.Kv.Key)
		case !ours && string(e.Kv.Key) == s.odd:
			s.odd = ""
		case !ours:
		case e.Type == mvccpb.DELETE:
			s.gone(p, e.Kv.ModRevision)
		case e.Kv.ModRevision > s.known[p].rev:
			v, err := decode(e.Kv.Value)
			if err != nil {
				s.odd = string(e.Kv.Key)
				continue
			}
			s.put(p, v, e.Kv, s.word.Add(v.left))
		}
	}
	// The header's revision may be ahead of the events, but for a sign of life.
	if n := len(answer.Events); n > 0 {
		s.seen = max(s.seen, answer.Events[n-1].Kv.ModRevision)
	} else if answer.IsProgressNotify() {
		s.seen = max(s.seen, answer.Header.Revision)
	}
}

// put puts a member as etcd has it. mu is held.
func (s *Store) put(p discovery.Place, v value, kv *mvccpb.KeyValue, end time.Time) {
	l, _ := v.at(end).ExpireEndpoints(time.Now())
	s.known[p] = kept{rev: kv.ModRevision, id: clientv3.LeaseID(kv.Lease), ttl: v.ttl}
	s.board.Follow(p, l)
}

// found is what stands at the key of a write.
func (w *write) found(ctx context.Context, kvs []*mvccpb.KeyValue) error {
	w.fresh, w.known, w.was = true, kept{}, roster.Lease{}
	if len(kvs) == 0 {
		return nil
	}
	kv := kvs[0]
	v, err := decode(kv.Value)
	if err != nil {
		return foreign(w.prefix, w.key)
	}
	end, err := w.end(ctx, kv, v)
	if err != nil {
		return err
	}
	w.known = kept{rev: kv.ModRevision, id: clientv3.LeaseID(kv.Lease), ttl: v.ttl}
	w.was = v.at(end)
	return nil
}

// end asks etcd when the lease of a member ends, for its value may be old.
func (s *Store) end(ctx context.Context, kv *mvccpb.KeyValue, v value) (time.Time, error) {
	left := v.left
	answer, err := s.client.TimeToLive(ctx, clientv3.LeaseID(kv.Lease))
	if err != nil {
		return time.Time{}, err
	}
	if t := time.Duration(answer.TTL) * time.Second; t < left { // it is told in whole seconds
		left = max(t, 0)
	}
	return time.Now().Add(left), nil
}

// member is one of a list.
type member struct {
	p   discovery.Place
	v   value
	kv  *mvccpb.KeyValue
	end time.Time
}

// list reads the whole prefix at one revision and puts the difference onto the
// board. The first time it sees whose the prefix is.
func (s *Store) list(ctx context.Context, first bool) error {
	found, rev, err := s.all(ctx, first)
	if err != nil {
		return err
	}
	for i := range found { // only of those where it matters: one question each
		m := &found[i]
		m.end = time.Now().Add(m.v.left)
		if !m.v.timed() {
			continue
		}
		if m.end, err = s.ask(ctx, *m); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	there := make(map[discovery.Place]bool, len(found))
	for _, m := range found {
		there[m.p] = true
		if m.kv.ModRevision >= s.known[m.p].rev {
			s.put(m.p, m.v, m.kv, m.end)
		}
	}
	for p := range s.known {
		if !there[p] {
			s.gone(p, rev)
		}
	}
	s.seen, s.away, s.since, s.word = max(s.seen, rev), nil, time.Time{}, time.Now()
	return nil
}

func (s *Store) ask(ctx context.Context, m member) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, s.times.Wait)
	defer cancel()
	return s.end(ctx, m.kv, m.v)
}

// all reads every key of the prefix at one revision.
func (s *Store) all(ctx context.Context, first bool) (found []member, rev int64, err error) {
	marked := false
	from, to := s.prefix+"/", clientv3.GetPrefixRangeEnd(s.prefix+"/")
	for {
		answer, err := s.page(ctx, from, clientv3.WithRange(to), clientv3.WithRev(rev), clientv3.WithLimit(limit.DiscoveryStorePage))
		if err != nil {
			return nil, 0, err
		}
		if rev == 0 {
			rev = answer.Header.Revision
		}
		for _, kv := range answer.Kvs {
			from = string(kv.Key) + "\x00"
			if string(kv.Key) == s.prefix+"/"+markerName {
				if err := s.ours(kv); err != nil {
					return nil, 0, err
				}
				marked = true
				continue
			}
			p, ours := place(s.prefix, string(kv.Key))
			v, err := decode(kv.Value)
			if !ours || err != nil {
				return nil, 0, foreign(s.prefix, string(kv.Key))
			}
			found = append(found, member{p: p, v: v, kv: kv})
		}
		if !answer.More {
			break
		}
	}
	switch {
	case marked:
		return found, rev, nil
	case len(found) > 0:
		return nil, 0, foreign(s.prefix, string(found[0].kv.Key)).Whyf("there are members, but no %s/%s", s.prefix, markerName)
	case !first:
		return nil, 0, fault.New(fault.CodeStoreAway, "etcd has forgotten its members").
			Whyf("%s/%s is not there: it was emptied, or is another one", s.prefix, markerName).
			Hint("restore etcd; or restart this service, which then begins without members")
	}
	return nil, rev, s.mark(ctx)
}

func (s *Store) page(ctx context.Context, from string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, s.times.Wait)
	defer cancel()
	return s.client.Get(ctx, from, opts...)
}

// ours looks at the marker.
func (s *Store) ours(kv *mvccpb.KeyValue) error {
	switch n, ok := markerFormat(kv.Value); {
	case !ok:
		return foreign(s.prefix, string(kv.Key))
	case n > format:
		return fault.Newf(fault.CodeStateVersion, "the members in etcd are of a newer version").
			Whyf("%s says format %d, and this program knows %d", kv.Key, n, format).Hint("run the newer version, or choose another prefix")
	}
	return nil
}

// mark makes an empty prefix ours, unless another service was quicker.
func (s *Store) mark(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.times.Wait)
	defer cancel()
	name := s.prefix + "/" + markerName
	answer, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(name), "=", 0)).
		Then(clientv3.OpPut(name, markerText+"1\n")).Else(clientv3.OpGet(name)).Commit()
	if err != nil || answer.Succeeded {
		return err
	}
	return s.ours(answer.Responses[0].GetResponseRange().Kvs[0])
}
