// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"cmp"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/admin"
)

// use is what an account uses of one of its bounds; unread is known to its cluster.
func (a *Account) use(k Resource, unread int64) (used, bound int64, waiting int) {
	b := a.bounds.Load()
	switch k {
	case Sessions:
		return a.sessions.Load(), b.Sessions, 0
	case Streams:
		return a.streams.Load(), b.Streams, 0
	case PendingDials:
		return a.pending.Load(), b.Pending, 0
	case Dials:
		return a.dialled.last(time.Now()), b.Dials, 0
	case BytesIn:
		used, waiting = a.in.used()
		return used, b.In, waiting
	case BytesOut:
		used, waiting = a.out.used()
		return used, b.Out, waiting
	case UnreadBytes:
		return unread, b.Unread, 0
	}
	return 0, Unbounded, 0
}

// bounded says whether a resource has a bound, without looking at what is used.
func (a *Account) bounded(k Resource) bool {
	b := a.bounds.Load()
	return [resources]int64{
		b.Sessions, b.Streams, b.Pending, b.Dials, b.In, b.Out, b.Unread, Unbounded,
	}[k] != Unbounded
}

// order is from the whole to its parts.
func (s Scope) order() int { return slices.Index([]Scope{ScopeCluster, ScopeAgent, ScopeCaller}, s) }

// Hits sums over all accounts of a cluster.
func (b *Book) Hits() (n int64) {
	for _, one := range b.all() {
		for k := range resources {
			n += one.hits[k].Load()
		}
	}
	return n
}

// Status lists the limits of the cluster, its agents and its callers that are set or
// were hit.
func (b *Book) Status() (out []admin.LimitStatus) {
	all := b.all()
	slices.SortFunc(all, func(x, y *Account) int {
		return cmp.Or(cmp.Compare(x.scope.order(), y.scope.order()), cmp.Compare(x.who, y.who))
	})
	for _, one := range all {
		for k := range resources {
			used, bound, waiting := one.use(k, b.Unread(one))
			hits := one.hits[k].Load()
			if bound == Unbounded && hits == 0 {
				continue
			}
			st := admin.LimitStatus{Scope: string(one.scope), Who: one.who, Limit: k.String(), Used: used, Hits: hits,
				Waiting: waiting}
			if bound != Unbounded {
				st.Bound = bound
			}
			out = append(out, st)
		}
	}
	return out
}

// GreatestUse is the greatest share that the cluster, an agent or a caller uses of one
// of its limits.
func (b *Book) GreatestUse(name string) (most float64) {
	for k := range resources {
		if k.String() != name {
			continue
		}
		b.each(func(one *Account) {
			if !one.bounded(k) {
				return
			}
			used, bound, _ := one.use(k, b.Unread(one))
			most = max(most, float64(used)/float64(bound))
		})
	}
	return most
}
