// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// oracle is what the specification says of members, in the plainest form: when
// each thing ends. It knows no change, log, sweep or snapshot.
type oracle map[Place]*expected

type expected struct {
	data      string
	version   uint64
	removed   bool
	until     time.Time
	endpoints map[string]time.Time
}

// now drops what is over.
func (o oracle) now() {
	for p, m := range o {
		if !time.Now().Before(m.until) {
			delete(o, p)
			continue
		}
		maps.DeleteFunc(m.endpoints, func(_ string, until time.Time) bool { return !time.Now().Before(until) })
	}
}

func (o oracle) update(p Place, u roster.Update) (stale bool) {
	o.now()
	m := o[p]
	if m == nil {
		m = &expected{endpoints: map[string]time.Time{}}
		o[p] = m
	}
	until := time.Now().Add(u.TTL)
	if u.Version > 0 {
		if u.Version == m.version && u.Removed == m.removed && string(u.Data) == m.data {
			return false // its word of before, which changes nothing
		}
		if u.Version <= m.version {
			return true
		}
		m.data, m.version, m.removed, m.until = string(u.Data), u.Version, u.Removed, until
		if m.removed {
			m.until = time.Now().Add(limit.DiscoveryTTL)
		}
		return false
	}
	if u.Data != nil {
		m.data = string(u.Data)
	}
	if until.After(m.until) {
		m.until = until
	}
	for _, e := range u.Endpoints {
		if until.After(m.endpoints[string(e)]) {
			m.endpoints[string(e)] = until
		}
	}
	return false
}

// listed is the members of a cluster as lines.
func (o oracle) listed(c Cluster) map[string]string {
	o.now()
	out := map[string]string{}
	for p, m := range o {
		if p.Cluster == c && !m.removed {
			out[p.Member] = line(m.data, m.version, slices.Sorted(maps.Keys(m.endpoints)))
		}
	}
	return out
}

func line(data string, version uint64, endpoints []string) string {
	return fmt.Sprintf("%s@%d %q", data, version, endpoints)
}

func lineOf(l roster.Lease) string {
	var all []string
	for _, e := range l.Endpoints {
		all = append(all, string(e.Blob))
	}
	slices.Sort(all)
	return line(string(l.Data), l.Version, all)
}

// machine is a store beside its oracle, and a watcher of each cluster with what it
// has been told.
type machine struct {
	t        *testing.T
	disk     *testDisk
	board    *Board
	store    *Memory
	stop     func()
	want     oracle
	watchers map[Cluster]*Watcher
	told     map[Cluster]map[string]string
}

func (m *machine) start() {
	m.board = NewBoard(Bounds{})
	m.store, m.stop = running(m.t, quiet(m.disk, m.board))
	m.watchers, m.told = map[Cluster]*Watcher{}, map[Cluster]map[string]string{}
	// Everything is asked a moment after a sweep, and ends a moment before one: in
	// between the sweep may be late by right.
	time.Sleep(time.Millisecond)
}

func (m *machine) end() {
	for _, w := range m.watchers {
		w.Close()
	}
	m.stop()
}

func modelClusters() []Cluster { return []Cluster{{Sidero, "a"}, {Sidero, "b"}, {Native, "a"}} }

// check compares board and watchers with the oracle, once the sweep has been.
func (m *machine) check(t *rapid.T) {
	time.Sleep(limit.DiscoverySweep)
	synctest.Wait()
	for _, c := range modelClusters() {
		want := m.want.listed(c)
		got := map[string]string{}
		for _, l := range m.board.List(c) {
			got[l.ID] = lineOf(l.Lease)
		}
		if !maps.Equal(got, want) {
			t.Fatalf("cluster %v: %v, want %v", c, got, want)
		}
		w := m.watchers[c]
		if w == nil {
			continue
		}
		changes, _, err := w.since()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range changes {
			m.told[c][l.ID] = lineOf(l.Lease)
			if !l.Lease.Listed() {
				delete(m.told[c], l.ID)
			}
		}
		if !maps.Equal(m.told[c], want) {
			t.Fatalf("a watcher of %v knows %v, want %v", c, m.told[c], want)
		}
	}
}

func (m *machine) place(t *rapid.T) Place {
	return Place{rapid.SampledFrom(modelClusters()).Draw(t, "cluster"), rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "member")}
}

func ttl(t *rapid.T) time.Duration {
	return seconds(t) - 2*time.Millisecond
}

func seconds(t *rapid.T) time.Duration {
	n := rapid.OneOf(rapid.IntRange(1, 10), rapid.IntRange(1, 1800)).Draw(t, "seconds")
	return time.Duration(n) * time.Second
}

func (m *machine) update(t *rapid.T) {
	p := m.place(t)
	u := roster.Update{TTL: ttl(t)}
	for _, e := range rapid.SliceOfN(rapid.SampledFrom([]string{"e", "f", "g"}), 0, 2).Draw(t, "endpoints") {
		u.Endpoints = append(u.Endpoints, []byte(e))
	}
	if rapid.Bool().Draw(t, "with data") {
		u.Data = []byte(rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "data"))
	}
	if p.Protocol == Native {
		u.Endpoints, u.Data = nil, append([]byte("signed"), u.Data...)
		u.Version = rapid.Uint64Range(1, 30).Draw(t, "version")
		u.Removed = rapid.IntRange(0, 3).Draw(t, "removed") == 0
	}
	stale := m.want.update(p, u)
	if err := m.store.Update(context.Background(), p, u); fault.Has(err, fault.CodeEntryStale) != stale || err != nil && !stale {
		t.Fatalf("%v: %v, want stale %v", u, err, stale)
	}
}

func (m *machine) remove(t *rapid.T) {
	p := m.place(t)
	m.want.now()
	signed := m.want[p] != nil && m.want[p].version > 0
	if err := m.store.Delete(context.Background(), p); (err != nil) != signed {
		t.Fatal(err)
	}
	if !signed {
		delete(m.want, p)
	}
}

func (m *machine) watch(t *rapid.T) {
	c := rapid.SampledFrom(modelClusters()).Draw(t, "watched")
	if w := m.watchers[c]; w != nil {
		w.Close()
	}
	w := m.board.Watch(c)
	m.watchers[c], m.told[c] = w, map[string]string{}
	r := drawn(t, w, func(all []Listing) (out [][]byte) {
		for _, l := range all {
			if l.Lease.Listed() {
				out = append(out, []byte(l.ID+"="+lineOf(l.Lease)))
			}
		}
		return out
	})
	for _, piece := range r.Pieces { // of another's rendering, perhaps
		id, text, _ := strings.Cut(string(piece), "=")
		m.told[c][id] = text
	}
}

// restart ends the store in order and opens it again: no time passes in between,
// so that what was left of each lease is left still.
func (m *machine) restart(*rapid.T) {
	m.end()
	m.start()
}

// TestModel plays joins, updates, reports of endpoints, expiry, deletes, removals,
// watches and restarts against the oracle.
func TestModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Without the test's deadline, which a bubble has no clock for.
		rapid.Check(struct{ rapid.TB }{t}, func(rt *rapid.T) {
			m := &machine{t: t, disk: newDisk(), want: oracle{}}
			m.start()
			defer func() { m.end() }()
			rt.Repeat(map[string]func(*rapid.T){
				"update":  m.update,
				"update2": m.update, // twice as often as the others
				"delete":  m.remove,
				"watch":   m.watch,
				"restart": m.restart,
				"wait":    func(t *rapid.T) { time.Sleep(seconds(t)) },
				"":        m.check,
			})
		})
	})
}
