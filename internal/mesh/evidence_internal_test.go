// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// TestWhichClusterItIs: a start is refused where the others surely have another secret or name, unless this
// node was in that cluster before; where it may be so that is told, and the node comes up.
func TestWhichClusterItIs(t *testing.T) {
	const ours, second, theirs = "t1-ours", "t1-second", "t1-theirs"
	named, other := member.Overlay6("named"), member.Overlay6("another name")
	at := func(p netip.Prefix, node string) netip.Addr { return member.Address6(p, node) }
	under := func(node string, ids ...string) sighted { return sighted{name: node, under: ids} }
	opened := sighted{name: "b", opened: true}
	in := func(p netip.Prefix, guess bool) sighted {
		return sighted{name: "b", opened: true, six: at(p, "b"), guess: guess}
	}
	was := func(ids ...string) trace { return trace{Clusters: ids} }
	for name, c := range map[string]struct {
		e       evidence
		refused []string // codes and words, one of each fault
		doubts  []string
		alone   string
	}{
		// Nobody can tell these apart.
		"the first node, or a wrong secret at a discovery service": {evidence{}, nil, nil, "it cannot tell which"},
		"the same, and it was here before":                         {evidence{before: was(ours)}, nil, nil, "it cannot tell which"},
		"an outage":                                                {evidence{waiting: []string{"lab"}}, nil, nil, "not all sources have answered yet (lab); if they know no members, this is the first node"},
		"no source":                                                {evidence{nobody: true}, nil, nil, "no source of members is configured"},
		"a static peer":                                            {evidence{members: []sighted{{name: "b"}}}, nil, nil, ""},

		// The state directory.
		"it was of another cluster, and nobody is known":      {evidence{before: was(theirs)}, nil, []string{"secret_invalid: under another secret: " + theirs}, "it cannot tell which"},
		"it was of another cluster, and all sources are away": {evidence{before: was(theirs), waiting: []string{"lab"}}, nil, []string{"secret_invalid: under another secret"}, "not all"},
		"it was of another cluster, and others have this one": {evidence{before: was(theirs), members: []sighted{opened}}, nil, nil, ""},
		"it was of both in a rotation":                        {evidence{before: was(theirs, ours)}, nil, nil, "it cannot tell which"},

		// Kubernetes.
		"all others have another secret":       {evidence{members: []sighted{under("b", theirs), under("c", theirs)}}, []string{"secret_invalid: b has " + theirs + "; c has " + theirs}, nil, ""},
		"and this node had it":                 {evidence{before: was(theirs), members: []sighted{under("b", theirs)}}, []string{"secret_invalid: kubectl delete members"}, nil, ""},
		"and this node was here under its own": {evidence{before: was(ours), members: []sighted{under("b", theirs)}}, nil, []string{"secret_invalid: replaced there while this node was away"}, ""},
		"one in common":                        {evidence{secrets: []string{second, ours}, members: []sighted{under("b", ours, theirs)}}, nil, nil, ""},
		"some of the others":                   {evidence{members: []sighted{under("b", ours), under("c", theirs)}}, nil, []string{"secret_invalid: c has " + theirs}, ""},
		"a service knows one of ours":          {evidence{members: []sighted{opened, under("c", theirs)}}, nil, []string{"secret_invalid: there is no tunnel to them"}, ""},
		"more than are named":                  {evidence{members: slices.Repeat([]sighted{under("b", theirs)}, 11)}, []string{"secret_invalid: ; 3 more have others too"}, nil, ""},

		// The older protocol, where anybody may write who knows the id.
		"what nobody opens":             {evidence{id: "x", unopened: map[string]int{"talos": 2}}, nil, []string{"secret_invalid: 2 members of cluster.id \"x\""}, "it cannot tell which"},
		"what nobody opens, and others": {evidence{id: "x", unopened: map[string]int{"talos": 2}, members: []sighted{opened}}, nil, nil, ""},

		// cluster.id.
		"another id":                          {evidence{id: "named", named: named, members: []sighted{in(other, true)}}, []string{"mesh_cluster: overlay addresses of b are in " + other.String() + ";"}, nil, ""},
		"others have none":                    {evidence{id: "named", named: named, members: []sighted{in(member.Overlay6(ours), true)}}, []string{"mesh_cluster: the others have no cluster.id: leave it out"}, nil, ""},
		"the same id":                         {evidence{id: "named", named: named, members: []sighted{in(named, true)}}, nil, nil, ""},
		"one has it":                          {evidence{id: "named", named: named, members: []sighted{in(other, true), in(named, true)}}, nil, nil, ""},
		"as it ran before":                    {evidence{id: "named", named: named, before: trace{[]string{ours}, named}, members: []sighted{in(other, true)}}, nil, nil, ""},
		"it ran with another one before":      {evidence{id: "named", named: named, before: trace{[]string{ours}, other}, members: []sighted{in(other, true)}}, []string{"mesh_cluster: --leave"}, nil, ""},
		"addresses that operators chose":      {evidence{id: "named", named: named, members: []sighted{in(other, false)}}, nil, nil, ""},
		"no id here":                          {evidence{members: []sighted{in(other, true)}}, nil, nil, ""},
		"another id, and nobody is there yet": {evidence{id: "named", named: named}, nil, nil, "it cannot tell which"},
		"another id and another secret": {evidence{id: "named", named: named, members: []sighted{{name: "b", under: []string{theirs}, six: at(other, "b"), guess: true}}},
			[]string{"secret_invalid: b has", "mesh_cluster: it makes the prefix fd"}, nil, ""},
	} {
		if c.e.secrets == nil {
			c.e.secrets = []string{ours}
		}
		v := c.e.judge()
		for what, pair := range map[string]struct {
			got  []*fault.Fault
			want []string
		}{"refused": {v.refused, c.refused}, "doubts": {v.doubts, c.doubts}} {
			if len(pair.got) != len(pair.want) {
				t.Errorf("%s: %s %v, want %v", name, what, pair.got, pair.want)
				continue
			}
			for i, want := range pair.want {
				code, says, _ := strings.Cut(want, ": ")
				f := pair.got[i]
				if string(f.Code) != code || f.Next == "" || f.Why == "" || !strings.Contains(f.Explain(), strings.TrimPrefix(says, "under another secret: ")) {
					t.Errorf("%s: %s %s, want %s", name, what, f.Explain(), want)
				}
			}
		}
		if v.alone == "" != (c.alone == "") || !strings.Contains(v.alone, c.alone) {
			t.Errorf("%s: of who is alone is said %q, want %q", name, v.alone, c.alone)
		}
	}
}

