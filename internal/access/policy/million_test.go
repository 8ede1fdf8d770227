// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/policy"
)

// randomRanges are half of IPv4 and half of IPv6, of the lengths that lists of
// sources have.
func randomRanges(n int) []string {
	rng := rand.New(rand.NewPCG(1, 2))
	out := make([]string, n)
	for i := range out {
		if i%2 == 0 {
			a := netip.AddrFrom4([4]byte{byte(1 + rng.IntN(100)), byte(rng.Uint32()), byte(rng.Uint32()), byte(rng.Uint32())})
			out[i] = netip.PrefixFrom(a, 20+rng.IntN(13)).Masked().String()
			continue
		}
		a := [16]byte{0x2a, byte(rng.Uint32()), byte(rng.Uint32()), byte(rng.Uint32()), byte(rng.Uint32()), byte(rng.Uint32())}
		out[i] = netip.PrefixFrom(netip.AddrFrom16(a), 32+rng.IntN(17)).Masked().String()
	}
	return out
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestMemoryOfManyRanges compiles destinations and sources of 200,000 ranges each.
func TestMemoryOfManyRanges(t *testing.T) {
	const n = 200_000
	for name, rule := range map[string]policy.Rule{
		"destinations": {Name: "r", Destination: []string{"@l:443"}},
		"sources":      {Name: "r", Source: []string{"@l"}, Destination: []string{"*"}},
	} {
		lists := []policy.List{{Name: "l", Ranges: randomRanges(n)}}
		before := heap()
		p, problems := policy.Compile([]policy.Rule{rule}, lists)
		if p == nil {
			t.Fatal(problems)
		}
		each := float64(heap()-before) / n
		t.Logf("%s: %.0f bytes for each range", name, each)
		if each > mostForARange {
			t.Errorf("%s: %.0f bytes for each range, at most %d are expected", name, each, mostForARange)
		}
		runtime.KeepAlive(lists)
		runtime.KeepAlive(p)
	}
}

// mostForARange bounds what a million ranges take: 200 MB at the hub. An agent's
// entry is a rule of its own that verdicts name, so it has more.
const (
	mostForARange  = 200
	mostForAnEntry = 500
)

// TestMemoryOfAnAgentsRanges compiles the list of an agent with 200,000 entries.
func TestMemoryOfAnAgentsRanges(t *testing.T) {
	const n = 200_000
	texts := randomRanges(n)
	before := heap()
	p, problems := policy.CompileAllow(texts)
	if len(problems) > 0 {
		t.Fatal(problems[0])
	}
	each := float64(heap()-before) / n
	t.Logf("%.0f bytes for each entry", each)
	if each > mostForAnEntry {
		t.Errorf("%.0f bytes for each entry, at most %d are expected", each, mostForAnEntry)
	}
	runtime.KeepAlive(texts)
	runtime.KeepAlive(p)
}

// TestMemoryOfRulesThatShareARange: what rules for the same destinations take grows
// with their number, not with its square.
func TestMemoryOfRulesThatShareARange(t *testing.T) {
	const n = 4000
	rules := make([]policy.Rule, n)
	for i := range rules {
		rules[i] = policy.Rule{Name: fmt.Sprintf("r%d", i), Caller: []string{fmt.Sprintf("unix:c%d/connect", i)}, Destination: []string{"10.0.0.0/8:443", "10.96.0.0/12"}}
	}
	before := heap()
	p, problems := policy.Compile(rules, nil)
	if p == nil {
		t.Fatal(problems)
	}
	each := float64(heap()-before) / n
	t.Logf("%.0f bytes for each rule", each)
	if each > 4000 {
		t.Errorf("%.0f bytes for each rule", each)
	}
	q := policy.Request{Caller: "unix:c3999/connect", Addr: netip.MustParseAddr("10.96.0.1"), Port: 80}
	if v := policy.Decide(q, p); v.Rule != "r3999" {
		t.Errorf("%+v", v)
	}
	runtime.KeepAlive(rules)
}

func TestDecideAllocatesNothing(t *testing.T) {
	p := read(t, rules, map[string]string{"office.txt": "203.0.113.0/24\n"})
	for _, text := range []string{"c1 - cluster 192.168.0.9:10250", "c1 unix:c1/connect - a.svc.cluster.local=172.16.0.1:443",
		"c9 - - 10.96.7.1:443", "c1 - cluster 192.0.2.1:1"} {
		q := ask(t, text)
		if n := testing.AllocsPerRun(100, func() { policy.Decide(q, p) }); n != 0 {
			t.Errorf("%s: %v allocations", text, n)
		}
	}
}

// BenchmarkDecideMany asks about an address in a list of so many ranges.
func BenchmarkDecideMany(b *testing.B) {
	for _, n := range []int{1000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			ranges := randomRanges(n)
			p, problems := policy.Compile([]policy.Rule{{Name: "r", Destination: []string{"@l:443"}}}, []policy.List{{Name: "l", Ranges: ranges}})
			if p == nil {
				b.Fatal(problems)
			}
			rng := rand.New(rand.NewPCG(3, 4))
			qs := make([]policy.Request, 1024)
			for i := range qs {
				qs[i] = policy.Request{Cluster: "c", Addr: netip.MustParsePrefix(ranges[rng.IntN(n)]).Addr(), Port: 443}
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if v := policy.Decide(qs[i%len(qs)], p); !v.Allow {
					b.Fatal(v.Why())
				}
				i++
			}
		})
	}
}
