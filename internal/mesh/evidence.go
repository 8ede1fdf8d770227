// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// A node with another secret or another cluster.id than the others would come up alone, or with an address that nobody
// routes, and look healthy. Neither follows from the ids of members: they belong to no cluster. So the node compares
// what it knows before it changes anything in the kernel (docs/reference/mesh.md#wrong-cluster).

// evidence is what a node knows about which cluster it is in.
type evidence struct {
	secrets  []string     // ids of the secrets that it has
	id       string       // cluster.id; empty: none
	named    netip.Prefix // made from id; not valid: none, or an operator has chosen the address
	before   trace
	members  []sighted      // the members that are there now, without this node
	unopened map[string]int // entries that no secret opens, by service
	waiting  []string       // sources that have not answered yet
	nobody   bool           // no source is configured, so no member can be known
}

// trace is what an earlier run left in the state directory: the cluster that this node was in.
type trace struct {
	Clusters []string     `json:"clusters"` // ids of the secrets that it had
	Prefix   netip.Prefix `json:"prefix"`
}

// readTrace reads what an earlier run left. A file that cannot be read counts as none: readOverlay, which reads the
// same file, reports it.
func readTrace(dir string) trace {
	var t trace
	text, err := private.ReadPublic(filepath.Join(dir, overlayFile), limit.PrivateFile)
	if err != nil || json.Unmarshal(text, &t) != nil {
		return trace{}
	}
	return t
}

// sighted is what another member says about its cluster.
type sighted struct {
	name   string
	opened bool     // a secret of this node opened its entry
	under  []string // ids of the secrets that it says it has; nil: it does not say
	six    netip.Addr
	guess  bool // the prefix of six is one that the program makes from a cluster's name
}

// sightings are the members that count: not a stale one, nor one without a key, which takes no part, nor one with a key
// of this node, which is this node as it was before. Only a start looks at addresses (guess).
func sightings(members []roster.Member, guess bool, own ...member.Key) (out []sighted) {
	for i := range members {
		m := &members[i]
		if m.Stale || m.Key == (member.Key{}) || slices.Contains(own, m.Key) {
			continue
		}
		from := func(tiers ...roster.Tier) bool {
			return slices.ContainsFunc(m.Entries, func(e roster.Entry) bool {
				return slices.Contains(tiers, e.Source.Tier)
			})
		}
		s := sighted{
			name: called(m.Node, m.ID), opened: from(roster.TierNative, roster.TierOlder),
			under: m.Clusters, six: m.Overlay6,
		}
		// Members of the older protocol are found by the cluster's id, so they cannot have another one.
		s.guess = guess && member.IsOverlay6(netip.PrefixFrom(m.Overlay6, 64).Masked()) &&
			from(roster.TierNative, roster.TierKubernetes, roster.TierStatic)
		out = append(out, s)
	}
	return out
}

func called(node, id string) string {
	if node == "" || node == id {
		return id
	}
	return node + " (" + id + ")"
}

// verdict is what follows from evidence.
type verdict struct {
	refused []*fault.Fault // certain: the start is refused, and nothing was changed
	doubts  []*fault.Fault // possible: a warning, and the node keeps running
	alone   string         // no other member is known, and what that can mean; "" where one is
}

// judge decides at a start. A node that ran with the same secret and the same cluster.id before is never refused: it
// comes up whatever others say, and whichever source is away.
func (e evidence) judge() (v verdict) {
	v.secret(e)
	v.name(e)
	return v
}

// hasOtherSecret says whether a member has none of these secrets, as it says itself.
func hasOtherSecret(m *roster.Member, secrets []string) bool {
	has := func(id string) bool { return slices.Contains(secrets, id) }
	if m == nil || len(m.Clusters) == 0 || slices.ContainsFunc(m.Clusters, has) {
		return false
	}
	return !slices.ContainsFunc(m.Entries, func(e roster.Entry) bool {
		return e.Source.Tier == roster.TierNative || e.Source.Tier == roster.TierOlder
	})
}

func (e evidence) has(ids []string) bool {
	return slices.ContainsFunc(ids, func(id string) bool { return slices.Contains(e.secrets, id) })
}

