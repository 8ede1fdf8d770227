// SPDX-License-Identifier: Apache-2.0

package roster

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
)

// Self is this node, as it announces itself.
type Self struct {
	Tier     Tier // in which ID is its id
	Facts    member.Facts
	Replaces string // id of the member, in that tier, whose place it has taken
}

// Rules are what an operator may choose of how sources are merged.
type Rules struct {
	// KeysFrom is the lowest tier that may give a key to a node that a higher one
	// names without. Zero: any.
	KeysFrom Tier
	// Endpoints bounds those of one member; zero: limit.RosterEndpoints.
	Endpoints int
}

// Result is what a node knows of all members.
type Result struct {
	Self      Member // this node, with what others say of where it may be reached
	Members   []Member
	Conflicts []Conflict
	// Stated is what others than this node itself say is behind it: the operator of this
	// machine in a file, or Kubernetes.
	Stated []Statement
	// Removed are the ids of members that have signed that they leave.
	Removed []string
}

// Claimant is one side of a conflict.
type Claimant struct {
	ID      string   `json:"id"`
	Tier    Tier     `json:"tier"`
	Sources []Source `json:"sources"`
}

// Conflict is a fact that two claim and only one can have.
type Conflict struct {
	Field   Field    `json:"field"`
	Value   string   `json:"value"`
	Kept    Claimant `json:"kept"`
	Refused Claimant `json:"refused"`
	Why     string   `json:"why"`
}

// Merge is what a node knows of the others when several sources speak of them.
// The result does not depend on the order of said.
//
//	said ─▶ entries (one of a tier and id) ─▶ groups (one of a node) ─▶ members
//	        newest version, succession         by key, then by name      what two claim is settled
func Merge(now time.Time, self Self, said []Said, rules Rules) Result {
	m := merging{self: self, rules: rules, keys: map[member.Key]*group{}, names: map[called]*group{}}
	if m.rules.Endpoints == 0 {
		m.rules.Endpoints = limit.RosterEndpoints
	}
	for _, e := range succeed(entries(now, said)) {
		if !m.own(e) {
			m.entries = append(m.entries, e)
		}
	}
	me := Said{Source: Source{Tier: self.Tier, Name: "self"}, Facts: self.Facts}
	m.entries = append(m.entries, &entry{tier: self.Tier, id: self.Facts.ID, said: []*Said{&me}, head: self.Facts,
		self: true})
	slices.SortFunc(m.entries, compareEntries)
	for _, e := range m.claimKeys() {
		m.place(e)
	}
	return m.result()
}

// entry is what is said in one tier under one id.
type entry struct {
	tier Tier
	id   string
	said []*Said // the first that states a fact counts
	head member.Facts
	dead bool // removed by its member
	self bool

	proven bool // the key of head is shown to be its own
	stale  bool // all that counts is
}

// entries gathers what still counts. Older versions of an entry no longer count, and stale or
// cached statements do not count against present ones. A statement without a version, such as a
// Node's annotations beside its object Member, is not an older one.
func entries(now time.Time, said []Said) []*entry {
	type name struct {
		tier Tier
		id   string
	}
	found := map[name]*entry{}
	var out []*entry
	for i := range said {
		s := &said[i]
		if s.over(now) || s.Removed && s.Source.Tier != TierNative {
			continue // that removal is not signed
		}
		at := name{s.Source.Tier, s.Facts.ID}
		if found[at] == nil {
			found[at] = &entry{tier: at.tier, id: at.id}
			out = append(out, found[at])
		}
		found[at].said = append(found[at].said, s)
	}
	all := rules()
	for _, e := range out {
		slices.SortFunc(e.said, compareSaid)
		first := e.said[0]
		known := e.said
		e.said = slices.DeleteFunc(slices.Clone(known), func(s *Said) bool {
			return s.Version != first.Version && s.Version != 0 || s.Source.Cached && !first.Source.Cached || s.Stale &&
				!first.Stale
		})
		if e.dead = slices.ContainsFunc(e.said, func(s *Said) bool { return s.Removed }); !e.dead {
			known = e.said // of one that is gone, all that was known says who it was
		}
		for _, r := range all {
			if i := slices.IndexFunc(known, func(s *Said) bool { return r.stated(&s.Facts) }); i >= 0 {
				r.take(&e.head, &known[i].Facts)
			}
		}
		e.stale = !slices.ContainsFunc(e.said, func(s *Said) bool { return !s.Stale })
		for _, s := range known {
			e.proven = e.proven || s.Proven && s.Facts.Key == e.head.Key
		}
	}
	return out
}

