// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/link/report"
)

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func ranges(texts ...string) (out []plan.Range) {
	for _, p := range prefixes(texts...) {
		out = append(out, plan.RangeOf(p))
	}
	return out
}

// facts are of a node with a tunnel to west.b, and a gateway of its own cluster by which it reaches the north.
func facts() report.Facts {
	return report.Facts{
		Linked: true, Link: "tombolo0", Table: 180, InForce: true,
		Others: prefixes("10.2.0.0/16", "10.3.0.0/16", "10.4.0.0/16", "fd02::/48"),
		Routed: ranges("10.2.0.0/16", "10.3.0.0/16", "fd02::/48"), // the last one is not accepted here
		Kept: []plan.Set{{Name: "linked4", Family: plan.IPv4, Ranges: ranges("10.2.0.0/15")},
			{Name: "linked6", Family: plan.IPv6, Ranges: ranges("fd02::/48")}},
		Peers: []report.Peer{
			{Name: "west.b", Key: member.Key{2}, State: report.Up, Reason: "at 198.51.100.2:51820", MTU: 1380,
				Endpoints: []netip.AddrPort{netip.MustParseAddrPort("198.51.100.2:51820"), netip.MustParseAddrPort("192.0.2.2:1")},
				Ranges:    prefixes("10.2.1.0/24", "10.2.0.0/16", "10.4.0.0/16"),
				Allowed:   prefixes("100.112.0.2/32", "10.2.0.0/17")},
			{Key: member.Key{3}, Overlay: [2]netip.Addr{netip.MustParseAddr("100.112.0.3"), netip.MustParseAddr("fd00::3")},
				Ranges: prefixes("10.1.3.0/24", "10.3.0.0/16", "fd02::/48"), Allowed: prefixes("10.1.3.0/24", "10.3.0.0/16", "fd02::/48")},
		},
	}
}

func TestSpec(t *testing.T) {
	s := report.Spec(facts())
	if len(s.Peers) != 1 || s.More != nil {
		t.Fatalf("%+v", s)
	}
	p := s.Peers[0]
	if p.Name != "west.b" || p.Engine != "wireguard" || p.PublicKey != (member.Key{2}).String() ||
		fmt.Sprint(p.Endpoints, p.Ranges, p.MoreRanges) != "[198.51.100.2:51820 192.0.2.2:1] [10.2.0.0/16 10.2.1.0/24] 0" {
		t.Errorf("%+v", p)
	}
	var got []string
	for _, r := range s.Routes {
		got = append(got, fmt.Sprint(r.CIDR, " ", r.Interface, " ", r.Via, " ", r.Closed, " ", r.Table, " ", r.MTU))
	}
	want := []string{
		"10.2.128.0/17 tombolo0  true 180 0", "10.2.0.0/16 tombolo0  false 180 1380", "10.2.1.0/24 tombolo0  false 180 1380",
		"10.3.0.0/16 tombolo0 100.112.0.3 false 180 0", "fd02::/48 tombolo0 fd00::3 false 180 0",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("routes\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if fmt.Sprint(s.IPsetsAvoidMasq) != "[{10.2.0.0/15 linked4} {fd02::/48 linked6}]" {
		t.Errorf("%v", s.IPsetsAvoidMasq)
	}
	if s := report.Spec(report.Facts{Linked: true}); len(s.Peers)+len(s.Routes)+len(s.IPsetsAvoidMasq) != 0 || s.More != nil {
		t.Errorf("of nothing: %+v", s)
	}
}

// TestBounds: a NodeConfig of a huge federation is counted, not written, and is far below what etcd takes.
func TestBounds(t *testing.T) {
	f := facts()
	f.Others, f.Peers, f.Kept[0].Ranges = prefixes("10.0.0.0/8"), nil, nil
	for i := range 5000 {
		p := report.Peer{Name: fmt.Sprintf("%s%04d.%s", strings.Repeat("c", 58), i, strings.Repeat("n", 100)), State: report.Unused,
			Reason: strings.Repeat("é", 300)}
		for j := range 20 {
			r := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(j * 4)}), 30)
			p.Ranges = append(p.Ranges, r)
			p.Endpoints = append(p.Endpoints, netip.MustParseAddrPort(fmt.Sprintf("[2001:db8::%d]:51820", j)))
		}
		p.Allowed = p.Ranges
		f.Peers = append(f.Peers, p)
		f.Kept[0].Ranges = append(f.Kept[0].Ranges, plan.RangeOf(p.Ranges[0]))
	}
	f.Peers[4990].State, f.InForce = report.Down, false
	for range 100 {
		f.Differs = append(f.Differs, plan.Step{Verb: plan.Add, On: plan.TableName(strings.Repeat("x", 600))})
	}
	s := report.Spec(f)
	if s.More == nil || len(s.Peers)+int(s.More.Peers) != 5000 || len(s.IPsetsAvoidMasq)+int(s.More.IPsetsAvoidMasq) != 5001 ||
		len(s.Routes) != 1024 || s.More.Routes == 0 {
		t.Fatalf("%d peers, %d routes, more %+v", len(s.Peers), len(s.Routes), s.More)
	}
	if p := s.Peers[0]; len(p.Ranges)+int(p.MoreRanges) != 20 || len(p.Endpoints) > 16 {
		t.Errorf("a peer has %d ranges and %d more", len(p.Ranges), p.MoreRanges)
	}
	has := report.Has(f, report.Status{}, 3, time.Unix(100, 0))
	down := 0
	for _, x := range has.Tunnels {
		if len(x.Reason) > 512 {
			t.Errorf("a reason has %d bytes", len(x.Reason))
		}
		if x.State == report.Down {
			down++
		}
	}
	if len(has.Tunnels) > objects.MostTunnels || len(has.Tunnels)+int(has.MoreTunnels) != 5000 || down != 1 {
		t.Errorf("%d tunnels, %d more, %d down", len(has.Tunnels), has.MoreTunnels, down)
	}
	if has.Differs != 100 || len(has.Differences) != objects.MostDifferences || len(has.Differences[0]) > 512 {
		t.Errorf("%d differ, %d shown", has.Differs, len(has.Differences))
	}
	for _, x := range []any{s, has} {
		if text, err := json.Marshal(x); err != nil || len(text) > 600<<10 {
			t.Errorf("%T has %d bytes, %v", x, len(text), err)
		}
	}
}

