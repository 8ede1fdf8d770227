// SPDX-License-Identifier: Apache-2.0

// Package roster decides about members: what a discovery service keeps of one
// and for how long (Lease), and what a node knows of the others when several
// sources speak of them (Merge). It seals nothing, and knows no protocol.
package roster

import (
	"bytes"
	"net/netip"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// Lease is what a discovery service keeps of one member. Times are those of the
// service's own monotonic clock.
type Lease struct {
	Data      []byte     // sealed, as it came; nil: only endpoints are known
	Endpoints []Endpoint // sealed too, in the order in which they came
	Version   uint64     // of Data; 0 where the protocol has none
	Removed   bool       // Data is a signed removal, kept so that what was before it cannot return
	Expires   time.Time
}

// Endpoint is a sealed endpoint with its own time to live.
type Endpoint struct {
	Blob    []byte
	Expires time.Time
}

// Update is what a member, or another one for it, wants kept.
type Update struct {
	Data      []byte // nil: leave what is there
	Endpoints [][]byte
	Version   uint64 // 0: the protocol has none
	Removed   bool
	TTL       time.Duration
	From      netip.Addr // who brings it, for whom it counts with; Put does not look at it
	Most      int        // endpoints of a member; 0: no bound
}

// Change is what an update or the time did to a lease, as watchers see it.
type Change uint8

// The changes.
const (
	Unchanged Change = iota
	Renewed          // the same content for longer: watchers need not know
	Changed          // new content
	Gone             // the member is gone
)

// Exists reports whether there is a member at all.
func (l Lease) Exists() bool { return !l.Expires.IsZero() }

// Listed reports whether the member is reported to others.
func (l Lease) Listed() bool { return l.Exists() && !l.Removed }

// Stale reports whether the version of u is not above the known one. The known update again is not
// stale (Repeats).
func (l Lease) Stale(u Update) bool { return l.Version > 0 && u.Version <= l.Version && !l.Repeats(u) }

// Repeats reports whether u is exactly the known update, from a member that had no answer and sends
// it again. It is acknowledged, and extends nothing: otherwise anyone could keep a member alive by
// replaying its last entry.
func (l Lease) Repeats(u Update) bool {
	return l.Version > 0 && u.Version == l.Version && u.Removed == l.Removed && u.Data != nil &&
		bytes.Equal(u.Data, l.Data)
}

// Put is the lease after an update. The caller has looked at bounds and at Stale.
//
// What has a version is the member's own word, and sets its lease: one that comes
// back after a removal has its own time, not the removal's. What has none extends
// a lease and never shortens it: an endpoint that another node reports says
// nothing against the member's own word.
func (l Lease) Put(now time.Time, u Update) (Lease, Change) {
	was := l.Listed()
	l, change := l.Expire(now) // the sweep may be a moment late: what is over must not return
	if l.Repeats(u) {
		return l, change
	}
	switch {
	case change == Gone || !l.Exists():
		change = Changed
	case change == Unchanged:
		change = Renewed
	}
	until := now.Add(u.TTL)
	out := l
	switch {
	case u.Data == nil || u.Version == 0:
		out.Expires = later(l.Expires, until)
	case u.Removed: // as long as anything from before may be about
		out.Expires = later(until, now.Add(limit.DiscoveryTTL))
	default:
		out.Expires = until
	}
	if u.Data != nil && (u.Version != l.Version || !bytes.Equal(u.Data, l.Data)) {
		out.Data, out.Version, out.Removed, change = u.Data, u.Version, u.Removed, Changed
	}
	if out.Removed {
		out.Endpoints = nil
	} else if len(u.Endpoints) > 0 {
		var more bool
		if out.Endpoints, more = report(l.Endpoints, u, until); more {
			change = Changed
		}
		if u.Data != nil && u.Most > 0 {
			out.Endpoints = displace(out.Endpoints, u)
		}
	}
	if was && !out.Listed() {
		change = Gone
	}
	return out, change
}

// report adds endpoints to those that are known, which it leaves as they are, and
// says whether one was added: an update without data adds as many as there is room
// for. The result has little spare capacity: most members never get
// another one.
func report(known []Endpoint, u Update, until time.Time) (out []Endpoint, more bool) {
	out = append(make([]Endpoint, 0, len(known)), known...)
	for n, blob := range u.Endpoints {
		if i := slices.IndexFunc(out, func(e Endpoint) bool { return bytes.Equal(e.Blob, blob) }); i >= 0 {
			out[i].Expires = later(out[i].Expires, until)
			continue
		}
		if u.Data == nil && u.Most > 0 && len(out) >= u.Most {
			continue
		}
		if more = true; len(out) == cap(out) {
			out = append(make([]Endpoint, 0, len(out)+len(u.Endpoints)-n), out...)
		}
		out = append(out, Endpoint{blob, until})
	}
	return out, more
}

// displace takes endpoints away that are too many, those first that came first,
// and none of an update. Anybody may report endpoints of a member; the update that
// brings its data must find room however many did.
func displace(all []Endpoint, u Update) []Endpoint {
	over := len(all) - u.Most
	if over <= 0 {
		return all
	}
	return slices.DeleteFunc(all, func(e Endpoint) bool {
		if over == 0 || slices.ContainsFunc(u.Endpoints, func(blob []byte) bool { return bytes.Equal(e.Blob, blob) }) {
			return false
		}
		over--
		return true
	})
}

// Expire is the lease at a time: without the endpoints whose own time is over,
// and nothing at all once the member's is.
func (l Lease) Expire(now time.Time) (Lease, Change) {
	switch {
	case !l.Exists():
		return l, Unchanged
	case !now.Before(l.Expires) && l.Removed:
		return Lease{}, Unchanged // it has not been reported for long
	case !now.Before(l.Expires):
		return Lease{}, Gone
	}
	return l.ExpireEndpoints(now)
}

// ExpireEndpoints is Expire where the end of the member itself, and of the endpoints that end with
// it, is decided elsewhere: that may be later than known here.
func (l Lease) ExpireEndpoints(now time.Time) (Lease, Change) {
	over := func(e Endpoint) bool { return !now.Before(e.Expires) && e.Expires.Before(l.Expires) }
	if !slices.ContainsFunc(l.Endpoints, over) {
		return l, Unchanged
	}
	l.Endpoints = slices.DeleteFunc(slices.Clone(l.Endpoints), over)
	return l, Changed
}

// Become is what watchers see where one lease takes the place of another.
func (l Lease) Become(now Lease) Change {
	same := func(a, b Endpoint) bool { return bytes.Equal(a.Blob, b.Blob) }
	switch {
	case l.Listed() && !now.Listed():
		return Gone
	case !now.Exists():
		return Unchanged
	case l.Exists() && l.Removed == now.Removed && l.Version == now.Version && bytes.Equal(l.Data, now.Data) &&
		slices.EqualFunc(l.Endpoints, now.Endpoints, same):
		return Renewed
	}
	return Changed
}

// Next is when Expire has something to do; zero for no member.
func (l Lease) Next() time.Time {
	next := l.Expires
	for _, e := range l.Endpoints {
		if e.Expires.Before(next) {
			next = e.Expires
		}
	}
	return next
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