// succeed leaves out whom another one of the same tier has succeeded. Of a ring,
// which only a defect can sign, the smallest id stays.
func succeed(in []*entry) []*entry {
	next := map[Tier]map[string]string{}
	slices.SortFunc(in, compareEntries)
	for _, e := range in {
		for _, s := range e.said {
			if s.Replaces == "" || s.Replaces == e.id {
				continue
			}
			if next[e.tier] == nil {
				next[e.tier] = map[string]string{}
			}
			if _, taken := next[e.tier][s.Replaces]; !taken {
				next[e.tier][s.Replaces] = e.id
			}
		}
	}
	leads := map[Tier]map[string]bool{}
	for tier, ids := range next {
		leads[tier] = leaders(ids)
	}
	return slices.DeleteFunc(in, func(e *entry) bool {
		_, replaced := next[e.tier][e.id]
		return replaced && !leads[e.tier][e.id]
	})
}

// leaders are the smallest ids of the rings of successions. Each id is looked at
// once, however long a signed chain is.
func leaders(next map[string]string) map[string]bool {
	out := map[string]bool{}
	walk := make(map[string]int, len(next)) // in which walk an id was met first
	n := 0
	for begin := range next {
		n++
		at, ok := begin, true
		for ok && walk[at] == 0 {
			walk[at] = n
			at, ok = next[at]
		}
		if !ok || walk[at] != n {
			continue // the end of a chain, or what another walk has seen
		}
		least := at
		for id := next[at]; id != at; id = next[id] {
			least = min(least, id)
		}
		out[least] = true
	}
	return out
}

