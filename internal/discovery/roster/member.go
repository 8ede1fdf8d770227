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

// The kinds of endpoints, from the best known to the least.
const (
	KindOwn      = "own"      // an address of the member itself
	KindStatic   = "static"   // configured by its operator
	KindMapped   = "mapped"   // as a service saw it from outside
	KindObserved = "observed" // as another member saw it
)

// Where is an endpoint: where a member may be reached. WireGuard proves who is there, so
// that anyone may name one.
type Where struct {
	Addr      netip.AddrPort `json:"addr"`
	Kind      string         `json:"kind"`
	Sources   []Source       `json:"sources,omitempty"`
	Observers []string       `json:"observers,omitempty"` // ids of the members that saw it
}

// Observation is where a member has seen the holder of a key.
type Observation struct {
	Key  member.Key
	Addr netip.AddrPort
}

// Facts are what is said of a member. A zero value says nothing.
type Facts struct {
	ID            string         `json:"id"` // what its tier calls it: unique there
	Node          string         `json:"node,omitempty"`
	Hostname      string         `json:"hostname,omitempty"`
	Nodename      string         `json:"nodename,omitempty"` // of the Kubernetes node
	Key           member.Key     `json:"publicKey,omitzero"`
	Overlay6      netip.Addr     `json:"overlay6,omitzero"`
	Overlay4      netip.Addr     `json:"overlay4,omitzero"`
	Addresses     []netip.Addr   `json:"addresses,omitempty"`
	Endpoints     []Where        `json:"endpoints,omitempty"`
	Ranges        []netip.Prefix `json:"ranges,omitempty"`
	Excluded      []netip.Prefix `json:"excluded,omitempty"`
	Role          string         `json:"role,omitempty"`
	APIServerPort uint16         `json:"apiServerPort,omitempty"`
	OS            string         `json:"operatingSystem,omitempty"`
	Software      string         `json:"software,omitempty"`
	Mesh          uint32         `json:"mesh,omitempty"`         // version of the path protocol; 0: WireGuard alone
	RelayCluster  string         `json:"relayCluster,omitempty"` // of its certificate at hubs
	Relays        []string       `json:"relays,omitempty"`       // the hubs that it is attached to
	Clusters      []string       `json:"clusters,omitempty"`     // ids of the cluster's secrets that it says it has
}

// Entry is one source's word of a member, for people.
type Entry struct {
	Source   Source    `json:"source"`
	ID       string    `json:"id"`
	Version  uint64    `json:"version,omitempty"`
	Until    time.Time `json:"until,omitzero"`
	Heard    time.Time `json:"heard,omitzero"`
	Stale    bool      `json:"stale,omitempty"`    // its lease is over, and no service can tell whether the member is
	Proven   bool      `json:"proven,omitempty"`   // the holder of the key has signed that it is this member's
	Succeeds string    `json:"succeeds,omitempty"` // the id of the same tier whose place it has taken
}

// Member is what is known of a node, with the source of every fact.
type Member struct {
	Facts
	Proven  bool               `json:"-"`               // the entry of the id is shown to have the key
	Tier    Tier               `json:"tier"`            // of the highest source: that of the id
	Until   time.Time          `json:"until,omitzero"`  // the last of its sources' leases; zero: none ends
	Sources map[Field][]Source `json:"sources"`         // who states the value that counts
	Stale   bool               `json:"stale,omitempty"` // all that is known of it is stale
	Entries []Entry            `json:"entries"`         // what was heard, source by source
}

// Field names a fact.
type Field string

// The fields of which a member has one value, by their order in lists.
const (
	FieldNode         Field = "node"
	FieldHostname     Field = "hostname"
	FieldNodename     Field = "nodename"
	FieldKey          Field = "publicKey"
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
	FieldEndpoints    Field = "endpoints" // united, each with sources of its own
	FieldID           Field = "id"
	FieldStale        Field = "stale" // of events: it became stale, or is so no more
)

// rule is how one field is read, compared and taken over. A list is one value:
// who may add a range to another's list may take its traffic.
type rule struct {
	field  Field
	stated func(*Facts) bool
	equal  func(a, b *Facts) bool
	take   func(into, from *Facts)
	text   func(*Facts) string
}

func rules() []rule {
	return []rule{
		one(FieldNode, func(f *Facts) *string { return &f.Node }),
		one(FieldHostname, func(f *Facts) *string { return &f.Hostname }),
		one(FieldNodename, func(f *Facts) *string { return &f.Nodename }),
		one(FieldKey, func(f *Facts) *member.Key { return &f.Key }),
		one(FieldOverlay6, func(f *Facts) *netip.Addr { return &f.Overlay6 }),
		one(FieldOverlay4, func(f *Facts) *netip.Addr { return &f.Overlay4 }),
		many(FieldAddresses, func(f *Facts) *[]netip.Addr { return &f.Addresses }, netip.Addr.Compare),
		many(FieldRanges, func(f *Facts) *[]netip.Prefix { return &f.Ranges }, netip.Prefix.Compare),
		many(FieldExcluded, func(f *Facts) *[]netip.Prefix { return &f.Excluded }, netip.Prefix.Compare),
		one(FieldRole, func(f *Facts) *string { return &f.Role }),
		one(FieldPort, func(f *Facts) *uint16 { return &f.APIServerPort }),
		one(FieldOS, func(f *Facts) *string { return &f.OS }),
		one(FieldSoftware, func(f *Facts) *string { return &f.Software }),
		one(FieldMesh, func(f *Facts) *uint32 { return &f.Mesh }),
		one(FieldRelayCluster, func(f *Facts) *string { return &f.RelayCluster }),
		many(FieldRelays, func(f *Facts) *[]string { return &f.Relays }, strings.Compare),
		many(FieldClusters, func(f *Facts) *[]string { return &f.Clusters }, strings.Compare),
	}
}

// unique gives the rules of the fields that two members cannot share.
func unique() []rule {
	return slices.DeleteFunc(rules(), func(r rule) bool {
		return !slices.Contains([]Field{FieldNode, FieldNodename, FieldOverlay6, FieldOverlay4}, r.field)
	})
}

func one[T comparable](name Field, at func(*Facts) *T) rule {
	var zero T
	return rule{
		field:  name,
		stated: func(f *Facts) bool { return *at(f) != zero },
		equal:  func(a, b *Facts) bool { return *at(a) == *at(b) },
		take:   func(into, from *Facts) { *at(into) = *at(from) },
		text:   func(f *Facts) string { return fmt.Sprint(*at(f)) },
	}
}

func many[T comparable](name Field, at func(*Facts) *[]T, compare func(a, b T) int) rule {
	sorted := func(f *Facts) []T {
		out := slices.Clone(*at(f))
		slices.SortFunc(out, compare)
		return slices.Compact(out)
	}
	return rule{
		field:  name,
		stated: func(f *Facts) bool { return len(*at(f)) > 0 },
		equal:  func(a, b *Facts) bool { return slices.Equal(sorted(a), sorted(b)) },
		take:   func(into, from *Facts) { *at(into) = sorted(from) },
		text:   func(f *Facts) string { return fmt.Sprint(sorted(f)) },
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
