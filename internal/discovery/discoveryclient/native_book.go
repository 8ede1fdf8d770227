// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"bytes"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/proto/discovery"
)

// hearing is what became of an entry that a service sent.
type hearing string

const (
	heardNews    hearing = "news"
	heardRenewed hearing = "renewed" // a lease, and nothing else
	heardAgain   hearing = "again"   // the same as before
	heardStale   hearing = "stale"   // older than what is known, or another one of the same version
	heardJunk    hearing = "junk"
	heardFull    hearing = "full" // there are too many members
)

// nativeBook has the entries of all native services under all secrets: versions are the
// member's own, and count whichever service repeats them.
type nativeBook struct {
	mu      sync.Mutex
	members map[seal.MemberID]*signedWord
	here    map[hereOf]*presence
	past    map[seal.MemberID]pastVersion // of members that were forgotten, or not believed yet

	sessions atomic.Uint64 // that have begun
}

// hereOf is a service, for one secret.
type hereOf struct {
	cluster seal.ClusterID
	service string
}

// pastVersion is below what an entry of a member must have.
type pastVersion struct {
	version uint64
	until   time.Time
}

// signedWord is the newest entry of a member.
type signedWord struct {
	cluster  seal.ClusterID
	entry    *discovery.Entry
	others   entriesOf    // the same version under the other secrets, for the cache
	before   entriesOf    // of a removal: the entries that it ended
	facts    member.Facts // of a removal: what was known before
	replaces string
	proven   bool      // the WireGuard key is shown to be the member's
	until    time.Time // the end of the lease
	began    time.Time // when this version was heard first; zero: the cache knows its end
	sources  []heardFrom
	prior    []seal.ClusterID // those of the version before
	renewed  []string         // of a renewal: the services that said the version before
	lent     bool             // entry is of a secret given up: that of cluster is on its way
}

// entriesOf are the entries of one version of a member, under each secret.
type entriesOf map[seal.ClusterID]*discovery.Entry

// all are the entries of a version, under all secrets.
func (w *signedWord) all() entriesOf {
	out := entriesOf{w.cluster: w.entry}
	for cluster, e := range w.others {
		out[cluster] = e
	}
	return out
}

// clusters are those of all entries; that of the first one heard comes first.
func (w *signedWord) clusters() []seal.ClusterID {
	out := []seal.ClusterID{w.cluster}
	for cluster := range w.others {
		out = append(out, cluster)
	}
	return out
}

// too keeps the entry of the same version under another secret: once that one alone is
// configured, nothing else of the cache can be read.
func (w *signedWord) too(cluster seal.ClusterID, e *discovery.Entry) {
	if e.GetRemoved() != w.entry.GetRemoved() {
		return
	}
	if w.others == nil {
		w.others = entriesOf{}
	}
	w.others[cluster] = e
}

// heardFrom is one service that says the entry.
type heardFrom struct {
	name   string
	cached bool
	listed bool // it came with a snapshot: how much of its lease was left is not known
	at     time.Time
	// session is the one that has said it, or listed it last: what another one says of its lease is of another time.
	session uint64
}

func newNativeBook() *nativeBook {
	return &nativeBook{members: map[seal.MemberID]*signedWord{}, here: map[hereOf]*presence{},
		past: map[seal.MemberID]pastVersion{}}
}

// presence is whether a service reports the members of a cluster.
func (b *nativeBook) presence(cluster seal.ClusterID, service string) *presence {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := hereOf{cluster, service}
	if b.here[at] == nil {
		b.here[at] = new(presence)
	}
	return b.here[at]
}

// presencesLocked are those of the services that can state an entry: the ones that have, or
// all, if none of them is asked any longer.
func (b *nativeBook) presencesLocked(w *signedWord) (out []*presence) {
	for _, h := range w.sources {
		if p := b.here[hereOf{w.cluster, h.name}]; p != nil {
			out = append(out, p)
		}
	}
	if len(out) > 0 {
		return out
	}
	for at, p := range b.here {
		if at.cluster == w.cluster {
			out = append(out, p)
		}
	}
	return out
}

