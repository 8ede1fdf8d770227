// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"context"
	"crypto/rand"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/proto/discovery"
)

// announcer owns this node's entry. One version serves all secrets and services, so that each
// can learn the newest from any of them.
type announcer struct {
	ttl  time.Duration
	last func(version uint64) error // keeps it on disk
	log  *slog.Logger
	// clashed counts entries with our key that we did not make.
	clashed func()

	mu      sync.Mutex
	keys    []seal.Keys           // as the configuration lists them
	private seal.WireGuardPrivate // proves the key that is announced, if it is that one's
	clash   keyClash
	stale   bool // what is announced has another proof
	now     word
	changed chan struct{}                // closed when now is another one
	grants  map[*attending]time.Duration // the leases of services that give shorter ones than ttl
	paced   chan struct{}                // closed when grants change
	sealed  time.Time                    // when now was
}

// word is the announced entry.
type word struct {
	id      identity      // of the member
	member  *member.Facts // nil: nothing yet
	content uint64        // grows when the member or leaving changes, not with a renewal
	version uint64
	entries []*discovery.Entry // by secret
	keys    []seal.Keys        // of these
	leaving bool
}

// under is the entry for a cluster; nil: its secret was given up.
func (w word) under(cluster seal.ClusterID) *discovery.Entry {
	for i, k := range w.keys {
		if i < len(w.entries) && k.Cluster() == cluster {
			return w.entries[i]
		}
	}
	return nil
}

func newAnnouncer(key seal.MemberKey, keys []seal.Keys, ttl time.Duration, version uint64) *announcer {
	return &announcer{
		keys: keys, ttl: ttl, now: word{id: identity{key: key}, version: version}, changed: make(chan struct{}),
		grants: map[*attending]time.Duration{}, paced: make(chan struct{}),
		last: func(uint64) error { return nil }, log: slog.New(slog.DiscardHandler),
		clashed: func() {}, clash: keyClash{wake: make(chan struct{}, 1)},
	}
}

// current is what is announced, and a channel that is closed when that changes.
func (a *announcer) current() (word, <-chan struct{}) {
	if a == nil {
		return word{}, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.now, a.changed
}

// take checks and announces a member. It reports whether the content has changed.
func (a *announcer) take(now time.Time, m member.Facts) (changed bool, err error) {
	if _, err := seal.ParseMember(seal.Message(m)); err != nil { // others would not take it
		return false, err
	}
	before, _ := a.current()
	err = a.announce(now, m)
	after, _ := a.current()
	return after.content != before.content, err
}

// announce changes what is announced; the same again changes nothing.
func (a *announcer) announce(now time.Time, m member.Facts) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	same := a.now.member != nil && reflect.DeepEqual(*a.now.member, m)
	if same && !a.stale {
		return nil
	}
	next := a.now
	next.member = &m
	if !same {
		next.content++
	}
	if err := a.sealLocked(now, next); err != nil {
		return err
	}
	a.stale = false
	return nil
}

// takes reports why a member cannot be announced under secrets, with the proof of a key. It
// announces nothing.
func (a *announcer) takes(keys []seal.Keys, m member.Facts, private seal.WireGuardPrivate) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	next := a.now
	next.member, next.version = &m, max(next.version, 1)
	_, err := a.entriesLocked(next, keys, private)
	return err
}

// renew makes new entries of the same content, with leases of their own.
func (a *announcer) renew(now time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.now.member == nil || a.now.leaving {
		return nil
	}
	return a.sealLocked(now, a.now)
}

// keepRenewed makes new entries each third of a lease, and when one is due out of turn.
func (a *announcer) keepRenewed(ctx context.Context) error {
	tried := time.Now()
	for {
		due, paced := a.due()
		if soonest := tried.Add(shortestLease / 3); due.Before(soonest) {
			due = soonest // nothing is announced yet, or it cannot be
		}
		if at := a.answerDue(); !at.IsZero() {
			due = sooner(due, at)
		}
		timer, stop := timerAt(due)
		select {
		case <-timer:
			tried = time.Now()
			if err := a.renew(tried); err != nil {
				a.log.Error("this member cannot be announced any longer", telemetry.AttrReason, err)
			}
		case <-paced:
		case <-a.clash.wake:
		case <-ctx.Done():
			stop()
			return nil
		}
		stop()
	}
}

