// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/proto/discovery"
)

// TestRenewals: a new version is news, unless its lease is all that is new.
func TestRenewals(t *testing.T) {
	begin := time.Date(2026, 11, 22, 5, 0, 0, 0, time.UTC)
	one, two := secretOf(t, newSecret(t)).Keys(), secretOf(t, newSecret(t)).Keys()
	says := func(node string, port uint32) *discovery.Member {
		return &discovery.Member{Node: node, Endpoints: []*discovery.Endpoint{{Ip: []byte{192, 0, 2, 1}, Port: port, Kind: "own"}}}
	}
	type word struct {
		after  time.Duration
		by     string
		cached bool
		keys   seal.Keys
		member *discovery.Member // nil: it leaves
		again  bool              // the version before
		want   hearing
	}
	first := word{0, "s", false, one, says("a", 1), false, heardNews}
	for name, words := range map[string][]word{
		"renewed":                    {first, {time.Minute, "s", false, one, says("a", 1), false, heardRenewed}},
		"another endpoint":           {first, {time.Minute, "s", false, one, says("a", 2), false, heardNews}},
		"after its end":              {first, {limit.DiscoveryTTL, "s", false, one, says("a", 1), false, heardNews}},
		"remembered before":          {{0, "s", true, one, says("a", 1), false, heardNews}, {time.Minute, "s", false, one, says("a", 1), false, heardNews}},
		"a farewell":                 {first, {time.Minute, "s", false, one, nil, false, heardNews}},
		"back after a farewell":      {first, {1, "s", false, one, nil, false, heardNews}, {2, "s", false, one, says("a", 1), false, heardNews}},
		"under another secret":       {first, {time.Minute, "s", false, two, says("a", 1), false, heardNews}},
		"another service has it too": {first, {1, "other", false, one, says("a", 1), true, heardNews}},
		"both services renew": {first, {1, "other", false, one, says("a", 1), true, heardNews},
			{time.Minute, "s", false, one, says("a", 1), false, heardRenewed}, {time.Minute, "other", false, one, says("a", 1), true, heardRenewed}},
		"the second is late": {first, {1, "other", false, one, says("a", 1), true, heardNews},
			{time.Minute, "s", false, one, says("a", 1), false, heardRenewed}, {2 * time.Minute, "s", false, one, says("a", 1), false, heardRenewed},
			{2 * time.Minute, "other", false, one, says("a", 1), true, heardRenewed}, {2 * time.Minute, "third", false, one, says("a", 1), true, heardNews}},
	} {
		b, m := newNativeBook(), drawnKey(t)
		version := uint64(begin.UnixNano())
		var last *discovery.Entry
		for i, x := range words {
			now := begin.Add(x.after)
			switch {
			case x.again:
			case x.member == nil:
				version++
				last = x.keys.Remove(m, version, limit.DiscoveryTTL)
			default:
				version++
				last = sealedAs(t, x.keys, m, seal.Content{Version: version, TTL: limit.DiscoveryTTL, Member: x.member})
			}
			if _, how, err := b.hear(now, x.keys, heardFrom{name: x.by, at: now, cached: x.cached}, last); how != x.want {
				t.Errorf("%s: word %d is %s, want %s (%v)", name, i, how, x.want, err)
			}
		}
	}
}

