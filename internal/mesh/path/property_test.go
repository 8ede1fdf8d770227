// SPDX-License-Identifier: Apache-2.0

package path_test

import (
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
)

// TestWhateverHappens: any events in any order, and a peer stays bounded, never
// uses a direct path that did not answer lately, and floods nobody.
func TestWhateverHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := uint64(0)
		p := path.New(func() uint64 { id++; return id })
		now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		answered := map[path.Path]time.Time{}
		open := map[uint64]path.Path{}
		sentAt := map[uint64]time.Time{}
		sent, began := 0, now
		addr := rapid.Custom(func(t *rapid.T) netip.AddrPort {
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(rapid.IntRange(1, 20).Draw(t, "host"))}), 1)
		})
		hub := rapid.SampledFrom([]string{"a", "b"})
		via := func(t *rapid.T) path.Path {
			if rapid.Bool().Draw(t, "relay") {
				return path.Path{Relay: hub.Draw(t, "hub")}
			}
			return path.Path{Addr: addr.Draw(t, "addr")}
		}
		restarts := 0
		p.Learn(now, path.Facts{Probes: true})
		var due time.Time // zero: nothing is
		look := func(t *rapid.T) {
			sends, next := p.Next(now)
			due = next
			for _, s := range sends {
				sent++
				if !s.Call() {
					open[s.Ping], sentAt[s.Ping] = s.To, now
				}
			}
			if !due.IsZero() && !due.After(now) {
				t.Fatal("it is due at once again")
			}
			if again, _ := p.Next(now); len(again) > 0 {
				t.Fatalf("asked twice it sends twice: %v, then %v; in use %v", sends, again, p.Path())
			}
			if w := p.Path(); w.Direct() && now.Sub(answered[w]) > 2*path.PathSpare+time.Minute {
				t.Fatalf("%v is in use and last answered at %v", w, answered[w])
			}
			if n := len(p.Report(now).Candidates); n > limit.PathCandidates+limit.PathHeard+path.PathRelays {
				t.Fatalf("%d paths are kept", n)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"learn": func(t *rapid.T) {
				f := path.Facts{Probes: true, Lazy: rapid.Bool().Draw(t, "lazy")}
				for _, at := range rapid.SliceOfN(addr, 0, 6).Draw(t, "candidates") {
					f.Candidates = append(f.Candidates, path.Candidate{Addr: at, Kind: path.Own})
				}
				f.Relays = rapid.SliceOfNDistinct(hub, 0, 2, rapid.ID[string]).Draw(t, "relays")
				p.Learn(now, f)
				restarts++
			},
			"traffic": func(t *rapid.T) { p.Traffic(now) },
			"moved":   func(t *rapid.T) { p.Moved(now); restarts++ },
			"heard":   func(t *rapid.T) { p.Heard(now, via(t), rapid.Bool().Draw(t, "wanted")); restarts++ },
			"called": func(t *rapid.T) {
				p.Called(now, rapid.SliceOfN(addr, 0, 5).Draw(t, "endpoints"))
				restarts++
			},
			"absent": func(t *rapid.T) { p.Absent(now, hub.Draw(t, "hub")) },
			"pong": func(t *rapid.T) {
				if id == 0 {
					t.Skip("nothing was sent")
				}
				n := rapid.Uint64Range(1, id).Draw(t, "id")
				w := open[n]
				if rapid.IntRange(0, 4).Draw(t, "strange") == 0 {
					w = via(t)
				}
				if p.Pong(now, w, n) {
					if w != open[n] {
						t.Fatalf("an answer by %v counted for a ping by %v", w, open[n])
					}
					answered[w] = now
					delete(open, n)
				}
			},
			"time": func(t *rapid.T) { // what is due meanwhile is done when it is due
				end := now.Add(time.Duration(rapid.Int64Range(0, int64(40*time.Second)).Draw(t, "time")))
				for !due.IsZero() && due.Before(end) {
					now = due
					look(t)
				}
				now = end
			},
			"": look,
		})
		// Each event may start a round at most; beyond that the schedules bound it.
		most := (restarts+2)*(1+20+2)*8 + int(now.Sub(began)/path.PathRetry+8)*30
		if sent > most {
			t.Fatalf("%d packets in %v after %d events", sent, now.Sub(began), restarts)
		}
	})
}
