// SPDX-License-Identifier: Apache-2.0

package roster

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/member"
)

// Origin is where a node knows an endpoint from.
type Origin struct {
	Sources   []Source `json:"sources"`
	Observers []string `json:"observers,omitempty"` // ids of the members that saw it
}

// Entry is one source's entry of a member, for people.
type Entry struct {
	Source   Source    `json:"source"`
	ID       string    `json:"id"`
	Version  uint64    `json:"version,omitempty"`
	Until    time.Time `json:"until,omitzero"`
	Heard    time.Time `json:"heard,omitzero"`
	Stale    bool      `json:"stale,omitempty"`    // its lease is over, while no source could have renewed it
	Proven   bool      `json:"proven,omitempty"`   // the holder of the key has signed that it is this member's
	Succeeds string    `json:"succeeds,omitempty"` // the id of the same tier whose place it has taken
}

// Member is what is known of a node, with the source of every fact.
type Member struct {
	member.Facts                    // Endpoints are those of all sources, the best first
	Proven       bool               `json:"-"`                 // the entry of the id is shown to have the key
	Tier         Tier               `json:"tier"`              // of the highest source: that of the id
	Until        time.Time          `json:"until,omitzero"`    // the last of its sources' leases; zero: none ends
	Sources      map[Field][]Source `json:"sources"`           // who states the value that counts
	Origins      []Origin           `json:"origins,omitempty"` // of Endpoints, in their order
	Stale        bool               `json:"stale,omitempty"`   // all that is known of it is stale
	Entries      []Entry            `json:"entries"`           // what was heard, source by source
}

// Origin is where Endpoints[i] is known from; nothing, of a member whose list says nothing about it.
func (m *Member) Origin(i int) Origin {
	if i < len(m.Origins) {
		return m.Origins[i]
	}
	return Origin{}
}

// Field names a fact.
type Field string

// The fields of which a member has one value, by their order in lists.
const (
	FieldNode         Field = "node"
	FieldHostname     Field = "hostname"
	FieldNodename     Field = "nodename"
	FieldKey          Field = "publicKey"
	FieldPin          Field = "pin"
	FieldEngine       Field = "engine"
	FieldOverlay6     Field = "overlay6"
	FieldOverlay4     Field = "overlay4"
	FieldAddresses    Field = "addresses"
	FieldRanges       Field = "ranges"
	FieldExcluded     Field = "excluded"
	FieldRole         Field = "role"
	FieldPort         Field = "apiServerPort"
	FieldOS           Field = "operatingSystem"
	FieldSoftware     Field = "software"
	FieldMesh         Field = "mesh"
	FieldRelayCluster Field = "relayCluster"
	FieldRelays       Field = "relays"
	FieldClusters     Field = "clusters"
	FieldPair         Field = "pair"
	FieldLost         Field = "lost"
	FieldEndpoints    Field = "endpoints" // united, each with sources of its own
	FieldID           Field = "id"
	FieldStale        Field = "stale" // of events: it became stale, or is so no more
)

// rule is how one field is read, compared and taken over. A list is one value:
// who may add a range to another's list may take its traffic.
type rule struct {
	field  Field
	stated func(*member.Facts) bool
	equal  func(a, b *member.Facts) bool
	take   func(into, from *member.Facts)
	text   func(*member.Facts) string
}

func rules() []rule {
	return []rule{
		one(FieldNode, func(f *member.Facts) *string { return &f.Node }),
		one(FieldHostname, func(f *member.Facts) *string { return &f.Hostname }),
		one(FieldNodename, func(f *member.Facts) *string { return &f.Nodename }),
		one(FieldKey, func(f *member.Facts) *member.Key { return &f.Key }),
		one(FieldPin, func(f *member.Facts) *member.Pin { return &f.Pin }),
		one(FieldEngine, func(f *member.Facts) *member.Engine { return &f.Engine }),
		one(FieldOverlay6, func(f *member.Facts) *netip.Addr { return &f.Overlay6 }),
		one(FieldOverlay4, func(f *member.Facts) *netip.Addr { return &f.Overlay4 }),
		many(FieldAddresses, func(f *member.Facts) *[]netip.Addr { return &f.Addresses }, netip.Addr.Compare),
		many(FieldRanges, func(f *member.Facts) *[]netip.Prefix { return &f.Ranges }, netip.Prefix.Compare),
		many(FieldExcluded, func(f *member.Facts) *[]netip.Prefix { return &f.Excluded }, netip.Prefix.Compare),
		one(FieldRole, func(f *member.Facts) *member.Role { return &f.Role }),
		one(FieldPort, func(f *member.Facts) *uint16 { return &f.APIServerPort }),
		one(FieldOS, func(f *member.Facts) *string { return &f.OS }),
		one(FieldSoftware, func(f *member.Facts) *string { return &f.Software }),
		one(FieldMesh, func(f *member.Facts) *uint32 { return &f.Mesh }),
		one(FieldRelayCluster, func(f *member.Facts) *string { return &f.RelayCluster }),
		many(FieldRelays, func(f *member.Facts) *[]string { return &f.Relays }, strings.Compare),
		many(FieldClusters, func(f *member.Facts) *[]string { return &f.Clusters }, strings.Compare),
		many(FieldLost, func(f *member.Facts) *[]string { return &f.Lost }, strings.Compare),
		one(FieldPair, func(f *member.Facts) *member.Pair { return &f.Pair }),
	}
}

// unique gives the rules of the fields that two members cannot share.
func unique() []rule {
	return slices.DeleteFunc(rules(), func(r rule) bool {
		return !slices.Contains([]Field{FieldNode, FieldNodename, FieldOverlay6, FieldOverlay4}, r.field)
	})
}

func one[T comparable](name Field, at func(*member.Facts) *T) rule {
	var zero T
	return rule{
		field:  name,
		stated: func(f *member.Facts) bool { return *at(f) != zero },
		equal:  func(a, b *member.Facts) bool { return *at(a) == *at(b) },
		take:   func(into, from *member.Facts) { *at(into) = *at(from) },
		text:   func(f *member.Facts) string { return fmt.Sprint(*at(f)) },
	}
}

func many[T comparable](name Field, at func(*member.Facts) *[]T, compare func(a, b T) int) rule {
	sorted := func(f *member.Facts) []T {
		out := slices.Clone(*at(f))
		slices.SortFunc(out, compare)
		return slices.Compact(out)
	}
	return rule{
		field:  name,
		stated: func(f *member.Facts) bool { return len(*at(f)) > 0 },
		equal:  func(a, b *member.Facts) bool { return slices.Equal(sorted(a), sorted(b)) },
		take:   func(into, from *member.Facts) { *at(into) = sorted(from) },
		text:   func(f *member.Facts) string { return fmt.Sprint(sorted(f)) },
	}
}

// short keeps untrusted text from filling a line.
func short(s string) string {
	if len(s) > 64 {
		return s[:64] + "..."
	}
	return s
}

// Fact is one fact that is stated, as text.
type Fact struct {
	Field   Field
	Text    string
	Sources []Source
}

// Stated are the facts of a member that have one value, for people.
func (m *Member) Stated() []Fact {
	out := []Fact{{FieldID, m.ID, m.Sources[FieldID]}}
	for _, r := range rules() {
		if r.stated(&m.Facts) {
			out = append(out, Fact{r.field, r.text(&m.Facts), m.Sources[r.field]})
		}
	}
	return out
}
