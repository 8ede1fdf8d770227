// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"context"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/proto/discovery"
)

// held are the secrets that this node has, and the sessions for them. They stay as they
// are made; a reload makes others.
type held struct {
	secrets       []seal.Secret
	keys          []seal.Keys     // of secrets
	subscriptions []*subscription // of each service, for each secret
}

func (h *held) has(cluster seal.ClusterID) bool {
	return slices.ContainsFunc(h.keys, func(k seal.Keys) bool { return k.Cluster() == cluster })
}

func (f *Client) keys() []seal.Keys              { return f.held.Load().keys }
func (f *Client) subscriptions() []*subscription { return f.held.Load().subscriptions }

// exchangeable reports whether other secrets can be taken over while it runs. A service of
// the older protocol has one entry of a node, which one secret seals: that takes a restart.
func (f *Client) exchangeable() bool {
	return f.cfg.ClusterID == "" || !slices.ContainsFunc(f.cfg.Services, func(s Service) bool { return s.Protocol != ProtocolNative })
}

// Heir is a configuration as this client takes it over: with the secrets of now, where
// others take a restart.
func (f *Client) Heir(next Config) Config {
	if !f.exchangeable() {
		h := f.held.Load()
		next.secrets, next.keys = h.secrets, h.keys
	}
	return next
}

// TakeSecrets goes on with the secrets of another configuration: what they have in common
// with those of now goes on as it is. It announces this node under those that are new
// before it attends their clusters, and forgets who was known under another one alone. Under
// those that are given up it says nothing any more, and its leases there end: a farewell would open
// its ranges to who has such a one alone, though it lives on.
func (f *Client) TakeSecrets(next Config) error {
	f.taking.Lock()
	defer f.taking.Unlock()
	next = f.Heir(next)
	now := f.held.Load()
	same := func(a, b seal.Keys) bool { return a.Cluster() == b.Cluster() }
	if slices.EqualFunc(now.keys, next.keys, same) {
		return nil
	}
	if err := f.self.rekey(time.Now(), next.keys); err != nil {
		return err
	}
	to := &held{secrets: next.secrets, keys: next.keys}
	to.subscriptions = f.subscriptionsOf(to, now.subscriptions)
	f.held.Store(to)
	f.log.Info("this member goes on under other secrets of the cluster", "secrets", next.Clusters())
	select {
	case f.recast <- struct{}{}:
	default:
	}
	select {
	case f.told <- struct{}{}: // Self has other ids
	default:
	}
	f.stir()
	return nil
}

// attendance is a client that runs.
type attendance struct {
	stop context.CancelFunc
	over chan struct{}
}

// keepSubscriptions runs those that there are until ctx ends.
func (f *Client) keepSubscriptions(ctx context.Context) error {
	g := run.NewGroup(ctx)
	running := map[*subscription]attendance{}
	for {
		h := f.held.Load()
		for _, c := range h.subscriptions {
			if _, runs := running[c]; runs {
				continue
			}
			ctx, stop := context.WithCancel(g.Context())
			a := attendance{stop, make(chan struct{})}
			running[c] = a
			g.Go("service "+c.service.Name, func(context.Context) error {
				defer close(a.over)
				defer a.stop()
				return c.run(ctx)
			})
		}
		for c, a := range running {
			if slices.Contains(h.subscriptions, c) {
				continue
			}
			a.stop()
			<-a.over // it tells nothing of the cluster any more
			delete(running, c)
			c.log.Info("leaving the discovery service for a secret that was given up", "service", c.service.Name, telemetry.AttrCluster, c.keys.Cluster().String())
			if !h.has(c.keys.Cluster()) {
				f.native.drop(time.Now(), c.keys.Cluster())
				f.stir()
			}
		}
		select {
		case <-f.recast:
		case <-g.Context().Done():
			return g.Wait()
		}
	}
}

// drop forgets what was heard under a secret that is given up. Who was heard under another
// one too goes on by that. Of who does not the version is remembered, as of all that are
// gone: the same word counts again if the secret comes back, an older one does not.
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
