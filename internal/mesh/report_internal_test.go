// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/mesh/endpoint"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/peering"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

func TestAPeerAsItIsShown(t *testing.T) {
	six, four := netip.MustParseAddr("fd00::b"), netip.MustParseAddr("100.112.0.2")
	whole, host := netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("10.9.9.9/32")
	planned := topology.Peer{ID: "id-b", Node: "b", Key: member.Key{1}, Pin: member.Pin{1}, Engine: member.IPsec, Overlay6: six, Overlay4: four,
		Allowed: []netip.Prefix{netip.PrefixFrom(six, 128), whole, host, netip.PrefixFrom(four, 32)}}
	at := path.Path{Addr: netip.MustParseAddrPort("192.0.2.2:51820")}
	since := time.Unix(1_800_000_000, 0)
	direct := peering.Report{ID: "id-b", Handshake: since, Sent: 1, Received: 2, Report: path.Report{State: path.Direct, Path: at, Since: since, Trip: 1500 * time.Microsecond, Size: 1400,
		Candidates: []path.Tried{
			{Path: at, Kind: path.Own, Near: true, Sent: 3, Answers: 2, Trip: time.Millisecond},
			{Path: path.Path{Relay: "h1"}, Sent: 1, Why: "a direct path is better"},
		}}}
	base := Peer{ID: "id-b", Node: "b", PublicKey: "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", Pin: "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", Engine: "ipsec", Overlay6: six, Overlay4: four, Ranges: []netip.Prefix{whole, host}}
	for name, c := range map[string]struct {
		member *roster.Member
		report peering.Report
		want   func(*Peer)
	}{
		"heard of just now": {nil, peering.Report{}, func(p *Peer) { p.State, p.Why = "down", "it has only just become known" }},
		"direct": {&roster.Member{Facts: member.Facts{Mesh: 1}}, direct, func(p *Peer) {
			p.State, p.Path, p.Since, p.RTT, p.MTU, p.Handshake, p.Sent, p.Received, p.Probes = "direct", "192.0.2.2:51820", since, 1.5, 1400, since, 1, 2, true
			p.Candidates = []Candidate{{At: "192.0.2.2:51820", Kind: "own", Near: true, Sent: 3, Answers: 2, RTT: 1}, {At: "relay h1", Sent: 1, Why: "a direct path is better"}}
		}},
		"stale": {&roster.Member{Stale: true}, peering.Report{Report: path.Report{State: path.Relayed, Path: path.Path{Relay: "h1"}, Why: "no candidate answers"}},
			func(p *Peer) { p.State, p.Path, p.Why, p.Stale = "relayed", "relay h1", "no candidate answers", true }},
		"the kernel refuses": {nil, peering.Report{Report: path.Report{State: path.Direct}, Unsent: errors.New("operation not permitted")},
			func(p *Peer) { p.State, p.Unsent = "direct", "operation not permitted" }},
		"refused": {&roster.Member{}, peering.Report{Report: path.Report{State: path.Idle}, Problem: errors.New("its key is ours")},
			func(p *Peer) { p.State, p.Why = "down", "its key is ours" }},
	} {
		want := base
		c.want(&want)
		if got := peerOf(planned, c.member, c.report); !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n%+v, want\n%+v", name, got, want)
		}
	}
}

func TestAPeerByItsNames(t *testing.T) {
	s := Status{Node: "a", Peers: []Peer{
		{ID: "id-b", Node: "b", PublicKey: "KEYB", Overlay6: netip.MustParseAddr("fd00::b"), Overlay4: netip.MustParseAddr("100.112.0.2")},
		{ID: "id-c", Node: "c"},
	}}
	for name, want := range map[string]string{
		"b": "b", "id-b": "b", "KEYB": "b", "fd00::b": "b", "100.112.0.2": "b", "c": "c", "id-c": "c",
		"": "", "a": "", "B": "", "invalid IP": "", "0.0.0.0": "", "10.0.0.1": "",
	} {
		p, err := s.Peer(name)
		if p.Node != want || (err == nil) != (want != "") {
			t.Errorf("%q is %q, %v", name, p.Node, err)
		}
		if f := fault.From(err); err != nil && (f.Code != fault.CodeNotFound || f.Next == "" || (f.Why != "") != (name == "a")) {
			t.Errorf("%q: %s", name, f.Explain())
		}
	}
}

func TestServersInTheirOrder(t *testing.T) {
	got := serversOf([]string{"stun:3478"}, []string{"hub:443"}, []endpoint.Server{{Name: "svc", HostPort: "svc:443"}})
	want := []endpoint.Server{{Name: "stun:3478", HostPort: "stun:3478"}, {Name: "hub hub:443", HostPort: "hub:443"}, {Name: "svc", HostPort: "svc:443"}}
	if !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

// TestWhatIsNewIsAnnounced, with its proof, and once; and that it is not shows in the status until
// it is.
func TestWhatIsNewIsAnnounced(t *testing.T) {
	m, k := newRoom(t, t.TempDir(), nil)
	k.refuses = errors.New("no room for it")
	turn(m, seen(m, k, roster.Result{}), time.Now())
	if s := k.last(t); s.Node != "a" || s.Key != k.now[0] {
		t.Errorf("announced is %+v", s)
	}
	if w := m.Status().Warnings; len(w) != 1 || w[0] != "no room for it" {
		t.Errorf("the status warns of %q", w)
	}
	k.refuses = nil
	turn(m, seen(m, k, roster.Result{}), time.Now())
	if w := m.Status().Warnings; len(w) != 0 || len(k.said) != 2 {
		t.Errorf("the status warns of %q, after %d announcements", w, len(k.said))
	}
	turn(m, seen(m, k, roster.Result{}), time.Now())
	if len(k.said) != 2 {
		t.Error("what is nothing new is announced")
	}
	look := seen(m, k, roster.Result{})
	look.world.addresses = []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	turn(m, look, time.Now())
	if s := k.last(t); len(k.said) != 3 || len(s.Addresses) != 1 {
		t.Errorf("announced is %+v", s)
	}
}