// TestRenewalsAreGathered: they come at any moment, and are merged by and by; what is news is
// merged at once beside them.
func TestRenewalsAreGathered(t *testing.T) {
	const n = 1000
	synctest.Test(t, func(t *testing.T) {
		w, secret := newWorld(t), newSecret(t)
		source := teller{make(chan []roster.Said)}
		a := w.start(setup{name: "a", secrets: []string{secret}, sources: []Source{source}, dir: t.TempDir()})
		defer a.stop()
		said := make([]roster.Said, n)
		for i := range said {
			said[i] = roster.Said{Source: roster.Source{Tier: roster.TierKubernetes, Name: "test"}, Facts: member.Facts{ID: fmt.Sprint("m", i), Node: fmt.Sprint("m", i)}}
		}
		source.say <- said
		time.Sleep(time.Minute)
		merged := func() float64 {
			var m dto.Metric
			if err := a.members.merged.Write(&m); err != nil {
				t.Fatal(err)
			}
			return m.GetCounter().GetValue() / n
		}
		saved := map[time.Time]bool{}
		renewing := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				a.news.renewed()
				saved[a.cache.get().LastContact] = true
			}
		}
		renewing(4 * time.Minute)
		if n := len(saved); n < 4 || n > 6 {
			t.Errorf("the cache was written %d times in 4 minutes of renewals, want 4", n)
		}
		before := merged()
		renewing(time.Minute)
		if did := merged() - before; did < 5 || did > 8 {
			t.Errorf("all is merged %.0f times in a minute of renewals, want 6 or 7", did)
		}
		said = append([]roster.Said(nil), said...)
		said[7].Facts.Hostname = "h"
		source.say <- said
		renewing(gathering(n) + 100*time.Millisecond)
		if m := a.member("m7"); m == nil || m.Hostname != "h" {
			t.Error("news wait for renewals")
		}
	})
}

// TestARenewalThatCannotWait: who was gone is back, and a lease that is over before the next
// merge has an end.
func TestARenewalThatCannotWait(t *testing.T) {
	now := time.Date(2026, 11, 22, 5, 0, 0, 0, time.UTC)
	keys, m := secretOf(t, newSecret(t)).Keys(), drawnKey(t)
	for name, c := range map[string]struct {
		gone bool
		ttl  time.Duration
		want hearing
	}{
		"a long lease":                      {false, limit.DiscoveryRenewals + time.Second, heardRenewed},
		"a lease that ends before":          {false, limit.DiscoveryRenewals, heardNews},
		"its service said that it was over": {true, limit.DiscoveryTTL, heardNews},
	} {
		b := newNativeBook()
		from := heardFrom{name: "s", at: now, listed: true}
		says := func(version uint64, ttl time.Duration) hearing {
			e := sealedAs(t, keys, m, seal.Content{Version: uint64(now.UnixNano()) + version, TTL: ttl, Member: &discovery.Member{Node: "n"}})
			_, how, err := b.hear(now, keys, from, e)
			if err != nil {
				t.Fatal(err)
			}
			return how
		}
		says(1, limit.DiscoveryTTL)
		if c.gone && (!b.expired(now, from, keys.Cluster(), m.ID()) || len(b.said(now)) > 0) {
			t.Errorf("%s: it is still there", name)
		}
		if how := says(2, c.ttl); how != c.want {
			t.Errorf("%s: it is %s, want %s", name, how, c.want)
		}
	}
}

// TestALeaseEndsWhileRenewalsAreGathered: at its time, in spite of those that wait.
func TestALeaseEndsWhileRenewalsAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret := newWorld(t), newSecret(t)
		svc := newNativeFake(t)
		defer w.serve("one:80", svc.register)()
		of := func(name string) setup {
			return setup{name: name, secrets: []string{secret}, services: []v1alpha1.MeshService{native("one")}, lease: time.Minute}
		}
		a, c := w.start(of("a")), w.start(of("c"))
		defer a.stop()
		time.Sleep(17 * time.Second) // what is gathered of them is merged at another time than b's end
		b := w.start(of("b"))
		defer c.stop()
		time.Sleep(5 * time.Minute) // all are renewed, and the service is known to tell
		b.stop()
		a.knows(time.Second, "b", "c")
		end := time.Now()
		for a.member("b") != nil && time.Since(end) < time.Hour {
			time.Sleep(50 * time.Millisecond)
			a.news.renewed()
			synctest.Wait()
			if m := a.member("b"); m != nil {
				end = m.Entries[0].Until
			}
		}
		if late := time.Since(end); late < 0 || late > 500*time.Millisecond {
			t.Errorf("it is gone %v after the end of its lease", late)
		}
		a.knows(2*time.Minute, "c")
	})
}
