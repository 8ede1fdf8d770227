// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"bytes"
	"slices"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	pb "github.com/tombolo-io/tombolo/proto/sidero"
)

// olderBook has the entries of one service of the older protocol for one cluster. Nothing is
// signed there, so only time removes a member:
//
//	listed ──deleted──▶ doubted ──removalGrace, and a list lacks it──▶ gone
//	  ▲  │                 │
//	  │  └─ the stream     └─ listed again: as if nothing had been said
//	  │     ends, or a list lacks it
//	  └──listed── unlisted ──DiscoveryTTL──▶ stale ──a service reports the others──▶ gone
type olderBook struct {
	name    string
	cluster string
	key     seal.SideroKey
	others  []seal.SideroKey // of the other secrets: what they open is no junk
	here    *presence        // of all services of the protocol, for the secret

	mu      sync.Mutex
	live    bool // the service reports members now
	refuses bool // and accepts nothing, as the session of the first secret knows: no lease can be renewed
	members map[string]*olderWord
	sealed  map[string]bool // whose data none of our secrets opens
}

type olderWord struct {
	data      []byte
	endpoints [][]byte
	facts     member.Facts
	heard     time.Time
	listed    bool
	cached    bool
	until     time.Time // of one that is not listed by a live service
	doubted   time.Time // zero: not
}

func newOlderBook(name, cluster string, key seal.SideroKey) *olderBook {
	return &olderBook{name: name, cluster: cluster, key: key, here: new(presence), members: map[string]*olderWord{},
		sealed: map[string]bool{}}
}

// snapshot takes the whole cluster as the service lists it. Members that it lacks are
// kept: a service that was restarted knows none.
func (b *olderBook) snapshot(now time.Time, list []*pb.Affiliate) (junk int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.freezeLocked(now)
	if !b.live && !b.refuses { // our push may have been refused before the list came
		b.here.tells(now, graceOf(false))
	}
	b.live = true
	clear(b.sealed)
	return b.hearLocked(now, list)
}

// news takes what has changed.
func (b *olderBook) news(now time.Time, list []*pb.Affiliate) (junk int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hearLocked(now, list)
}

func (b *olderBook) hearLocked(now time.Time, list []*pb.Affiliate) (junk int) {
	for _, a := range list {
		junk += b.hearOneLocked(now, a)
	}
	return junk
}

// hearOneLocked takes an affiliate. Data that cannot be read says nothing: what was
// known of the member stays until its lease ends, which runs from then.
func (b *olderBook) hearOneLocked(now time.Time, a *pb.Affiliate) (junk int) {
	id := a.GetId()
	w := b.members[id]
	switch {
	case len(a.GetData()) == 0:
		return 0 // endpoints of a member whose data has not come
	case id == "" || len(id) > limit.DiscoveryID:
		return 1
	case w == nil && len(b.members) >= mostMembers:
		return 1
	}
	at, blobs, junk := b.places(a.GetEndpoints())
	if w == nil || !bytes.Equal(w.data, a.GetData()) {
		m, err := b.open(id, a.GetData())
		if err != nil {
			if w != nil && w.listed { // perhaps sealed with another secret: what was known is no longer stated
				w.until, w.listed = b.endLocked(now, w), false
			}
			if slices.ContainsFunc(b.others, func(k seal.SideroKey) bool {
				_, err := k.OpenData(a.GetData())
				return err == nil
			}) {
				return 0
			}
			if len(b.sealed) < mostMembers {
				b.sealed[id] = true
			}
			return junk + 1
		}
		m.ID = id
		w = &olderWord{data: a.GetData(), facts: m, heard: now}
		b.members[id] = w
	}
	delete(b.sealed, id)
	w.facts.Endpoints, w.endpoints = at, blobs
	w.listed, w.cached, w.doubted = true, false, time.Time{}
	w.until = now.Add(limit.DiscoveryTTL)
	return junk
}

func (b *olderBook) open(id string, data []byte) (member.Facts, error) {
	message, err := b.key.OpenData(data)
	if err != nil {
		return member.Facts{}, err
	}
	return seal.ParseAffiliate(id, message)
}

