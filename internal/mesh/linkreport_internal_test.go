// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/link/reach"
	"github.com/tombolo-io/tombolo/internal/link/report"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/peering"
	"github.com/tombolo-io/tombolo/internal/mesh/routing"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// reportOf is what a node of linkedView says of its peers.
func reportOf(self string) report.Facts {
	v, members := linkedView(self)
	v.Whole = true
	s := state{cfg: &Config{}, members: map[string]*roster.Member{}}
	s.linked = linked{}.look(v, members, nil, time.Unix(1000, 0))
	ways := map[string]peering.Report{}
	for _, m := range members {
		m.Endpoints = []member.Endpoint{{Addr: netip.MustParseAddrPort("198.51.100.1:51820")},
			{Addr: netip.MustParseAddrPort("127.0.0.1:1")}} // the latter is never tried
		s.members[m.ID] = &roster.Member{Facts: m}
		if m.Key != (member.Key{4}) || v.Self.Cluster == "west" { // a has no tunnel to what is behind gateways
			s.peers = append(s.peers, topology.Peer{ID: m.ID, Node: m.Node, Key: m.Key})
		}
		ways[m.ID] = peering.Report{ID: m.ID, Report: path.Report{State: path.Direct}}
	}
	return s.linkReport(routing.Status{InForce: true}, ways, nil)
}

func TestLinkReport(t *testing.T) {
	for self, want := range map[string][]string{ // parts of what there is
		"a": {"west.b 198.51.100.1:51820", "west.c 198.51.100.1:51820"},
		"b": {"east.a 198.51.100.1:51820", "own [10.2.2.0/24]", "own [10.2.3.0/24]"},
		"d": {"10.1.0.0/16"}, // by a gateway
	} {
		f := reportOf(self)
		var got []string
		for _, p := range f.Peers {
			if p.State != report.Up {
				t.Errorf("%s: %+v", self, p)
			}
			text := "own " + fmt.Sprint(p.Ranges)
			if p.Name != "" {
				text = p.Name
				for _, e := range p.Endpoints {
					text += " " + e.String()
				}
			}
			got = append(got, text)
		}
		if !f.Linked || !f.Whole || !f.InForce || len(f.Others) == 0 {
			t.Errorf("%s: %+v", self, f)
		}
		for _, part := range want {
			if !strings.Contains(strings.Join(got, ", "), part) {
				t.Errorf("%s has %q, and not %q", self, got, part)
			}
		}
	}
}

func TestWayOf(t *testing.T) {
	at := path.Path{Addr: netip.MustParseAddrPort("198.51.100.1:51820")}
	for want, r := range map[string]peering.Report{
		"up at 198.51.100.1:51820":           {Report: path.Report{State: path.Direct, Path: at}},
		"relayed by relay h1: none answers":  {Report: path.Report{State: path.Relayed, Path: path.Path{Relay: "h1"}, Why: "none answers"}},
		"unused no traffic":                  {Report: path.Report{State: path.Idle, Why: "no traffic"}},
		"down none answers":                  {Report: path.Report{State: path.Down, Why: "none answers"}},
		"down it has only just become known": {},
		"down no peer":                       {Problem: errors.New("no peer"), Report: path.Report{State: path.Direct}},
	} {
		state, reason := wayOf(r)
		if got := state + " " + reason; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	var s state
	s.cfg = &Config{}
	f := s.linkReport(routing.Status{Fault: fault.New(fault.CodeInternal, "the kernel is not read")}, nil, nil)
	if f.Linked || f.Whole || f.InForce || !strings.Contains(f.Why, "the kernel is not read") {
		t.Errorf("of a node of no linked cluster: %+v", f)
	}
}

// TestDoubled: a check names nodes of other clusters that do not count.
func TestDoubled(t *testing.T) {
	v := reach.View{Self: reach.Name{Cluster: "east", Node: "a"}, Nodes: []reach.Node{
		{Name: reach.Name{Cluster: "east", Node: "a"}, Doubled: "it counts here"},
		{Name: reach.Name{Cluster: "west", Node: "b"}}, {Name: reach.Name{Cluster: "west", Node: "c"}, Doubled: "it has a key"}}}
	if got := fmt.Sprint(doubled(v)); got != `[the ClusterNode "west.c" does not count: it has a key]` {
		t.Error(got)
	}
}