// compareEntries is the order in which entries are placed, and which of two keeps what both
// claim. It knows neither leases, versions nor what was heard first, so that all nodes with
// the same entries come to the same.
func compareEntries(a, b *entry) int {
	return cmp.Or(cmp.Compare(b.tier, a.tier), compareBool(a.dead, b.dead), strings.Compare(a.id, b.id),
		compareBool(b.self, a.self))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

func (e *entry) claimant() Claimant {
	c := Claimant{ID: e.id, Tier: e.tier}
	for _, s := range e.said {
		c.Sources = append(c.Sources, s.Source)
	}
	c.Sources = sourcesOf(c.Sources)
	return c
}

// group is the entries of one node.
type group struct {
	entries []*entry
	ids     member.Facts // the first stated key, node and nodename
	keyTier Tier
	dead    bool
	self    bool
	lost    []Field // claimed by another member, which has it
}

type merging struct {
	self      Self
	rules     Rules
	entries   []*entry
	mine      []*entry // of this node, as others see it
	groups    []*group
	keys      map[member.Key]*group
	names     map[called]*group
	conflicts []Conflict
}

// own takes what speaks of this node itself: it is never a peer.
func (m *merging) own(e *entry) bool {
	me := m.self.Facts
	byID := e.tier == m.self.Tier && e.id == me.ID
	byKey := e.head.Key != (member.Key{}) && e.head.Key == me.Key
	self := Claimant{ID: me.ID, Tier: m.self.Tier, Sources: []Source{{Tier: m.self.Tier, Name: "self"}}}
	switch {
	case e.tier == m.self.Tier && e.id == m.self.Replaces && e.id != "":
		return true // what this node was before counts no more than that of others
	case !byID && !byKey:
		return false
	case e.dead:
	case byID && !byKey && e.head.Key != (member.Key{}):
		m.conflicts = append(m.conflicts, Conflict{FieldID, me.ID, self, e.claimant(),
			"the id is this node's, and has another key"})
	case byKey && !byID && e.tier == m.self.Tier:
		m.conflicts = append(m.conflicts, Conflict{FieldKey, e.head.Key.String(), self, e.claimant(),
			"the key is this node's"})
	default:
		m.mine = append(m.mine, e)
	}
	return true
}

// place finds the node of an entry. What a higher tier has linked stays so.
func (m *merging) place(e *entry) {
	if g := m.byKey(e.head.Key); g != nil && !(g.dead && !g.silences(e)) {
		if other := g.of(e.tier); other != nil && !e.dead && !g.dead {
			m.refuse(e, other, FieldKey, e.head.Key.String(), "one key, two members: the smaller id has it")
			return
		}
		m.join(g, e)
		return
	}
	g, field := m.byName(e)
	if g != nil && g.dead && !g.silences(e) {
		m.found(e)
		return
	}
	differ := g != nil && g.ids.Key != (member.Key{}) && e.head.Key != (member.Key{})
	switch {
	case g == nil, g.dead && differ, e.dead && differ, e.self && differ:
		m.found(e)
	case differ && g.keyTier > e.tier:
		m.refuse(e, g.keyed(), FieldKey, e.head.Key.String(), "a higher tier gives "+string(field)+" another key")
	case differ, !g.dead && !e.dead && g.of(e.tier) != nil:
		m.found(e) // another member with the same name: settle says who has it
	case e.head.Key != (member.Key{}) && e.tier < m.rules.KeysFrom && !g.dead && !e.dead && g.ids.Key == (member.Key{}):
		m.refuse(e, g.entries[0], FieldKey, e.head.Key.String(),
			"the tier may not name the keys of nodes that a higher one names")
	default:
		m.join(g, e)
	}
}

func (m *merging) refuse(e, kept *entry, field Field, value, why string) {
	m.conflicts = append(m.conflicts, Conflict{field, value, kept.claimant(), e.claimant(), why})
}

func (m *merging) byKey(k member.Key) *group {
	if k == (member.Key{}) {
		return nil
	}
	return m.keys[k]
}

// byName finds the node of that name, one that is alive first.
func (m *merging) byName(e *entry) (*group, Field) {
	for _, dead := range []bool{false, true} {
		for _, n := range names(&e.head) {
			if g := m.names[called{n.field, n.text, dead}]; g != nil {
				return g, n.field
			}
		}
	}
	return nil, ""
}

// called is a name of a node, of one that is alive or gone.
type called struct {
	field Field
	text  string
	dead  bool
}

// names are those by which entries are linked, that which counts more first.
func names(f *member.Facts) []called {
	var out []called
	for _, n := range []called{{FieldNode, f.Node, false}, {FieldNodename, f.Nodename, false}} {
		if n.text != "" {
			out = append(out, n)
		}
	}
	return out
}

func (m *merging) found(e *entry) {
	g := &group{dead: e.dead}
	m.groups = append(m.groups, g)
	m.add(g, e)
}

// join adds an entry to its node. A removal says nothing against what its tier
// or a higher one still states, and silences the lower ones.
func (m *merging) join(g *group, e *entry) {
	if !e.dead && !g.dead {
		m.add(g, e)
	}
}

// add remembers under which key and names the node is found: those that its
// entries state first, unless another node was found under them before.
func (m *merging) add(g *group, e *entry) {
	g.entries = append(g.entries, e)
	g.self = g.self || e.self
	if g.ids.Key == (member.Key{}) && e.head.Key != (member.Key{}) {
		g.ids.Key, g.keyTier = e.head.Key, e.tier
	}
	g.ids.Node = cmp.Or(g.ids.Node, e.head.Node)
	g.ids.Nodename = cmp.Or(g.ids.Nodename, e.head.Nodename)
	// who is not silenced by a removal has the key
	if k := g.ids.Key; k != (member.Key{}) && (m.keys[k] == nil || m.keys[k].dead) {
		m.keys[k] = g
	}
	for _, n := range names(&g.ids) {
		if n.dead = g.dead; m.names[n] == nil {
			m.names[n] = g
		}
	}
}

// of gives the entry of a tier; self stands beside those of its tier.
func (g *group) of(t Tier) *entry {
	i := slices.IndexFunc(g.entries, func(e *entry) bool { return e.tier == t })
	if i < 0 {
		return nil
	}
	return g.entries[i]
}

// keyed gives the entry that states the key.
func (g *group) keyed() *entry {
	return g.entries[slices.IndexFunc(g.entries, func(e *entry) bool { return e.head.Key == g.ids.Key })]
}