// TestANodeWithoutSources: says that nobody can tell it of others, and not that it may be the first.
func TestANodeWithoutSources(t *testing.T) {
	m, _ := newRoom(t, t.TempDir(), func(c *Config) { c.Sourceless = true })
	s := m.Status()
	if !s.Sourceless || len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], "no source of members is configured") {
		t.Errorf("%v, %q", s.Sourceless, s.Warnings)
	}
	if v := m.state.Load().evidence(roster.Result{}, nil, true).judge(); v.alone != noSource {
		t.Errorf("the log says %q", v.alone)
	}
	m, _ = newRoom(t, t.TempDir(), nil)
	if s := m.Status(); s.Sourceless || len(s.Warnings) > 0 {
		t.Errorf("of one with sources: %q", s.Warnings)
	}
}

// TestWhoIsSighted: what a member says counts while it lives and has a key of its own.
func TestWhoIsSighted(t *testing.T) {
	p := member.Overlay6("x")
	eui, chosen := netip.MustParseAddr("fd7f:175a:b97c:5602:2c1a:b6ff:fe53:8169"), p.Addr().Next()
	hand := netip.MustParseAddr("fd00::7")
	entry := func(tier roster.Tier) []roster.Entry { return []roster.Entry{{Source: roster.Source{Tier: tier}}} }
	heard := func(tier roster.Tier, change func(*roster.Member)) roster.Member {
		m := roster.Member{Facts: member.Facts{ID: "id", Node: "b", Key: member.Key{7}}, Entries: entry(tier)}
		change(&m)
		return m
	}
	for name, c := range map[string]struct {
		m    roster.Member
		want *sighted
	}{
		"native":     {heard(roster.TierNative, func(*roster.Member) {}), &sighted{name: "b (id)", opened: true}},
		"older":      {heard(roster.TierOlder, func(m *roster.Member) { m.Overlay6 = eui }), &sighted{name: "b (id)", opened: true, six: eui}},
		"static":     {heard(roster.TierStatic, func(m *roster.Member) { m.Overlay6 = eui }), &sighted{name: "b (id)", six: eui, guess: true}},
		"Kubernetes": {heard(roster.TierKubernetes, func(m *roster.Member) { m.Clusters = []string{"c"} }), &sighted{name: "b (id)", under: []string{"c"}}},
		"of a name":  {heard(roster.TierNative, func(m *roster.Member) { m.Overlay6 = chosen }), &sighted{name: "b (id)", opened: true, six: chosen, guess: true}},
		"by hand":    {heard(roster.TierNative, func(m *roster.Member) { m.Overlay6 = hand }), &sighted{name: "b (id)", opened: true, six: hand}},
		"stale":      {heard(roster.TierNative, func(m *roster.Member) { m.Stale = true }), nil},
		"no key":     {heard(roster.TierNative, func(m *roster.Member) { m.Key = member.Key{} }), nil},
		"ourselves":  {heard(roster.TierKubernetes, func(m *roster.Member) { m.Key = member.Key{1} }), nil},
		"no name":    {heard(roster.TierNative, func(m *roster.Member) { m.Node = "" }), &sighted{name: "id", opened: true}},
	} {
		got := sightings([]roster.Member{c.m}, true, member.Key{1}, member.Key{})
		if c.want == nil {
			if len(got) > 0 {
				t.Errorf("%s: %+v", name, got)
			}
			continue
		}
		if len(got) != 1 || got[0].name != c.want.name || got[0].opened != c.want.opened || !slices.Equal(got[0].under, c.want.under) || got[0].six != c.want.six || got[0].guess != c.want.guess {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestTheTraceOfARun is read whatever node and secrets there are now; what is damaged is none.
func TestTheTraceOfARun(t *testing.T) {
	dir := t.TempDir()
	if got := readTrace(dir); len(got.Clusters) > 0 || got.Prefix.IsValid() {
		t.Errorf("without a file: %+v", got)
	}
	p := member.Overlay6("x")
	if err := (overlay{Clusters: []string{"a", "b"}, ID: "n", Prefix: p}).write(dir); err != nil {
		t.Fatal(err)
	}
	if got := readTrace(dir); !slices.Equal(got.Clusters, []string{"a", "b"}) || got.Prefix != p {
		t.Errorf("%+v", got)
	}
	if err := os.WriteFile(filepath.Join(dir, overlayFile), []byte(`{"clusters":["a"],"prefix":"x`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := readTrace(dir); len(got.Clusters) > 0 || got.Prefix.IsValid() {
		t.Errorf("of a torn file: %+v", got)
	}
}

// TestAStartThatIsSure: who is new, or was of another cluster, waits once to hear of the others; who was here
// comes up at once, whatever is said. A refusal leaves the state directory as it was.
func TestAStartThatIsSure(t *testing.T) {
	foreign := roster.Result{
		Self:    roster.Member{Facts: member.Facts{ID: "self"}},
		Members: []roster.Member{{Facts: member.Facts{ID: "b", Node: "b", Key: member.Key{7}, Clusters: []string{"t1-theirs"}}, Entries: []roster.Entry{{Source: roster.Source{Tier: roster.TierKubernetes}}}}},
	}
	alone := roster.Result{Self: foreign.Self}
	ours := keysFrom(t, "n").Cluster().String()
	for name, c := range map[string]struct {
		before  []string // secrets of an earlier run
		result  roster.Result
		refused fault.Code
		doubt   fault.Code
		waits   int
	}{
		"new, and alone":                     {nil, alone, "", "", 1},
		"new, and others have another":       {nil, foreign, fault.CodeSecret, "", 1},
		"was here, and others have another":  {[]string{ours}, foreign, "", fault.CodeSecret, 0},
		"was here, and alone":                {[]string{ours}, alone, "", "", 0},
		"was elsewhere, and alone":           {[]string{"t1-before"}, alone, "", fault.CodeSecret, 1},
		"was elsewhere, others have another": {[]string{"t1-before"}, foreign, fault.CodeSecret, "", 1},
	} {
		dir := t.TempDir()
		if c.before != nil {
			p := member.Overlay6(c.before[0])
			if err := (overlay{Clusters: c.before, ID: seal.MemberID{1}.String(), Prefix: p, Six: member.Address6(p, "a"), Four: netip.MustParseAddr("100.112.0.9")}).write(dir); err != nil {
				t.Fatal(err)
			}
		}
		had, _ := os.ReadFile(filepath.Join(dir, overlayFile))
		m, k := newRoom(t, dir, func(c *Config) { c.Keys = slices.All([]seal.Keys{keysFrom(t, "n")}) })
		k.result, k.waiting = c.result, []string{"a source that is away"}
		err := m.settle(t.Context())
		if c.refused == "" && err != nil || c.refused != "" && !fault.Has(err, c.refused) || k.awaited != c.waits {
			t.Errorf("%s: %v, after %d waits", name, err, k.awaited)
		}
		if now, _ := os.ReadFile(filepath.Join(dir, overlayFile)); c.refused != "" && string(now) != string(had) {
			t.Errorf("%s: the refusal has left %q of what was %q", name, now, had)
		}
		warnings := strings.Join(m.Status().Warnings, "\n")
		if told := strings.Contains(warnings, string(fault.CodeSecret)); told != (c.doubt != "") {
			t.Errorf("%s: the status warns %q", name, warnings)
		}
		if c.doubt == "" || c.refused != "" {
			continue
		}
		k.result.Members = []roster.Member{{Facts: member.Facts{ID: "c", Node: "c", Key: member.Key{8}}, Entries: []roster.Entry{{Source: roster.Source{Tier: roster.TierNative}}}}}
		if turn(m, seen(m, k, k.result), time.Now()); len(m.Status().Warnings) > 0 {
			t.Errorf("%s: a member of the cluster has come, and the status warns %q", name, m.Status().Warnings)
		}
	}
}

// TestPeersOfTheSameSecret: who says that it has another secret is no node with another cluster.id.
func TestPeersOfTheSameSecret(t *testing.T) {
	of := func(tier roster.Tier, ids ...string) *roster.Member {
		return &roster.Member{Facts: member.Facts{Clusters: ids}, Entries: []roster.Entry{{Source: roster.Source{Tier: tier}}}}
	}
	members := map[string]*roster.Member{
		"says nothing": of(roster.TierKubernetes), "ours": of(roster.TierKubernetes, "x", "ours"), "stranger": of(roster.TierKubernetes, "x"), "known to a service": of(roster.TierNative, "x"),
	}
	var peers topology.Peers
	for _, id := range []string{"says nothing", "ours", "stranger", "known to a service", "gone"} {
		peers = append(peers, topology.Peer{ID: id})
	}
	var got []string
	for _, p := range sameSecret(peers, members, []string{"ours"}) {
		got = append(got, p.ID)
	}
	if want := []string{"says nothing", "ours", "known to a service", "gone"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
