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

// evidence is what a node knows of which cluster it is in, before it changes anything in the
// kernel (docs/reference/mesh.md, wrong cluster).
type evidence struct {
	secrets  []string     // ids of those that it has
	id       string       // cluster.id; empty: none
	named    netip.Prefix // that of id; not valid: none, or an operator has chosen the address
	before   trace
	members  []sighted      // that are there now, without this node
	unopened map[string]int // entries that no secret opens, by the service that tells of them
	waiting  []string       // sources that have not told yet
	nobody   bool           // no source is configured: nobody can tell of anybody
}

// trace is what an earlier run has left in the state directory: of which cluster this node was.
type trace struct {
	Clusters []string     `json:"clusters"` // ids of the secrets that it had
	Prefix   netip.Prefix `json:"prefix"`
}

// readTrace reads what an earlier run has left. What cannot be read is nothing: who reads
// the addresses of the same file tells of it.
func readTrace(dir string) trace {
	var t trace
	text, err := private.ReadPublic(filepath.Join(dir, overlayFile), limit.PrivateFile)
	if err != nil || json.Unmarshal(text, &t) != nil {
		return trace{}
	}
	return t
}

// sighted is another member as it tells of its cluster.
type sighted struct {
	name   string
	opened bool     // its word came under a secret of this node
	under  []string // ids of the secrets that it says it has; nil: it says nothing of them
	six    netip.Addr
	guess  bool // the prefix of six is one that the program makes of a cluster's name
}

// sightings are the members whose word counts: what is stale is of a time that is over, who
// has no key takes no part, and with a key of this node it is what it said of itself before.
// Only a start looks at addresses (guess).
func sightings(members []roster.Member, guess bool, own ...member.Key) (out []sighted) {
	for i := range members {
		m := &members[i]
		if m.Stale || m.Key == (member.Key{}) || slices.Contains(own, m.Key) {
			continue
		}
		of := func(tiers ...roster.Tier) bool {
			return slices.ContainsFunc(m.Entries, func(e roster.Entry) bool { return slices.Contains(tiers, e.Source.Tier) })
		}
		s := sighted{name: called(m.Node, m.ID), opened: of(roster.TierNative, roster.TierOlder), under: m.Clusters, six: m.Overlay6}
		// What stands under the very id of the cluster in the older protocol has no other one.
		s.guess = guess && member.IsOverlay6(netip.PrefixFrom(m.Overlay6, 64).Masked()) && of(roster.TierNative, roster.TierKubernetes, roster.TierStatic)
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
	refused []*fault.Fault // sure: the start is refused, and nothing was changed
	doubts  []*fault.Fault // it may be so: told, and the node goes on
	alone   string         // nobody else is known: what that can mean; "" where somebody is
}

// judge decides. A node that ran under the same secret and the same name before is never
// refused: it comes up whatever others say, and whatever source is away.
func (e evidence) judge() (v verdict) {
	v.secret(e)
	v.name(e)
	return v
}

// hasOtherSecret says whether a member has, by its own word, none of these secrets.
func hasOtherSecret(m *roster.Member, secrets []string) bool {
	if m == nil || len(m.Clusters) == 0 || slices.ContainsFunc(m.Clusters, func(id string) bool { return slices.Contains(secrets, id) }) {
		return false
	}
	return !slices.ContainsFunc(m.Entries, func(e roster.Entry) bool {
		return e.Source.Tier == roster.TierNative || e.Source.Tier == roster.TierOlder
	})
}

func (e evidence) has(ids []string) bool {
	return slices.ContainsFunc(ids, func(id string) bool { return slices.Contains(e.secrets, id) })
}

// secret looks whether the secret is that of the others.
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
	const compare = "put the file with the others' secret into cluster.secretFiles: 'tombolo discovery secret show FILE' names one"
	if len(foreign) > 0 {
		f := fault.New(fault.CodeSecret, "this node has another secret than others").Whyf("%s, and %s", mine, underOf(foreign))
		switch {
		case ours > 0:
			v.doubts = append(v.doubts, f.Hint("no tunnel to those comes about: replace their secret, or that of this node, with that of the others"))
		case e.has(e.before.Clusters):
			v.doubts = append(v.doubts, f.Hint("%s", "if it was replaced there while this node was away: "+compare))
		default:
			v.refused = append(v.refused, f.Hint("%s", compare+"; where all nodes shall have this node's, remove what they have said: 'kubectl delete members.tombolo.dev --all'"))
		}
		return
	}
	if ours > 0 {
		return
	}
	for _, service := range slices.Sorted(maps.Keys(e.unopened)) {
		v.doubts = append(v.doubts, fault.Newf(fault.CodeSecret, "the secret opens nothing of what %s tells of this cluster", service).
			Whyf("%d members of cluster.id %.80q have another secret than this node, or somebody writes there what is none's; %s", e.unopened[service], e.id, mine).Hint("%s", compare))
	}
	if len(e.before.Clusters) > 0 && !e.has(e.before.Clusters) {
		v.doubts = append(v.doubts, fault.New(fault.CodeSecret, "this node was a member under another secret, and knows nobody under that of now").
			Whyf("it had %s; %s", strings.Join(e.before.Clusters, ", "), mine).
			Hint("%s", "if the secret was replaced on all nodes this ends when the others come; else "+compare))
	}
	if len(e.members) == 0 {
		if v.alone = noSource; e.nobody {
			return
		}
		v.alone = "this is the first node of its cluster, or its secret is not that of the others: that looks the same to it"
		if len(e.waiting) > 0 {
			v.alone = "not all sources have told yet (" + strings.Join(e.waiting, ", ") + "); where they know nobody, " + v.alone
		}
	}
}

// noSource is why a node knows nobody whom no source tells of anybody.
const noSource = "no source of members is configured: neither services nor a file nor Kubernetes"

// underOf says who has which secrets, of the first of them.
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

// name looks whether cluster.id is that of the others: their overlay addresses lie in the
// prefix that theirs makes. What is already as it was, or is not of one name alone, is
// told by elsewhere.
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
	hint := "give this node the cluster.id of the others ('tombolo mesh status -o json' there has it as cluster), or leave it out: it takes their prefix then"
	if i := slices.IndexFunc(e.secrets, func(id string) bool { return member.Overlay6(id) == theirs }); i >= 0 {
		why += ", which is that of the secret " + e.secrets[i]
		hint = "the others have no cluster.id: leave it out here"
	}
	v.refused = append(v.refused, fault.Newf(fault.CodeMeshCluster, "cluster.id %.80q is not that of the other members", e.id).Whyf("%s", why).
		Hint("%s; where all nodes shall have another one, end them all with --leave first", hint))
}

func listed(names []string) string {
	more := ""
	if n := len(names) - limit.MeshNames; n > 0 {
		names, more = names[:limit.MeshNames], fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(names, ", ") + more
}