// places are the endpoints that can be read, and their blobs. What is kept of a member is bounded, however much a
// service says of it. In this protocol others may add to a member's endpoints, and nobody can tell who wrote one.
func (b *olderBook) places(all [][]byte) (at []member.Endpoint, blobs [][]byte, junk int) {
	for i, blob := range all {
		if i >= limit.RosterEndpoints {
			return at, blobs, junk + len(all) - i
		}
		a, err := b.key.OpenEndpoint(blob)
		if err != nil {
			if !slices.ContainsFunc(b.others, func(k seal.SideroKey) bool {
				_, err := k.OpenEndpoint(blob)
				return err == nil
			}) {
				junk++
			}
			continue
		}
		if e := (member.Endpoint{Addr: a}); !slices.Contains(at, e) {
			at, blobs = append(at, e), append(blobs, blob)
		}
	}
	return at, blobs, junk
}

// deleted begins to doubt members. Their lease runs from now.
func (b *olderBook) deleted(now time.Time, list []*pb.Affiliate) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range list {
		delete(b.sealed, a.GetId())
		if w := b.members[a.GetId()]; w != nil && w.doubted.IsZero() {
			w.doubted, w.listed, w.until = now, false, b.endLocked(now, w)
		}
	}
}

// endLocked is when the lease of a member ends that is no longer listed.
func (b *olderBook) endLocked(now time.Time, w *olderWord) time.Time {
	if b.live && w.listed {
		return now.Add(limit.DiscoveryTTL)
	}
	return w.until
}

// doubts is when the first doubt is to be settled; zero: there is none.
func (b *olderBook) doubts() (next time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.members {
		if due := w.doubted.Add(removalGrace); !w.doubted.IsZero() && (next.IsZero() || due.Before(next)) {
			next = due
		}
	}
	return next
}

// settle ends the doubts that are old enough: list is the present cluster, and a member in it
// is there. One that is missing at a service that accepts nothing could not announce
// itself: its lease runs since the removal.
func (b *olderBook) settle(now time.Time, list []*pb.Affiliate) (junk int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	junk = b.hearLocked(now, list)
	for id, w := range b.members {
		switch due := w.doubted.Add(removalGrace); {
		case w.doubted.IsZero() || now.Before(due):
		case b.refuses:
			w.doubted = time.Time{}
		default:
			delete(b.members, id)
		}
	}
	return junk
}

// unsettled leaves doubts that cannot be settled to the lease, which runs since the removal.
func (b *olderBook) unsettled(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.members {
		if !w.doubted.IsZero() && !now.Before(w.doubted.Add(removalGrace)) {
			w.doubted = time.Time{}
		}
	}
}

// away notes that the service no longer reports anything: leases run from now.
func (b *olderBook) away(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.freezeLocked(now)
	if b.live && !b.refuses {
		b.here.ends(now)
	}
	b.live, b.refuses = false, false
}

// refused notes whether the service accepts nothing at present, though it reports members.
func (b *olderBook) refused(now time.Time, yes bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if yes == b.refuses {
		return
	}
	b.refuses = yes
	switch {
	case b.live && yes:
		b.here.ends(now)
	case b.live:
		b.here.tells(now, graceOf(false))
	}
}

func (b *olderBook) freezeLocked(now time.Time) {
	for _, w := range b.members {
		w.until, w.listed = b.endLocked(now, w), false
	}
}

// said is what counts, and forgets what is over.
func (b *olderBook) said(now time.Time) []roster.Said {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []roster.Said
	for id, w := range b.members {
		until := b.endLocked(now, w)
		end := b.here.end(now, until)
		if !now.Before(end) {
			delete(b.members, id)
			continue
		}
		out = append(out, roster.Said{
			Source: roster.Source{Tier: roster.TierOlder, Name: b.name, Cached: w.cached}, Facts: w.facts,
			Until: until, Stale: !now.Before(until), Held: end, Heard: w.heard,
		})
	}
	return out
}

// idOf is the affiliate that has a key.
func (b *olderBook) idOf(key member.Key) (string, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, w := range b.members {
		if w.facts.Key == key {
			return id, true
		}
	}
	return "", false
}

func (b *olderBook) count(now time.Time) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.members {
		if !w.cached && now.Before(b.endLocked(now, w)) {
			n++
		}
	}
	return n
}
