// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery"
	"github.com/tombolo-io/tombolo/internal/discovery/discoverytest"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const prefix = "/t"

// running opens a store over a fake and runs it.
func running(t *testing.T, f *fake, c Config, b *discovery.Board) (*Store, func()) {
	t.Helper()
	c.Prefix = prefix
	s, err := open(t.Context(), c, b, f)
	if err != nil {
		t.Fatal(err)
	}
	g := run.NewGroup(context.Background())
	g.Go("store", s.Run)
	return s, func() {
		g.Stop()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// simulated runs a test in simulated time.
func simulated(t *testing.T, fn func(*testing.T, *fake)) {
	synctest.Test(t, func(t *testing.T) { fn(t, newFake()) })
}

func TestEtcdIsAStore(t *testing.T) {
	for name, body := range discoverytest.Contract() {
		t.Run(name, func(t *testing.T) {
			simulated(t, func(t *testing.T, f *fake) {
				body(t, func(t *testing.T, b *discovery.Board) (discovery.Store, func()) {
					s, stop := running(t, f, Config{Times: Times{Settle: time.Nanosecond}}, b)
					time.Sleep(time.Nanosecond)
					return s, stop
				})
			})
		})
	}
}

func member1(n int) discovery.Place {
	return discovery.Place{Cluster: discovery.Cluster{Protocol: discovery.Sidero, ID: "c"}, Member: fmt.Sprintf("%06d", n)}
}

func signed(n int) discovery.Place {
	return discovery.Place{Cluster: discovery.Cluster{Protocol: discovery.Native, ID: "n"}, Member: fmt.Sprintf("%06d", n)}
}

func says(data string, ttl time.Duration, ends ...string) roster.Update {
	u := roster.Update{Data: []byte(data), TTL: ttl}
	for _, e := range ends {
		u.Endpoints = append(u.Endpoints, []byte(e))
	}
	return u
}

func put(t *testing.T, s discovery.Store, p discovery.Place, u roster.Update) {
	t.Helper()
	if err := s.Update(t.Context(), p, u); err != nil {
		t.Fatal(err)
	}
}

// told is what a watcher was told since the last call.
func toldOf(t *testing.T, w *discovery.Watcher) (out []string) {
	t.Helper()
	synctest.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	changes, err := w.Next(ctx)
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	for _, l := range changes {
		out = append(out, fmt.Sprintf("%s %s %t", l.ID, l.Lease.Data, l.Lease.Listed()))
	}
	return out
}

// figure is the value of a metric, of one label's value where it has one.
func figure(t *testing.T, reg *prometheus.Registry, name, label string) float64 {
	t.Helper()
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range all {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("there is no %s of %q", name, label)
	return 0
}

// TestEtcdIsAwayForTenMinutes: what is known is served, whether etcd refuses
// connections or says nothing, and whether leases begin anew then or are over.
func TestEtcdIsAwayForTenMinutes(t *testing.T) {
	for name, c := range map[string]struct {
		go_, back func(f *fake)
		left      int // members afterwards
	}{
		"it is killed, and begins anew": {func(f *fake) { f.change(func() { f.refuses = true }) }, (*fake).restart, 3},
		"it stands still":               {func(f *fake) { f.change(func() { f.hangs = true }) }, func(f *fake) { f.change(func() { f.hangs = false }) }, 1},
		"it was cut off, and went on":   {func(f *fake) { f.change(func() { f.refuses = true }) }, func(f *fake) { f.change(func() { f.refuses = false }) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			simulated(t, func(t *testing.T, f *fake) {
				var log bytes.Buffer
				reg := prometheus.NewRegistry()
				b := discovery.NewBoard(discovery.Bounds{})
				var s *Store
				metrics := telemetry.NewDiscoveryStore(reg, func() telemetry.DiscoveryStoreState {
					state := s.State()
					return telemetry.DiscoveryStoreState{Settled: state.Settled, Degraded: state.Degraded != "", Since: float64(state.Since.Unix())}
				})
				s, stop := running(t, f, Config{Log: slog.New(slog.NewTextHandler(&log, nil)), Tell: metrics}, b)
				defer stop()
				put(t, s, member1(1), says("x", time.Minute, "e"))
				put(t, s, member1(1), says("x", 2*time.Minute)) // its endpoint ends before it
				put(t, s, member1(2), says("x", time.Minute))
				put(t, s, member1(3), says("x", 20*time.Minute))
				w := b.Watch(member1(1).Cluster)
				defer w.Close()
				c.go_(f)
				time.Sleep(discoveryStoreSilence + 2*discoveryStoreProbe)
				away := time.Now()
				for time.Since(away) < 10*time.Minute {
					begin := time.Now()
					if err := s.Update(t.Context(), member1(2), roster.Update{Data: []byte("y"), TTL: time.Minute}); !fault.Has(err, fault.CodeStoreAway) || fault.From(err).Next == "" {
						t.Fatalf("a write: %v", err)
					}
					if err := s.Delete(t.Context(), member1(2)); !fault.Has(err, fault.CodeStoreAway) || !time.Now().Equal(begin) {
						t.Fatalf("a removal: %v after %v", err, time.Since(begin))
					}
					if n := len(b.List(member1(1).Cluster)); n != 3 || len(b.Get(member1(1)).Endpoints) != 1 {
						t.Fatalf("%v later %d members and %d endpoints are served", time.Since(away), n, len(b.Get(member1(1)).Endpoints))
					}
					if state := s.State(); state.Degraded == "" || !state.Closed || state.Since.After(away) {
						t.Fatalf("%+v", state)
					}
					time.Sleep(10 * time.Second)
				}
				if got := toldOf(t, w); got != nil {
					t.Errorf("watchers were told %q", got)
				}
				if n := figure(t, reg, "tombolo_discovery_store_writes_total", string(fault.CodeStoreAway)); n != 120 {
					t.Errorf("%v writes were counted as refused", n)
				}
				if v := figure(t, reg, "tombolo_discovery_store_degraded", ""); v != 1 {
					t.Errorf("degraded is %v", v)
				}
				c.back(f)
				time.Sleep(discoveryStoreWait + 2*limit.DiscoveryStoreRetry)
				synctest.Wait()
				if state := s.State(); state.Degraded != "" || state.Closed || !state.Since.IsZero() {
					t.Fatalf("%+v", state)
				}
				if n := len(b.List(member1(1).Cluster)); n != c.left || len(toldOf(t, w)) < 3-c.left {
					t.Errorf("%d members are left, not %d", n, c.left)
				}
				put(t, s, member1(2), says("y", time.Minute))
				for _, line := range []string{"etcd cannot be used: what is known is served", "etcd can be used again"} {
					if n := strings.Count(log.String(), line); n != 1 {
						t.Errorf("%q is logged %d times: %s", line, n, log.String())
					}
				}
			})
		})
	}
}

// TestAQuietEtcdIsNotAway: nothing happens for an hour, and nothing is read anew.
func TestAQuietEtcdIsNotAway(t *testing.T) {
	simulated(t, func(t *testing.T, f *fake) {
		b := discovery.NewBoard(discovery.Bounds{})
		s, stop := running(t, f, Config{}, b)
		defer stop()
		before := f.pages
		for range 3600 {
			time.Sleep(time.Second)
			if state := s.State(); state.Degraded != "" {
				t.Fatal(state.Degraded)
			}
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.pages != before {
			t.Errorf("etcd was listed %d times", f.pages-before)
		}
	})
}

// TestEtcdHasGoneBack: what etcd had said is not so any more. It is said, nothing
// is taken from the board, and nothing is written.
func TestEtcdHasGoneBack(t *testing.T) {
	remove := func(f *fake, keys ...string) {
		for _, k := range keys {
			f.state.rev++
			f.set(prefix+"/"+k, nil, 0)
		}
	}
	for name, c := range map[string]struct {
		happens func(f *fake, before fakeState)
		says    string
		stays   bool // until the service is restarted
		unseen  bool // no connection breaks: the client began the watch anew by itself
	}{
		"a backup is restored":         {func(f *fake, before fakeState) { f.state = before }, "older state", true, false},
		"a backup is restored at once": {func(f *fake, before fakeState) { f.state = before }, "older state", true, true},
		"a backup is restored, and others write": {func(f *fake, before fakeState) {
			f.state = before
			f.state.rev += 1000
		}, "older state", true, false},
		"it is another one": {func(f *fake, _ fakeState) { f.state.cluster++ }, "another one", false, true},
		"it was emptied": {func(f *fake, _ fakeState) {
			f.state.keys = map[string]pair{}
			f.state.rev++
		}, "forgotten", false, false},
		"its marker is gone": {func(f *fake, _ fakeState) { remove(f, markerName) }, "forgotten", false, false},
		"it was emptied and begun anew": {func(f *fake, _ fakeState) {
			f.state.keys = map[string]pair{}
			f.state.rev++
			f.set(prefix+"/"+markerName, []byte(markerText+"1"), 0)
		}, "older state", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			simulated(t, func(t *testing.T, f *fake) {
				b := discovery.NewBoard(discovery.Bounds{})
				s, stop := running(t, f, Config{}, b)
				put(t, s, member1(1), says("x", 10*time.Minute))
				put(t, s, member1(2), says("x", 10*time.Minute))
				before := f.backup()
				put(t, s, member1(1), says("y", 10*time.Minute))
				put(t, s, member1(3), says("y", 10*time.Minute))
				w := b.Watch(member1(1).Cluster)
				defer w.Close()
				good := f.backup()
				f.change(func() { f.refuses = !c.unseen })
				time.Sleep(5 * time.Second)
				f.change(func() { c.happens(f, before); f.refuses = false })
				after := f.backup()
				time.Sleep(time.Minute)
				if state := s.State(); !strings.Contains(state.Degraded, c.says) {
					t.Errorf("%+v", state)
				}
				if err := s.Update(t.Context(), member1(4), roster.Update{Data: []byte("x"), TTL: time.Minute}); !fault.Has(err, fault.CodeStoreAway) || fault.From(err).Next == "" {
					t.Errorf("a write: %v", err)
				}
				if n, got := len(b.List(member1(1).Cluster)), toldOf(t, w); n != 3 || got != nil {
					t.Errorf("%d members of 3 are served; watchers were told %q", n, got)
				}
				for k, p := range f.backup().keys {
					if is := after.keys[k]; is.rev != p.rev && !strings.HasSuffix(k, partName) {
						t.Errorf("%s was written", k)
					}
				}
				f.change(func() { f.state = good })
				time.Sleep(time.Minute)
				if state := s.State(); (state.Degraded != "") != c.stays {
					t.Errorf("when it is itself again: %+v", state)
				}
				stop()
				f.change(func() { c.happens(f, before) })
				if name == "its marker is gone" { // members of nobody
					return
				}
				s, stop = running(t, f, Config{}, discovery.NewBoard(discovery.Bounds{}))
				defer stop()
				if state := s.State(); state.Degraded != "" {
					t.Errorf("after a restart: %+v", state)
				}
			})
		})
	}
}

// TestWhoBeginsWithoutAllAwaitsMembers: after a prefix was begun, or etcd had gone back.
func TestWhoBeginsWithoutAllAwaitsMembers(t *testing.T) {
	simulated(t, func(t *testing.T, f *fake) {
		settled := func(want bool) (s *Store, stop func()) {
			t.Helper()
			s, stop = running(t, f, Config{Await: true}, discovery.NewBoard(discovery.Bounds{}))
			state := s.State()
			if state.Settled != want || !want && time.Until(state.Settles) != limit.DiscoverySettle {
				t.Errorf("%+v", state)
			}
			return s, stop
		}
		first, stop1 := settled(false)
		time.Sleep(limit.DiscoverySettle)
		if !first.State().Settled {
			t.Errorf("%+v", first.State())
		}
		_, stop2 := settled(false) // within the longest lease: members may still come
		stop2()
		time.Sleep(limit.DiscoveryTTL)
		before := f.backup()
		put(t, first, member1(1), says("x", time.Minute))
		_, stop3 := settled(true)
		stop3()
		f.change(func() { f.refuses = true })
		time.Sleep(5 * time.Second)
		f.change(func() { f.state, f.refuses = before, false })
		time.Sleep(5 * time.Second)
		stop1()
		_, stop4 := settled(false)
		stop4()
	})
}

// TestWhoBeginsWithNothingAwaitsNobody: in an empty prefix, unless it was emptied under a
// service.
func TestWhoBeginsWithNothingAwaitsNobody(t *testing.T) {
	simulated(t, func(t *testing.T, f *fake) {
		begin := func(want bool) (stop func()) {
			t.Helper()
			s, stop := running(t, f, Config{}, discovery.NewBoard(discovery.Bounds{}))
			if state := s.State(); state.Settled != want {
				t.Errorf("%+v", state)
			}
			return stop
		}
		first, second := begin(true), begin(true)
		second()
		f.change(func() {
			for key := range f.state.keys {
				f.state.rev++
				f.set(key, nil, 0)
			}
		})
		time.Sleep(time.Minute)
		if n := len(f.backup().leases); n > 1 {
			t.Errorf("%d leases are granted for one note", n)
		}
		first()
		begin(false)()
	})
}

// TestManyAreReadInPages: and asked about many at once, where it matters.
func TestManyAreReadInPages(t *testing.T) {
	simulated(t, func(t *testing.T, f *fake) {
		const members = 2*limit.DiscoveryStorePage + 500
		s, stop := running(t, f, Config{}, discovery.NewBoard(discovery.Bounds{}))
		for i := range members {
			put(t, s, member1(i), says("x", time.Minute, "e"))
			if i%2 == 0 {
				put(t, s, member1(i), says("x", 10*time.Minute))
			}
		}
		stop()
		time.Sleep(30 * time.Second)
		f.slow = 10 * time.Millisecond
		begin := time.Now()
		f.pages = 0
		b := discovery.NewBoard(discovery.Bounds{})
		_, stop = running(t, f, Config{}, b)
		defer stop()
		rounds := (members/2 + discoveryStoreAsks - 1) / discoveryStoreAsks
		if took := time.Since(begin); took != time.Duration(rounds)*f.slow {
			t.Errorf("%d questions took %v", members/2, took)
		}
		if n := len(b.List(member1(0).Cluster)); n != members || f.pages != 3 {
			t.Errorf("%d members of %d in %d pages", n, members, f.pages)
		}
		time.Sleep(29 * time.Second)
		synctest.Wait()
		if n := len(b.Get(member1(0)).Endpoints); n != 1 {
			t.Errorf("%d endpoints before their end", n)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if n := len(b.Get(member1(0)).Endpoints); n != 0 || b.Get(member1(1)).Exists() {
			t.Errorf("%d endpoints after their end; the member whose lease is over: %t", n, b.Get(member1(1)).Exists())
		}
	})
}
