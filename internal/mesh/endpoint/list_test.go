// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/mesh/nat"
)

func at(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }
func ip(s string) netip.Addr     { return netip.MustParseAddr(s) }

func both(netip.Addr) bool { return true }

func texts(list []Endpoint) []string {
	var out []string
	for _, e := range list {
		out = append(out, string(e.Kind)+" "+e.At.String())
	}
	return out
}

func mapped(list ...string) (out []nat.Mapped) {
	for _, s := range list {
		out = append(out, nat.Mapped{Addr: at(s)})
	}
	return out
}

func TestList(t *testing.T) {
	for name, c := range map[string]struct {
		s       sight
		want    []string
		refused int
	}{
		"nothing": {s: sight{has: both}},
		"all kinds, in order": {
			s: sight{port: 51820, static: []netip.AddrPort{at("203.0.113.9:443")}, own: []netip.Addr{ip("2001:db8::1"), ip("192.168.1.2")},
				mapped: mapped("198.51.100.1:1024"), router: at("198.51.100.1:51820"), has: both},
			want: []string{"static 203.0.113.9:443", "own [2001:db8::1]:51820", "own 192.168.1.2:51820", "mapped 198.51.100.1:1024", "portmap 198.51.100.1:51820"},
		},
		"without NAT what is mapped is our own": {
			s:    sight{port: 51820, own: []netip.Addr{ip("203.0.113.1")}, mapped: mapped("203.0.113.1:51820"), has: both},
			want: []string{"own 203.0.113.1:51820"},
		},
		"a router's port that STUN sees too is there once": {
			s:    sight{port: 1, mapped: mapped("198.51.100.1:51820"), router: at("198.51.100.1:51820"), has: both},
			want: []string{"mapped 198.51.100.1:51820"},
		},
		"which was seen last is no news": {
			s:    sight{mapped: mapped("198.51.100.1:9", "198.51.100.1:8"), has: both},
			want: []string{"mapped 198.51.100.1:8", "mapped 198.51.100.1:9"},
		},
		"IPv4 in the clothes of IPv6": {
			s:    sight{static: []netip.AddrPort{at("[::ffff:203.0.113.9]:443"), at("203.0.113.9:443")}, has: both},
			want: []string{"static 203.0.113.9:443"},
		},
		"a family without a socket": {
			s:    sight{port: 5, own: []netip.Addr{ip("2001:db8::1"), ip("192.168.1.2")}, has: netip.Addr.Is4},
			want: []string{"own 192.168.1.2:5"},
		},
		"of the mesh, whoever says it": {
			s: sight{port: 5, static: []netip.AddrPort{at("100.112.0.1:5")}, own: []netip.Addr{ip("100.112.0.2")}, mapped: mapped("100.112.0.3:5"), router: at("100.112.0.4:5"),
				overlay: []netip.Prefix{netip.MustParsePrefix("100.112.0.0/12")}, has: both},
			refused: 4,
		},
		"what nobody can reach": {
			s: sight{port: 5, static: []netip.AddrPort{at("0.0.0.0:5"), at("255.255.255.255:5"), at("224.0.0.1:5"), at("[fe80::1%eth0]:5"), at("169.254.0.1:5"), at("127.0.0.1:5"),
				at("203.0.113.1:0"), {}}, mapped: mapped("127.0.0.1:5"), has: both},
			refused: 9,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, refused := c.s.list()
			if !slices.Equal(texts(got), c.want) || len(refused) != c.refused {
				t.Errorf("%q, refused %+v; want %q and %d", texts(got), refused, c.want, c.refused)
			}
		})
	}
}

// TestListIsBounded: 32 own ones, 64 in all, and what is mapped is never cut off.
func TestListIsBounded(t *testing.T) {
	s := sight{port: 5, mapped: mapped("198.51.100.1:7"), router: at("198.51.100.1:8"), has: both}
	for i := range 100 {
		s.own = append(s.own, netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}))
	}
	list, _ := s.list()
	if len(list) != limit.LocalAddresses+2 {
		t.Errorf("%d", len(list))
	}
	for i := range 100 {
		s.static = append(s.static, netip.AddrPortFrom(ip("203.0.113.200"), uint16(i+1)))
	}
	list, _ = s.list()
	if n := len(list); n != limit.DiscoveryEndpoints || list[n-2].At != at("198.51.100.1:7") || list[n-1].At != at("198.51.100.1:8") {
		t.Errorf("%q", texts(list))
	}
}

