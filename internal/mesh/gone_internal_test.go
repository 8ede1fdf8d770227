// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// TestAPeerThatIsGoneIsTold: whatever takes a peer out of the plan, the log has its name and the reason.
func TestAPeerThatIsGoneIsTold(t *testing.T) {
	b := roster.Member{Facts: member.Facts{ID: "b", Node: "nb", Key: member.Key{1}}, Tier: roster.TierNative}
	with := func(change func(*roster.Member)) roster.Result {
		m := b
		change(&m)
		return roster.Result{Members: []roster.Member{m}}
	}
	lost := roster.Conflict{Field: roster.FieldKey, Kept: roster.Claimant{ID: "x"}, Refused: roster.Claimant{ID: "b"},
		Why: "one key, two members"}
	peers := topology.Peers{{ID: "b", Node: "nb", Key: b.Key}}
	for why, c := range map[string]struct {
		result roster.Result
		next   topology.Peers
	}{
		"":                             {with(func(*roster.Member) {}), peers},
		"no source states it any more": {roster.Result{}, nil},
		"it has said farewell":         {roster.Result{Removed: []string{"b"}}, nil},
		"it states no key any more":    {with(func(m *roster.Member) { m.Key = member.Key{} }), nil},
		"member x has the same key": {roster.Result{Members: []roster.Member{b,
			{Facts: member.Facts{ID: "x", Key: b.Key}}}}, nil},
		"its publicKey is that of member x: one key": {roster.Result{Conflicts: []roster.Conflict{lost}}, nil},
		"member c has taken its place": {with(func(m *roster.Member) {
			m.ID, m.Entries = "c", []roster.Entry{{ID: "c", Succeeds: "b"}}
		}), topology.Peers{{ID: "c", Node: "nb", Key: b.Key}}},
	} {
		m, k := newRoom(t, t.TempDir(), nil)
		turn(m, tunneled{peers}, time.Now())
		turn(m, seen(m, k, c.result), time.Now())
		do := turn(m, tunneled{c.next}, time.Now())
		said := ""
		for _, l := range do.log {
			if said += fmt.Sprint(l.text, l.attrs); l.level != slog.LevelInfo {
				t.Errorf("%q is of level %v", l.text, l.level)
			}
		}
		if told := strings.Contains(said, "a peer is gone") && strings.Contains(said, "nb"); told != (why != "") ||
			!strings.Contains(said, why) {
			t.Errorf("%q, want %q", said, why)
		}
	}
	m, _ := newRoom(t, t.TempDir(), nil)
	many := topology.Peers{}
	for i := range 2 * limit.RoutingTold {
		many = append(many, topology.Peer{ID: fmt.Sprint(i)})
	}
	turn(m, tunneled{many}, time.Now())
	if do := turn(m, tunneled{}, time.Now()); len(do.log) != limit.RoutingTold+1 {
		t.Errorf("of %d peers %d lines tell", len(many), len(do.log))
	}
}