// raise takes over a version of this member that a service knows and we do not: the state
// directory was lost, or restored. A service may lie, so an unsigned version far ahead of
// the clock is not believed: it would use up those that follow.
func (a *announcer) raise(now time.Time, known uint64, signed bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	most, have := uint64(max(0, now.Add(versionAhead).UnixNano())), max(a.now.version, a.clash.floor)
	switch {
	case signed && known == lastVersionEver:
		return fault.Newf(fault.CodeEntryStale, "member %s is over", a.now.id.key.ID()).
			Whyf("another key has succeeded this one: the state directory is an older one").
			Hint("bring the newer %s back; or remove it, so that a new member begins", keyFile)
	case known < have, signed && known == have, !signed && known == have && !a.clash.due.IsZero():
		return nil
	case !signed && known > max(most, have):
		return fault.Newf(fault.CodeEntryStale, "a service knows version %d of this member", known).
			Whyf("that is more than ten years ahead of the clock, and is not believed").
			Hint("see to the clock; if the service is right, remove the member's key, so that a new one begins")
	}
	return a.answerLocked(now, known)
}

// leave makes the removal.
func (a *announcer) leave(now time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.now.leaving {
		return nil
	}
	next := a.now
	next.leaving = true
	next.content++
	return a.sealLocked(now, next)
}

// sealLocked makes new entries and wakes the sessions. If the version cannot be written to disk
// it continues: the next start takes a version from the clock.
func (a *announcer) sealLocked(now time.Time, next word) error {
	next.version = seal.NextVersion(max(next.version, a.clash.floor), now)
	a.clash.due = time.Time{}
	entries, err := a.entriesLocked(next, a.keys, a.private)
	if err != nil {
		return err
	}
	next.entries, next.keys = entries, a.keys
	if err := a.last(next.version); err != nil {
		a.log.Warn("the version of this member cannot be kept on disk", telemetry.AttrReason, err)
	}
	a.sealed = now
	a.sayLocked(next)
	return nil
}

// entriesLocked are the entries of a word under secrets.
func (a *announcer) entriesLocked(w word, keys []seal.Keys,
	private seal.WireGuardPrivate) (out []*discovery.Entry, err error) {
	for _, k := range keys {
		if w.leaving {
			out = append(out, k.Remove(w.id.key, w.version, limit.DiscoveryTTL))
			continue
		}
		message, err := a.proven(k, w, private)
		if err != nil {
			return nil, err
		}
		e, err := k.Seal(rand.Reader, w.id.key, seal.Content{Version: w.version, TTL: a.ttl, Member: message,
			Succession: w.id.succession(k)})
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

// due is when new entries are to be made: at a third of the shortest lease that a
// service gives. All get them then, as one version counts everywhere.
func (a *announcer) due() (time.Time, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	shortest := a.ttl
	for _, ttl := range a.grants {
		shortest = min(shortest, ttl)
	}
	return a.sealed.Add(shortest / 3), a.paced
}

// granted notes the lease of a service, 0 when its session is over.
func (a *announcer) granted(by *attending, ttl time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.grants[by]; !known && (ttl == 0 || ttl >= a.ttl) {
		return
	}
	if delete(a.grants, by); ttl > 0 && ttl < a.ttl {
		a.grants[by] = ttl
	}
	close(a.paced)
	a.paced = make(chan struct{})
}

// proven is what is announced, with the proof of its WireGuard key.
func (a *announcer) proven(k seal.Keys, w word, private seal.WireGuardPrivate) (*discovery.Member, error) {
	m := seal.Message(*w.member)
	if private.IsZero() || private.Public() != w.member.Key {
		return m, nil
	}
	var err error
	m.WireguardProof, err = k.ProveWireGuard(rand.Reader, private, w.id.key.ID())
	return m, err
}

// prove sets the key that is proven from the next announcement on. The same content
// with another proof is announced anew.
func (a *announcer) prove(private seal.WireGuardPrivate) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.private.IsZero() == private.IsZero() && (private.IsZero() || a.private.Public() == private.Public()) {
		return
	}
	a.private, a.stale = private, true
}

func (a *announcer) sayLocked(next word) {
	a.now = next
	close(a.changed)
	a.changed = make(chan struct{})
}

// succeed continues under another key, or under the same one once the old one is retired.
func (a *announcer) succeed(now time.Time, next identity) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	word := a.now
	word.id = next
	if next.key.ID() == a.now.id.key.ID() || word.member == nil {
		a.sayLocked(word)
		return nil
	}
	return a.sealLocked(now, word)
}

// rekey continues under other secrets.
func (a *announcer) rekey(now time.Time, keys []seal.Keys) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.keys
	a.keys = keys
	if a.now.member == nil || a.now.leaving {
		return nil
	}
	if err := a.sealLocked(now, a.now); err != nil {
		a.keys = before
		return err
	}
	return nil
}
