// SPDX-License-Identifier: Apache-2.0

package finder

import (
	"crypto/rand"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/limit"
	"github.com/tombolo-io/tombolo/internal/seal"
	"github.com/tombolo-io/tombolo/internal/tell"
	"github.com/tombolo-io/tombolo/proto/discovery"
)

// announcer is this node's own word. One version serves all secrets and services,
// so that each can be told the newest from any of them.
type announcer struct {
	key  seal.MemberKey
	keys []seal.Keys // as the configuration lists them
	ttl  time.Duration
	last func(version uint64) error // keeps it on disk
	log  *slog.Logger

	mu      sync.Mutex
	now     word
	changed chan struct{} // closed when now is another one
}

// word is what is announced.
type word struct {
	member  *seal.Member // nil: nothing yet
	content uint64       // grows when the member or leaving changes, not with a renewal
	version uint64
	entries []*discovery.Entry // by secret
	leaving bool
}

func newAnnouncer(key seal.MemberKey, keys []seal.Keys, ttl time.Duration, version uint64) *announcer {
	return &announcer{
		key: key, keys: keys, ttl: ttl, now: word{version: version}, changed: make(chan struct{}),
		last: func(uint64) error { return nil }, log: slog.New(slog.DiscardHandler),
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

// announce changes what is announced; the same again changes nothing.
func (a *announcer) announce(now time.Time, m seal.Member) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.now.member != nil && reflect.DeepEqual(*a.now.member, m) {
		return nil
	}
	next := a.now
	next.member = &m
	next.content++
	return a.seal(now, next)
}

// renew makes new entries of the same content, with leases of their own.
func (a *announcer) renew(now time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.now.member == nil || a.now.leaving {
		return nil
	}
	return a.seal(now, a.now)
}

// raise takes a version of ours that a service knows and we do not: the state
// directory was lost, or restored. A service may lie, so one far beyond the clock
// is not believed unless it is signed, for it would use up those that follow.
func (a *announcer) raise(now time.Time, known uint64, signed bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	most := uint64(max(0, now.Add(limit.FinderAhead).UnixNano()))
	switch {
	case known < a.now.version, signed && known == a.now.version:
		return nil
	case !signed && known > max(most, a.now.version):
		return fault.Newf(fault.CodeEntryStale, "a service knows version %d of this member", known).
			Whyf("that is more than ten years ahead of the clock, and is not believed").
			Hint("see to the clock; if the service is right, remove the member's key, so that a new one begins")
	}
	a.now.version = known
	if a.now.member == nil && !a.now.leaving {
		return nil
	}
	return a.seal(now, a.now)
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
	return a.seal(now, next)
}

// seal makes the entries of a word and tells those who wait. Where the disk takes
// no version, it goes on: the next start takes the clock's.
func (a *announcer) seal(now time.Time, next word) error {
	next.version = seal.NextVersion(next.version, now)
	next.entries = nil
	for _, k := range a.keys {
		if next.leaving {
			next.entries = append(next.entries, k.Remove(a.key, next.version, limit.DiscoveryTTL))
			continue
		}
		e, err := k.Seal(rand.Reader, a.key, seal.Content{Version: next.version, TTL: a.ttl, Member: next.member.Message()})
		if err != nil {
			return err
		}
		next.entries = append(next.entries, e)
	}
	if err := a.last(next.version); err != nil {
		a.log.Warn("the version of this member cannot be kept on disk", tell.AttrReason, err)
	}
	a.now = next
	close(a.changed)
	a.changed = make(chan struct{})
	return nil
}