func TestHas(t *testing.T) {
	f := facts()
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600))
	first := report.Has(f, report.Status{}, 7, at)
	if len(first.Tunnels) != 1 || first.AppliedGeneration != 7 || first.Differs != 0 {
		t.Fatalf("%+v", first)
	}
	text, err := json.Marshal(first)
	if err != nil {
		t.Fatal(err)
	}
	var as objects.NodeConfigStatus // the kind's own
	if err := json.Unmarshal(text, &as); err != nil {
		t.Fatal(err)
	}
	if x := as.Tunnels[0]; x.Peer != "west.b" || x.State != objects.TunnelUp || x.Reason == "" || !x.Since.Time.Equal(at.Truncate(time.Second)) {
		t.Errorf("%s is read as %+v", text, as)
	}
	back, err := json.Marshal(as)
	if err != nil || string(back) != string(text) {
		t.Errorf("%s\n%s", text, back)
	}
	f.InForce, f.Why = false, "the kernel cannot be read"
	later := report.Has(f, first, 8, at.Add(time.Hour))
	if later.AppliedGeneration != 7 || later.Differs != 1 || fmt.Sprint(later.Differences) != "[the kernel cannot be read]" ||
		later.Tunnels[0].Since != first.Tunnels[0].Since {
		t.Errorf("%+v", later)
	}
	f.Peers[0].State = report.Down
	if down := report.Has(f, later, 8, at.Add(2*time.Hour)); !down.Tunnels[0].Since.Equal(at.Add(2 * time.Hour).Truncate(time.Second)) {
		t.Errorf("%+v", down)
	}
}

func TestNews(t *testing.T) {
	one := func(change func(*report.Status)) report.Status {
		s := report.Status{AppliedGeneration: 1, Tunnels: []report.Tunnel{{Peer: "a.b", State: report.Up, Reason: "x"}}}
		change(&s)
		return s
	}
	state := func(s string) func(*report.Status) { return func(x *report.Status) { x.Tunnels[0].State = s } }
	nothing := func(*report.Status) {}
	for name, c := range map[string]struct {
		before, now func(*report.Status)
		want        bool
	}{
		"nothing":            {nothing, nothing, false},
		"another reason":     {nothing, func(x *report.Status) { x.Tunnels[0].Reason = "no answer to 7 pings" }, false},
		"not used any more":  {nothing, state(report.Unused), false},
		"used":               {state(report.Unused), nothing, false},
		"down":               {nothing, state(report.Down), true},
		"down without use":   {state(report.Unused), state(report.Down), true},
		"up again":           {state(report.Down), nothing, true},
		"relayed":            {nothing, state(report.Relayed), true},
		"a newer plan":       {nothing, func(x *report.Status) { x.AppliedGeneration = 2 }, true},
		"something differs":  {nothing, func(x *report.Status) { x.Differs = 1 }, true},
		"another tunnel":     {nothing, func(x *report.Status) { x.Tunnels[0].Peer = "a.c" }, true},
		"no tunnel any more": {nothing, func(x *report.Status) { x.Tunnels = nil }, true},
		"another interface":  {nothing, func(x *report.Status) { x.NIC = &report.NIC{Interface: "eth1"} }, true},
		"fewer are shown":    {nothing, func(x *report.Status) { x.MoreTunnels = 1 }, true},
	} {
		if got := report.News(one(c.before), one(c.now)); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
