// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/peering"
)

// TestWhatCarriesAPeer: exactly one engine, the same at both ends, but where one of them must not have WireGuard; and
// what carries a peer goes to that way alone.
func TestWhatCarriesAPeer(t *testing.T) {
	const wg, esp = member.WireGuard, member.IPsec
	for _, c := range []struct {
		own, peer member.Engine
		only      bool
		by        member.Engine
		why       string
		ways      string // the one that has the peer, of those that the node has
	}{
		{"", "", false, wg, "", "1 of 1"},
		{wg, "", false, wg, "", "1 of 1"},
		{wg, esp, false, wg, "it runs ipsec, and this node does not", "1 of 1"},
		{"", esp, true, wg, "it runs ipsec, and this node does not", "1 of 1"}, // without IPsec nothing is said by it
		{esp, esp, false, esp, "", "1 of 2"},
		{esp, esp, true, esp, "", "1 of 1"},
		{esp, "", false, wg, "it does not run ipsec", "2 of 2"},
		{esp, wg, false, wg, "it does not run ipsec", "2 of 2"},
		{esp, wg, true, wg, "", "1 of 1"},                        // which refuses it
		{esp, "of tomorrow", false, "of tomorrow", "", "1 of 2"}, // likewise
		{wg, "of tomorrow", false, "of tomorrow", "", "1 of 1"},
	} {
		what := fmt.Sprintf("%q to %q, only %v", c.own, c.peer, c.only)
		got := carry(c.own, c.peer, c.only)
		if got != (carried{c.by, c.why}) {
			t.Errorf("%s: %+v", what, got)
		}
		cfg := Config{Config: meshconf.Config{ESP: meshconf.ESP{Only: c.only}}, chosen: engineChoice{name: c.own.String()}}
		two := cfg.besides()
		ways := 1
		if two {
			ways = 2
		}
		var has []string
		for i := range ways {
			if !shareOf([]peering.Peer{{Engine: got.by}}, two, i > 0)[0].Elsewhere {
				has = append(has, fmt.Sprintf("%d of %d", i+1, ways))
			}
		}
		if strings.Join(has, ", ") != c.ways {
			t.Errorf("%s: %q, want %s", what, has, c.ways)
		}
		if back := carry(c.peer, c.own, false); !c.only && c.peer != "of tomorrow" && back.by != got.by {
			t.Errorf("%s: by %s, and back by %s", what, got.by, back.by)
		}
	}
}

// TestACarriedPeerIsExplained: which engine, why, and what may be wrong with one that runs IPsec and does not answer.
func TestACarriedPeerIsExplained(t *testing.T) {
	for _, c := range []struct {
		by         carried
		state      path.State
		why, shown string
	}{
		{carry(member.IPsec, member.IPsec, false), path.Down, "no answer", ""},
		{carry(member.IPsec, "", false), path.Direct, "", "engine: wireguard: it does not run ipsec\n"},
		{carry("", member.IPsec, false), path.Direct, "", "engine: wireguard: it runs ipsec, and this node does not\n"},
		{carry("", member.IPsec, false), path.Down, "no answer; it runs ipsec, and with mesh.ipsec.only no WireGuard beside it",
			"engine: wireguard: it runs ipsec, and this node does not\n"},
	} {
		p := Peer{State: string(c.state)}
		if c.state == path.Down {
			p.Why = "no answer"
		}
		if p.carried(c.by); p.Engine != c.by.by.String() || p.Why != c.why || p.explainEngine() != c.shown {
			t.Errorf("%+v: %q, %q", c.by, p.Why, p.explainEngine())
		}
	}
}
