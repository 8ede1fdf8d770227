// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/proto/discovery"
)

// TestRemovalEndsWhatIsHeld: a member's own word counts at once.
func TestRemovalEndsWhatIsHeld(t *testing.T) {
	b, k := newNativeBook(), secretOf(t, newSecret(t)).Keys()
	m := drawnKey(t)
	now := time.Now()
	from := heardFrom{name: "s", at: now}
	b.hear(now, k, from, sealed(t, k, m, 5, "a"))
	later := now.Add(2 * time.Hour)
	if said := b.said(later); len(said) != 1 || !said[0].Stale {
		t.Fatalf("it is not held: %+v", said)
	}
	b.hear(later, k, from, k.Remove(m, 6, limit.DiscoveryTTL))
	if said := b.said(later); len(said) != 1 || !said[0].Removed || said[0].Stale {
		t.Errorf("the removal does not count: %+v", said)
	}
	if said := b.said(later.Add(removalCounts)); len(said) != 0 {
		t.Errorf("a removal outlasts what it silences: %+v", said)
	}
}

func sealed(t *testing.T, k seal.Keys, m seal.MemberKey, version uint64, node string) *discovery.Entry {
	t.Helper()
	return sealedAs(t, k, m, seal.Content{Version: version, TTL: limit.DiscoveryTTL, Member: &discovery.Member{Node: node}})
}

func sealedAs(t *testing.T, k seal.Keys, m seal.MemberKey, c seal.Content) *discovery.Entry {
	t.Helper()
	if c.Member == nil {
		c.Member = &discovery.Member{Node: "a"}
	}
	e, err := k.Seal(rand.Reader, m, c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func drawnKey(t *testing.T) seal.MemberKey {
	t.Helper()
	m, err := seal.NewMemberKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestExpiredOfAnotherSecret: what ends for one secret lives for another.
func TestExpiredOfAnotherSecret(t *testing.T) {
	b, now := newNativeBook(), time.Now()
	older, newer := secretOf(t, newSecret(t)).Keys(), secretOf(t, newSecret(t)).Keys()
	m := drawnKey(t)
	from := heardFrom{name: "s", listed: true, at: now}
	b.hear(now, older, from, sealed(t, older, m, 1, "a"))
	b.hear(now, newer, from, sealed(t, newer, m, 5, "a"))
	if b.expired(now, from, older.Cluster(), m.ID()) || len(b.said(now)) != 1 {
		t.Error("the old secret's expiry ended the entry of the new one")
	}
	if !b.expired(now, from, newer.Cluster(), m.ID()) || len(b.said(now)) != 0 {
		t.Error("its own expiry does not end it")
	}
	first, second := from, from
	first.session, second.session = 1, 2
	b.hear(now, older, first, sealed(t, older, m, 6, "a"))
	b.hear(now, newer, second, sealed(t, newer, m, 6, "a"))
	if b.expired(now, second, newer.Cluster(), m.ID()) || !b.expired(now, first, older.Cluster(), m.ID()) ||
		len(b.said(now)) != 0 {
		t.Error("of one version under two secrets, the expiry that its first session tells does not end it")
	}
}

// TestOldVersions: an entry that was made long ago is believed once the member has
// said something newer, unless its version is no time at all.
func TestOldVersions(t *testing.T) {
	now := time.Date(2026, 11, 22, 5, 0, 0, 0, time.UTC)
	k := secretOf(t, newSecret(t)).Keys()
	version := func(ago time.Duration) uint64 { return uint64(now.Add(-ago).UnixNano()) }
	for _, c := range []struct {
		name    string
		version uint64
		cached  bool
		want    hearing
	}{
		{"of now", version(0), false, heardNews},
		{"of a clock that is a day late", version(24 * time.Hour), false, heardNews},
		{"of before", version(25 * time.Hour), false, heardStale},
		{"of before, from our own disk", version(25 * time.Hour), true, heardNews},
		{"of a clock that was never set", 7, false, heardNews},
		{"of a clock that is ahead", version(-300 * 24 * time.Hour), false, heardNews},
	} {
		b := newNativeBook()
		m := drawnKey(t)
		from := heardFrom{name: "s", at: now, cached: c.cached}
		if _, how, _ := b.hear(now, k, from, sealed(t, k, m, c.version, "a")); how != c.want {
			t.Errorf("%s: %s, want %s", c.name, how, c.want)
		}
		if _, how, _ := b.hear(now, k, from, sealed(t, k, m, c.version, "a")); c.want == heardStale && how != heardStale {
			t.Errorf("%s: again, and it is %s", c.name, how)
		}
		if _, how, _ := b.hear(now, k, from, sealed(t, k, m, c.version+1, "a")); how != heardNews && how != heardRenewed {
			t.Errorf("%s: the next one is %s", c.name, how)
		}
	}
}
