// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"cmp"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/admin"
)

// countLimit counts for the metrics that a limit held somebody up.
func (h *Hub) countLimit(s scope, k resource) {
	h.metrics.Limits.WithLabelValues(string(s), k.String()).Inc()
}

// use is what an account uses of one of its bounds; unread is known to its cluster.
func (a *account) use(k resource, unread int64) (used, bound int64, waiting int) {
	b := a.bounds.Load()
	switch k {
	case ofSessions:
		return a.sessions.Load(), b.sessions, 0
	case ofStreams:
		return a.streams.Load(), b.streams, 0
	case ofPending:
		return a.pending.Load(), b.pending, 0
	case ofDials:
		return a.dialled.last(time.Now()), b.dials, 0
	case ofIn:
		used, waiting = a.in.used()
		return used, b.in, waiting
	case ofOut:
		used, waiting = a.out.used()
		return used, b.out, waiting
	case ofUnread:
		return unread, b.unread, 0
	}
	return 0, unbounded, 0
}

// bounded says whether a resource has a bound, without looking at what is used.
func (a *account) bounded(k resource) bool {
	b := a.bounds.Load()
	return [resources]int64{
		b.sessions, b.streams, b.pending, b.dials, b.in, b.out, b.unread, unbounded,
	}[k] != unbounded
}

// limitsOf lists the limits of a cluster, its agents and its callers that are set or
// were hit.
func (h *Hub) limitsOf(c *cluster) (out []admin.LimitStatus) {
	all := c.accounts.all()
	slices.SortFunc(all, func(a, b *account) int {
		return cmp.Or(cmp.Compare(a.scope.order(), b.scope.order()), cmp.Compare(a.who, b.who))
	})
	for _, a := range all {
		for k := range resources {
			used, bound, waiting := a.use(k, c.unreadOf(a))
			hits := a.hits[k].Load()
			if bound == unbounded && hits == 0 {
				continue
			}
			st := admin.LimitStatus{Scope: string(a.scope), Who: a.who, Limit: k.String(), Used: used, Hits: hits, Waiting: waiting}
			if bound != unbounded {
				st.Bound = bound
			}
			out = append(out, st)
		}
	}
	return out
}

// order is from the whole to its parts.
func (s scope) order() int { return slices.Index([]scope{scopeCluster, scopeAgent, scopeCaller}, s) }

// hits sums over all accounts of a cluster.
func (a *accounts) hits() (n int64) {
	for _, one := range a.all() {
		for k := range resources {
			n += one.hits[k].Load()
		}
	}
	return n
}

// limitUse is the greatest share that a cluster, an agent or a caller uses of one of
// its limits.
func (h *Hub) limitUse(name string) (most float64) {
	for k := range resources {
		if k.String() != name {
			continue
		}
		h.clusters.each(func(c *cluster) {
			c.accounts.each(func(a *account) {
				if !a.bounded(k) {
					return
				}
				used, bound, _ := a.use(k, c.unreadOf(a))
				most = max(most, float64(used)/float64(bound))
			})
		})
	}
	return most
}

// each calls fn with every cluster, in no particular order.
func (r *registry) each(fn func(*cluster)) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, c := range r.clusters {
		fn(c)
	}
}

func (h *Hub) memoryStatus() *admin.Memory {
	m := &admin.Memory{Used: h.memory.used.Load(), Full: h.clusters.memory.Load()}
	if most := h.memory.most.Load(); most != unbounded {
		m.Limit = most
	}
	return m
}

func (h *Hub) memoryLimit() float64 { return float64(h.memoryStatus().Limit) }