// secret compares this node's secrets with those of the others.
func (v *verdict) secret(e evidence) {
	ours, foreign := 0, []sighted(nil)
	for _, m := range e.members {
		switch {
		case m.opened || e.has(m.under):
			ours++
		case len(m.under) > 0:
			foreign = append(foreign, m)
		}
	}
	mine := "this node has " + strings.Join(e.secrets, ", ")
	const compare = "put the file with the others' secret into cluster.secretFiles: " +
		"'tombolo discovery secret show FILE' shows the id of one"
	if len(foreign) > 0 {
		f := fault.New(fault.CodeSecret, "this node has another secret than others").
			Whyf("%s, and %s", mine, underOf(foreign))
		switch {
		case ours > 0:
			v.doubts = append(v.doubts, f.Hint("there is no tunnel to them: give them, or this node, the secret of the others"))
		case e.has(e.before.Clusters):
			v.doubts = append(v.doubts, f.Hint("%s", "if it was replaced there while this node was away: "+compare))
		default:
			v.refused = append(v.refused, f.Hint("%s", compare+"; if all nodes are to have this node's secret, "+
				"remove their entries: 'kubectl delete members.tombolo.dev --all'"))
		}
		return
	}
	if ours > 0 {
		return
	}
	for _, service := range slices.Sorted(maps.Keys(e.unopened)) {
		v.doubts = append(v.doubts, fault.Newf(fault.CodeSecret, "the secret opens no entry of this cluster at %s", service).
			Whyf("%d members of cluster.id %.80q have another secret than this node, or there is junk; %s",
				e.unopened[service], e.id, mine).
			Hint("%s", compare))
	}
	if len(e.before.Clusters) > 0 && !e.has(e.before.Clusters) {
		const what = "this node was a member under another secret, and knows no member under its present one"
		v.doubts = append(v.doubts, fault.New(fault.CodeSecret, what).
			Whyf("it had %s; %s", strings.Join(e.before.Clusters, ", "), mine).
			Hint("%s", "if the secret was replaced on all nodes, this ends when the others come; else "+compare))
	}
	if len(e.members) == 0 {
		if v.alone = noSource; e.nobody {
			return
		}
		v.alone = "this is the first node of its cluster, or its secret is not that of the others: it cannot tell which"
		if len(e.waiting) > 0 {
			v.alone = "not all sources have answered yet (" + strings.Join(e.waiting, ", ") + "); " +
				"if they know no members, " + v.alone
		}
	}
}

// noSource is why a node without sources knows no member.
const noSource = "no source of members is configured: neither services nor a file nor Kubernetes"

// underOf lists which members have which secrets, for the first of them.
func underOf(all []sighted) string {
	var out []string
	for _, m := range all[:min(len(all), limit.MeshNames)] {
		out = append(out, m.name+" has "+strings.Join(m.under, ", "))
	}
	if more := len(all) - len(out); more > 0 {
		out = append(out, fmt.Sprintf("%d more have others too", more))
	}
	return strings.Join(out, "; ")
}

// name compares cluster.id with that of the others, whose overlay addresses lie in the prefix that theirs makes. A name
// that this node had before is not judged, nor one that any member shares: the status warns there.
func (v *verdict) name(e evidence) {
	if !e.named.IsValid() || e.before.Prefix == e.named {
		return
	}
	var names []string
	var theirs netip.Prefix
	for _, m := range e.members {
		if e.named.Contains(m.six) {
			return
		}
		if m.guess {
			theirs = netip.PrefixFrom(m.six, 64).Masked()
			names = append(names, m.name)
		}
	}
	if len(names) == 0 {
		return
	}
	why := fmt.Sprintf("it makes the prefix %s, and overlay addresses of %s are in %s", e.named, listed(names), theirs)
	hint := "give this node the cluster.id of the others ('tombolo mesh status -o json' shows it there as cluster), " +
		"or leave it out: it then takes their prefix"
	if i := slices.IndexFunc(e.secrets, func(id string) bool { return member.Overlay6(id) == theirs }); i >= 0 {
		why += ", which is that of the secret " + e.secrets[i]
		hint = "the others have no cluster.id: leave it out here"
	}
	what := fmt.Sprintf("cluster.id %.80q is not that of the other members", e.id)
	v.refused = append(v.refused, fault.New(fault.CodeMeshCluster, what).Whyf("%s", why).
		Hint("%s; if all nodes are to have another one, end them all with --leave first", hint))
}

func listed(names []string) string {
	more := ""
	if n := len(names) - limit.MeshNames; n > 0 {
		names, more = names[:limit.MeshNames], fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(names, ", ") + more
}
