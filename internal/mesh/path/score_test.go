// SPDX-License-Identifier: Apache-2.0

package path_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/mesh/path"
)

// TestTheScore: by how much another candidate must be better before it takes over, as
// docs/reference/mesh.md has it.
func TestTheScore(t *testing.T) {
	const ms = time.Millisecond
	four, six := netip.MustParseAddrPort("192.0.2.9:1"), netip.MustParseAddrPort("[2001:db8::9]:1")
	always := func(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }
	for _, c := range []struct {
		name  string
		use   time.Duration
		other netip.AddrPort
		trip  func(n int) time.Duration // of its ping n
		takes bool
	}{
		{"a fifth less, and a little more", 20 * ms, four, always(15900 * time.Microsecond), true},
		{"less than a fifth less", 20 * ms, four, always(16500 * time.Microsecond), false},
		{"IPv6, as much less", 20 * ms, six, always(16500 * time.Microsecond), true},
		{"IPv6, a tenth less", 20 * ms, six, always(18500 * time.Microsecond), false},
		{"half, which is less than 1 ms", 1500 * time.Microsecond, four, always(700 * time.Microsecond), false},
		{"half, which is more than 1 ms", 2500 * time.Microsecond, four, always(1200 * time.Microsecond), true},
		{"half now and then", 20 * ms, four, func(n int) time.Duration { return (30 - 20*time.Duration(n%2)) * ms }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			use := netip.MustParseAddrPort("192.0.2.1:1")
			now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
			id := uint64(0)
			p := path.New(func() uint64 { id++; return id })
			facts := path.Facts{Probes: true, Candidates: []path.Candidate{{Addr: use, Kind: path.Own}}}
			p.Learn(now, facts)
			sent := 0
			for end := now.Add(10 * time.Minute); now.Before(end); now = now.Add(100 * ms) {
				p.Traffic(now)
				sends, _ := p.Next(now)
				for _, s := range sends {
					trip := c.use
					if s.To.Addr == c.other {
						trip = c.trip(sent)
						sent++
					}
					p.Pong(now.Add(trip), s.To, s.Ping)
				}
				if p.Path().Direct() && len(facts.Candidates) == 1 { // the other one comes later
					facts.Candidates = append(facts.Candidates, path.Candidate{Addr: c.other, Kind: path.Own})
					p.Learn(now, facts)
				}
			}
			if took := p.Path().Addr == c.other; took != c.takes || sent < 10 {
				t.Errorf("it goes by %v after %d pings by the other one", p.Path(), sent)
			}
		})
	}
}
