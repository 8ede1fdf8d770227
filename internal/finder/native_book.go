// SPDX-License-Identifier: Apache-2.0

package finder

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/limit"
	"github.com/tombolo-io/tombolo/internal/roster"
	"github.com/tombolo-io/tombolo/internal/seal"
	"github.com/tombolo-io/tombolo/proto/discovery"
)

// hearing is what became of an entry that a service sent.
type hearing string

const (
	heardNews  hearing = "news"
	heardAgain hearing = "again" // the same as before
	heardStale hearing = "stale" // older than what is known, or another one of the same version
	heardJunk  hearing = "junk"
	heardFull  hearing = "full" // there are too many members
)

// nativeBook is what all native services have said, of all secrets: versions are
// the member's own and count whoever repeats them.
type nativeBook struct {
	mu      sync.Mutex
	members map[seal.MemberID]*signedWord
}

// signedWord is the newest entry of a member.
type signedWord struct {
	cluster  seal.ClusterID
	entry    *discovery.Entry
	before   *discovery.Entry // of a removal: the entry that it ended
	facts    roster.Facts     // of a removal: what was known before
	observed []roster.Observation
	replaces string
	until    time.Time
	sources  []heardFrom
}

// heardFrom is one service that says the entry.
type heardFrom struct {
	name   string
	cached bool
	listed bool // it came with a snapshot: how much of its lease was left is not known
	at     time.Time
}

func newNativeBook() *nativeBook { return &nativeBook{members: map[seal.MemberID]*signedWord{}} }

// hear takes an entry. A lease begins when its version is heard first, whoever
// repeats it: what is replayed lives no longer by it.
func (b *nativeBook) hear(now time.Time, keys seal.Keys, from heardFrom, e *discovery.Entry) (seal.MemberID, hearing, error) {
	b.mu.Lock()
	known := b.members[seal.MemberOf(e.GetMember())]
	b.mu.Unlock()
	if known != nil {
		switch {
		case proto.Equal(known.entry, e): // verified when it came first
			return seal.MemberOf(e.GetMember()), b.again(seal.MemberOf(e.GetMember()), from), nil
		case e.GetVersion() < known.entry.GetVersion():
			return seal.MemberOf(e.GetMember()), heardStale, nil
		}
	}
	w, id, err := open(now, keys, e)
	if err != nil {
		return id, heardJunk, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	known = b.members[id] // another service may have been quicker
	switch {
	case known == nil && len(b.members) >= limit.FinderMembers:
		return id, heardFull, nil
	case known != nil && proto.Equal(known.entry, e):
		return id, b.heardToo(known, from), nil
	case known != nil && e.GetVersion() == known.entry.GetVersion() && known.cluster != w.cluster:
		return id, b.heardToo(known, from), nil // the same for another secret
	case known != nil && e.GetVersion() <= known.entry.GetVersion():
		return id, heardStale, nil
	case known != nil && e.GetRemoved():
		w.facts, w.before = known.facts, known.entry // to know whom it meant
		if known.entry.GetRemoved() {
			w.before = known.before
		}
	}
	w.sources = []heardFrom{from}
	b.members[id] = w
	return id, heardNews, nil
}

// open verifies an entry and reads what it holds.
func open(now time.Time, keys seal.Keys, e *discovery.Entry) (*signedWord, seal.MemberID, error) {
	id, message, err := keys.Open(e)
	if err != nil {
		return nil, id, err
	}
	w := &signedWord{cluster: keys.Cluster(), entry: e, facts: roster.Facts{ID: id.String()}}
	w.until = now.Add(time.Duration(e.GetTtl()) * time.Second)
	if e.GetRemoved() {
		w.until = now.Add(limit.DiscoveryTTL) // as long as anything from before may be about
		return w, id, nil
	}
	m, err := seal.ParseMember(message)
	if err != nil {
		return nil, id, err
	}
	w.facts, w.observed = factsOf(id.String(), m), observedOf(m)
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

// heardToo adds a source to what is known. What a service says is not only
// remembered any more.
func (b *nativeBook) heardToo(w *signedWord, from heardFrom) hearing {
	i := slices.IndexFunc(w.sources, func(h heardFrom) bool { return h.name == from.name })
	switch {
	case i < 0:
		w.sources = append(w.sources, from)
	case from.cached || !w.sources[i].cached:
		return heardAgain
	default:
		w.sources[i] = from
	}
	return heardNews
}

// expired takes a service's word that a lease has run out. It ends only what the
// service listed when we came, of which we do not know how much was left; the
// leases of all else run here.
func (b *nativeBook) expired(source string, id seal.MemberID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.members[id]
	if w == nil || w.entry.GetRemoved() {
		return false
	}
	before := len(w.sources)
	w.sources = slices.DeleteFunc(w.sources, func(h heardFrom) bool { return h.name == source && h.listed })
	return len(w.sources) < before
}

// said is what counts, and forgets what is long over.
func (b *nativeBook) said(now time.Time) []roster.Said {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []roster.Said
	for id, w := range b.members {
		if !now.Before(w.until) {
			if !now.Before(w.until.Add(limit.FinderRemember)) {
				delete(b.members, id)
			}
			continue
		}
		for _, h := range w.sources {
			out = append(out, roster.Said{
				Source: roster.Source{Tier: roster.TierNative, Name: h.name, Cached: h.cached}, Facts: w.facts, Version: w.entry.GetVersion(),
				Until: w.until, Heard: h.at, Removed: w.entry.GetRemoved(), Replaces: w.replaces, Observed: w.observed,
			})
		}
	}
	return out
}

// count is how many members a source states.
func (b *nativeBook) count(now time.Time, source string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.members {
		if now.Before(w.until) && !w.entry.GetRemoved() && slices.ContainsFunc(w.sources, func(h heardFrom) bool { return h.name == source && !h.cached }) {
			n++
		}
	}
	return n
}

// junkReason is why something is not taken, for a log.
func junkReason(err error) string {
	if f := fault.From(err); f != nil {
		return f.Error()
	}
	return ""
}
