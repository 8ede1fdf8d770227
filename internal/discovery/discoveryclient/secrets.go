// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/proto/discovery"
)

// held are the secrets that this node has, and the subscriptions for them. A value never
// changes; a reload makes another one.
type held struct {
	secrets []seal.Secret
	keys    []seal.Keys // of secrets
	all     []*subscription
}

func (h *held) has(cluster seal.ClusterID) bool {
	return slices.ContainsFunc(h.keys, func(k seal.Keys) bool { return k.Cluster() == cluster })
}

// subscriptions owns the secrets, and for each a session to each service.
type subscriptions struct {
	subscriptionParts
	clusterID string // for services of the older protocol
	services  []Service
	held      atomic.Pointer[held]
	taking    sync.Mutex    // held while other secrets are taken
	recast    chan struct{} // held is another one
}

func newSubscriptions(cfg Config, parts subscriptionParts) *subscriptions {
	s := &subscriptions{
		subscriptionParts: parts, clusterID: cfg.ClusterID, services: cfg.Services, recast: make(chan struct{}, 1),
	}
	h := &held{secrets: cfg.secrets, keys: cfg.keys}
	h.all = s.make(h, nil)
	s.held.Store(h)
	return s
}

func (s *subscriptions) keys() []seal.Keys    { return s.held.Load().keys }
func (s *subscriptions) all() []*subscription { return s.held.Load().all }

// make makes those of all services and secrets; had are kept. What is known of the services of
// the older protocol is kept for each secret, and the session of the first secret reports it.
func (s *subscriptions) make(h *held, had []*subscription) (out []*subscription) {
	older := make([]presence, len(h.keys))
	for _, service := range s.services {
		var first *subscription
		for i, k := range h.keys {
			at := slices.IndexFunc(had, func(c *subscription) bool {
				return c.service.Name == service.Name && c.keys.Cluster() == k.Cluster()
			})
			if at >= 0 {
				out = append(out, had[at])
				continue
			}
			c := newSubscription(s.subscriptionParts, service, s.clusterID, h.secrets, i)
			out = append(out, c)
			if first == nil {
				first = c
			}
			if c.older == nil {
				continue
			}
			c.older.here = &older[i]
			if c != first {
				first.alike = append(first.alike, c.older)
			}
		}
	}
	return out
}

// exchangeable reports whether other secrets can be taken while it runs. A service of the
// older protocol has one entry of a node, sealed with one secret: that takes a restart.
func (s *subscriptions) exchangeable() bool {
	return s.clusterID == "" || !slices.ContainsFunc(s.services,
		func(o Service) bool { return o.Protocol != ProtocolNative })
}

// heir is a configuration as a running client takes it: with the present secrets, where others
// take a restart.
func (s *subscriptions) heir(next Config) Config {
	if !s.exchangeable() {
		h := s.held.Load()
		next.secrets, next.keys = h.secrets, h.keys
	}
	return next
}

// take continues with the secrets of another configuration, and reports whether they differ.
func (s *subscriptions) take(next Config) (changed bool, err error) {
	s.taking.Lock()
	defer s.taking.Unlock()
	next = s.heir(next)
	now := s.held.Load()
	same := func(a, b seal.Keys) bool { return a.Cluster() == b.Cluster() }
	if slices.EqualFunc(now.keys, next.keys, same) {
		return false, nil
	}
	if err := s.self.rekey(time.Now(), next.keys); err != nil {
		return false, err
	}
	to := &held{secrets: next.secrets, keys: next.keys}
	to.all = s.make(to, now.all)
	s.held.Store(to)
	s.log.Info("this member continues under other secrets of the cluster", "secrets", next.Clusters())
	signal(s.recast)
	return true, nil
}

// runningSubscription can be stopped and waited for.
type runningSubscription struct {
	stop context.CancelFunc
	over chan struct{}
}