func TestArrange(t *testing.T) {
	names := map[string]found{
		"hub.example":  {addrs: []netip.Addr{ip("198.51.100.1"), ip("198.51.100.2"), ip("2001:db8::1"), ip("2001:db8::2")}},
		"many.example": {}, "six.example": {addrs: []netip.Addr{ip("2001:db8::6")}},
		"evil.example": {addrs: []netip.Addr{ip("127.0.0.1"), ip("0.0.0.0"), ip("100.112.0.9"), ip("fe80::1")}},
	}
	for i := range 40 {
		names["many.example"] = found{addrs: append(names["many.example"].addrs, netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}))}
	}
	overlay := []netip.Prefix{netip.MustParsePrefix("100.112.0.0/12")}
	ok := func(a netip.AddrPort) bool { return useless(a, overlay) == "" }
	for name, c := range map[string]struct {
		texts []Server
		ok    func(netip.AddrPort) bool
		want  []string
	}{
		"none":                    {want: nil},
		"addresses":               {texts: []Server{{"a", "198.51.100.1:443"}, {"b", "[2001:db8::9]:443"}}, want: []string{"a 198.51.100.1:443", "b [2001:db8::9]:443"}},
		"both families in turn":   {texts: []Server{{"h", "hub.example:1"}, {"a", "198.51.100.7:2"}}, want: []string{"h 198.51.100.1:1", "h [2001:db8::1]:1", "a 198.51.100.7:2", "h 198.51.100.2:1", "h [2001:db8::2]:1"}},
		"one twice":               {texts: []Server{{"a", "198.51.100.1:1"}, {"h", "hub.example:1"}}, want: []string{"a 198.51.100.1:1", "h [2001:db8::1]:1", "h 198.51.100.2:1", "h [2001:db8::2]:1"}},
		"a family without socket": {texts: []Server{{"h", "hub.example:1"}}, ok: func(a netip.AddrPort) bool { return a.Addr().Is6() }, want: []string{"h [2001:db8::1]:1", "h [2001:db8::2]:1"}},
		"not known":               {texts: []Server{{"x", "unknown.example:1"}}},
		"a name that lies":        {texts: []Server{{"e", "evil.example:1"}}},
		"junk":                    {texts: []Server{{"1", ""}, {"2", "a"}, {"3", ":1"}, {"4", "198.51.100.1:0"}, {"5", "198.51.100.1:65536"}, {"6", "198.51.100.1:x"}}},
		"of the mesh":             {texts: []Server{{"m", "100.112.0.1:443"}}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.ok == nil {
				c.ok = ok
			}
			got := arrange(c.texts, names, c.ok)
			var texts []string
			for _, s := range got {
				texts = append(texts, s.Name+" "+s.Addr.String())
			}
			if !slices.Equal(texts, c.want) || got == nil {
				t.Errorf("%q, want %q", texts, c.want)
			}
		})
	}
	got := arrange([]Server{{"many", "many.example:1"}, {"six", "six.example:1"}}, names, ok)
	if len(got) != limit.STUNServers || got[1].Name != "six" {
		t.Errorf("a name with many addresses crowds out others: %v", got)
	}
}

// TestGathering: what comes together is told once, and a flapping list no more often
// than others can bear.
func TestGathering(t *testing.T) {
	begin := time.Unix(1000, 0)
	list := func(n int) []Endpoint { return []Endpoint{{at(fmt.Sprintf("203.0.113.1:%d", n+1)), Mapped}} }
	type word struct {
		after time.Duration
		n     int
		tell  bool
	}
	const s, ms = time.Second, time.Millisecond
	for name, words := range map[string][]word{
		"once for what comes together": {{0, 1, false}, {100 * ms, 2, false}, {500 * ms, 3, true}, {600 * ms, 3, false}},
		"not for what goes back":       {{0, 1, false}, {100 * ms, 0, false}, {900 * ms, 0, false}},
		"the second one later":         {{0, 1, false}, {500 * ms, 1, true}, {1 * s, 2, false}, {3 * s, 2, false}, {5*s + 500*ms, 2, true}},
		"soon again after a quiet time": {{0, 1, false}, {500 * ms, 1, true}, {60 * s, 2, false}, {60*s + 499*ms, 2, false}, {60*s + 500*ms, 2,
			true}},
	} {
		t.Run(name, func(t *testing.T) {
			g := gathering{told: list(0)}
			for i, w := range words {
				if got := g.take(list(w.n), begin.Add(w.after)); got != w.tell {
					t.Errorf("word %d: %v", i, got)
				}
				if want := words[i].tell; want && !slices.Equal(g.told, list(w.n)) {
					t.Errorf("word %d: told %v", i, g.told)
				}
			}
		})
	}
	g, told := gathering{told: list(0)}, 0
	for i := range 6000 { // a minute of a list that is another one each time
		if g.take(list(i+1), begin.Add(time.Duration(i)*10*ms)) {
			told++
		}
	}
	if told < 10 || told > 13 {
		t.Errorf("told %d times in a minute", told)
	}
}