// endLocked is when a member stops to count: as soon as one of its services says so. A
// removal is the member's own statement, and is not held.
func (b *nativeBook) endLocked(now time.Time, w *signedWord) time.Time {
	if w.entry.GetRemoved() {
		return w.until
	}
	end := new(presence).end(now, w.until)
	for _, p := range b.presencesLocked(w) {
		end = sooner(end, p.end(now, w.until))
	}
	return end
}

// hear takes an entry. Its lease begins when its version is first received, from whichever
// service: a replay does not prolong it.
func (b *nativeBook) hear(now time.Time, keys seal.Keys, from heardFrom,
	e *discovery.Entry) (seal.MemberID, hearing, error) {
	if had := b.entryOf(seal.MemberOf(e.GetMember())); had != nil {
		switch {
		case proto.Equal(had, e): // verified when it came first
			return seal.MemberOf(e.GetMember()), b.again(seal.MemberOf(e.GetMember()), from), nil
		case e.GetVersion() < had.GetVersion():
			return seal.MemberOf(e.GetMember()), heardStale, nil
		}
	}
	w, id, err := open(now, keys, e)
	if err != nil {
		return id, heardJunk, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	known := b.members[id] // another service may have been quicker
	switch {
	case known == nil && !b.believes(now, id, from, e.GetVersion()):
		return id, heardStale, nil
	case known == nil && len(b.members) >= mostMembers:
		return id, heardFull, nil
	case known != nil && proto.Equal(known.entry, e):
		return id, b.heardToo(known, from), nil
	case known != nil && e.GetVersion() == known.entry.GetVersion() && known.cluster != w.cluster:
		known.too(w.cluster, e) // the same for another secret
		from.session = 0        // which says nothing of leases for this one
		return id, b.heardToo(known, from), nil
	case known != nil && known.lent && e.GetVersion() == known.entry.GetVersion() &&
		e.GetRemoved() == known.entry.GetRemoved():
		known.entry, known.lent = e, false
		return id, b.heardToo(known, from), nil
	case known != nil && e.GetVersion() == known.entry.GetVersion() &&
		bytes.Equal(e.GetSealed(), known.entry.GetSealed()) && e.GetRemoved() == known.entry.GetRemoved():
		known.lengthen(e) // a service gave another lease for the same
		return id, b.heardToo(known, from), nil
	case known != nil && e.GetVersion() <= known.entry.GetVersion():
		return id, heardStale, nil
	case known != nil && e.GetRemoved():
		w.facts, w.before = known.facts, known.all() // to know whom it meant
		w.proven = known.proven
		w.replaces = known.replaces // whom it had succeeded does not come back
		if known.entry.GetRemoved() {
			w.before = known.before
		}
	}
	w.sources = []heardFrom{from}
	b.inheritLocked(known, w)
	delete(b.past, id)
	b.members[id] = w
	if known != nil && w.renews(now, known) {
		return id, heardRenewed, nil
	}
	return id, heardNews, nil
}

// lengthen takes the longer of two leases of the same word, which runs from when
// that was heard first.
func (w *signedWord) lengthen(e *discovery.Entry) {
	until := w.began.Add(time.Duration(e.GetTtl()) * time.Second)
	if !w.began.IsZero() && !e.GetRemoved() && until.After(w.until) {
		w.until, w.entry = until, e
	}
}

// inheritLocked keeps the secrets under which the version before was, through the
// member's keys too.
func (b *nativeBook) inheritLocked(known, w *signedWord) {
	if old, err := seal.ParseMemberID(w.replaces); err == nil && known == nil {
		known = b.members[old]
	}
	if known != nil {
		w.prior = known.clusters()
	}
}

// believes reports whether an entry of an unknown member may be its present one. A version that
// was seen before is not. One that was made long ago, by the clock of its maker, may be a
// replay: it is believed once a newer one comes, as it does of a member that lives.
func (b *nativeBook) believes(now time.Time, id seal.MemberID, from heardFrom, version uint64) bool {
	past, seen := b.past[id]
	switch {
	case seen && now.Before(past.until):
		return version > past.version
	case from.cached || version < oldestClock || now.UnixNano() < 0 || version >= uint64(now.Add(-replayAge).UnixNano()):
		return true
	case len(b.past) >= mostMembers:
		return true
	}
	b.past[id] = pastVersion{version, now.Add(rememberGone)}
	return false
}

// removalCounts is as long as anything from before a removal may be about: a lease, and
// for as long as what has none left is held.
const removalCounts = limit.DiscoveryTTL + staleHold

// removal is until when one counts in full, and since when it has counted if that is over.
func (w *signedWord) removal(now time.Time) (until, past time.Time) {
	if full := w.until.Add(-staleHold); now.Before(full) {
		return full, time.Time{}
	}
	return w.until, w.until.Add(-removalCounts)
}

// oldestClock is the version of 2020: a smaller one was made without a clock, and its age is
// unknown.
const oldestClock = 1577836800 * uint64(time.Second)

// open verifies an entry and reads what it holds.
func open(now time.Time, keys seal.Keys, e *discovery.Entry) (*signedWord, seal.MemberID, error) {
	id, message, err := keys.Open(e)
	if err != nil {
		return nil, id, err
	}
	w := &signedWord{cluster: keys.Cluster(), entry: e, began: now, facts: member.Facts{ID: id.String()}}
	w.until = now.Add(time.Duration(e.GetTtl()) * time.Second)
	if e.GetRemoved() {
		w.until = now.Add(removalCounts)
		return w, id, nil
	}
	m, err := seal.ParseMember(message)
	if err != nil {
		return nil, id, err
	}
	w.facts, w.facts.ID = m, id.String()
	w.proven = len(message.GetWireguardProof()) > 0 // Open has verified it
	if e.GetSuccession() != nil {
		old, err := seal.VerifySuccession(keys.Cluster(), e)
		if err != nil {
			return nil, id, err
		}
		w.replaces = old.String()
	}
	return w, id, nil
}

func (b *nativeBook) again(id seal.MemberID, from heardFrom) hearing {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known := b.members[id]; known != nil {
		return b.heardToo(known, from)
	}
	return heardStale
}

// heardToo adds a source to a known entry, which then no longer comes from the cache alone.
func (b *nativeBook) heardToo(w *signedWord, from heardFrom) hearing {
	i := slices.IndexFunc(w.sources, func(h heardFrom) bool { return h.name == from.name })
	switch {
	case i < 0:
		w.sources = append(w.sources, from)
		if !from.cached && slices.Contains(w.renewed, from.name) {
			return heardRenewed
		}
	case from.cached || !w.sources[i].cached:
		if from.listed && w.sources[i].listed && from.session != 0 { // now it is this session that knows when the lease ends
			w.sources[i].session = from.session
		}
		return heardAgain
	default:
		w.sources[i] = from
	}
	return heardNews
}

// said is what counts, and forgets what is long over.
func (b *nativeBook) said(now time.Time) []roster.Said {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []roster.Said
	for id, p := range b.past {
		if !now.Before(p.until) {
			delete(b.past, id)
		}
	}
	for id, w := range b.members {
		end := b.endLocked(now, w)
		if !now.Before(end) {
			if w.entry.GetRemoved() || !now.Before(end.Add(rememberGone)) {
				delete(b.members, id)
			}
			continue
		}
		until, past, stale := w.until, time.Time{}, !now.Before(w.until)
		if w.entry.GetRemoved() {
			until, past = w.removal(now)
		}
		for _, h := range w.sources {
			out = append(out, roster.Said{
				Source: roster.Source{Tier: roster.TierNative, Name: h.name, Cached: h.cached}, Facts: w.facts,
				Version: w.entry.GetVersion(),
				Until:   until, Stale: stale, Held: end, Heard: h.at, Proven: w.proven, Removed: w.entry.GetRemoved(), Past: past,
				Replaces: w.replaces,
			})
		}
	}
	return out
}

// count is how many members a source reports.
func (b *nativeBook) count(now time.Time, source string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.members {
		if now.Before(w.until) && !w.entry.GetRemoved() &&
			slices.ContainsFunc(w.sources, func(h heardFrom) bool { return h.name == source && !h.cached }) {
			n++
		}
	}
	return n
}