// run runs those that there are until ctx ends.
func (s *subscriptions) run(ctx context.Context) error {
	g := run.NewGroup(ctx)
	running := map[*subscription]runningSubscription{}
	for {
		h := s.held.Load()
		for _, c := range h.all {
			if _, runs := running[c]; runs {
				continue
			}
			ctx, stop := context.WithCancel(g.Context())
			r := runningSubscription{stop, make(chan struct{})}
			running[c] = r
			g.Go("service "+c.service.Name, func(context.Context) error {
				defer close(r.over)
				defer r.stop()
				return c.run(ctx)
			})
		}
		for c, r := range running {
			if slices.Contains(h.all, c) {
				continue
			}
			r.stop()
			<-r.over // from here on it reports nothing about the cluster
			delete(running, c)
			c.log.Info("leaving the discovery service for a secret that was given up",
				"service", c.service.Name, telemetry.AttrCluster, c.keys.Cluster().String())
			if !h.has(c.keys.Cluster()) {
				s.native.drop(time.Now(), c.keys.Cluster())
				s.changed()
			}
		}
		select {
		case <-s.recast:
		case <-g.Context().Done():
			return g.Wait()
		}
	}
}

// left waits until all services have taken the farewell, or ctx ends, and names those that have not.
func (s *subscriptions) left(ctx context.Context) (missing []string) {
	for _, c := range s.all() {
		if c.status.get().State != StateAttending {
			missing = append(missing, c.service.Name)
			continue
		}
		select {
		case <-c.left:
		case <-ctx.Done():
			missing = append(missing, c.service.Name)
		}
	}
	return missing
}

// attending counts the sessions in which a service reports members.
func (s *subscriptions) attending() (n int) {
	for _, c := range s.all() {
		if c.status.get().State == StateAttending {
			n++
		}
	}
	return n
}

// TakeSecrets continues with the secrets of another configuration; those that both have are not
// touched. It announces this node under the new secrets before it attends their clusters, and forgets
// the members known under a given-up secret alone. Under that it announces nothing any more, and its
// lease there ends: a farewell would open its ranges to nodes with that secret alone, while it lives.
func (c *Client) TakeSecrets(next Config) error {
	changed, err := c.subs.take(next)
	if changed {
		signal(c.told) // Self has other ids
		c.news.changed()
	}
	return err
}

// Heir is a configuration as this client takes it over: with its present secrets, where
// others take a restart.
func (c *Client) Heir(next Config) Config { return c.subs.heir(next) }

// drop forgets the entries under a secret that is given up. A member that has an entry under another
// secret too continues with that. Of the others the version is remembered, as of all that are
// gone: the same entry counts again if the secret comes back, an older one does not.
func (b *nativeBook) drop(now time.Time, cluster seal.ClusterID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for at := range b.here {
		if at.cluster == cluster {
			delete(b.here, at)
		}
	}
	is := func(c seal.ClusterID) bool { return c == cluster }
	for id, w := range b.members {
		delete(w.others, cluster)
		delete(w.before, cluster)
		w.prior = slices.DeleteFunc(w.prior, is)
		if w.cluster != cluster {
			continue
		}
		rest := w.clusters()[1:]
		switch {
		case len(rest) > 0:
			w.cluster, w.entry, w.lent = rest[0], w.others[rest[0]], false
			delete(w.others, rest[0])
		case len(w.prior) > 0: // its newest word was heard here first, and is on its way under the other one
			w.cluster, w.lent = w.prior[0], true
		default:
			delete(b.members, id)
			if len(b.past) < mostMembers {
				b.past[id] = pastVersion{w.entry.GetVersion() - 1, now.Add(rememberGone)}
			}
		}
	}
}

// entryOf is the entry of a member, which is never changed itself; nil: there is none.
func (b *nativeBook) entryOf(id seal.MemberID) *discovery.Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.members[id]; w != nil {
		return w.entry
	}
	return nil
}
