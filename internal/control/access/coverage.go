// SPDX-License-Identifier: Apache-2.0

package access

import (
	"cmp"
	"hash/maphash"
	"maps"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/access/policy"
)

// coverage keeps what is wrong with the ways into each cluster. A cluster is judged anew when something changed that
// it depends on, a few at a time: that takes a tenth of a second each beside hundreds of others. It belongs to one
// goroutine.
type coverage struct {
	seed   maphash.Seed
	gaps   map[string][]istio.Uncovered // by cluster; those that were judged have an entry
	prints map[string]uint64
	stale  map[string]bool // true: it was edited, and comes first
	shared string          // versions of what was written for several clusters
	strays map[string][]istio.Uncovered
}

func newCoverage() *coverage {
	return &coverage{
		seed: maphash.MakeSeed(), gaps: map[string][]istio.Uncovered{}, prints: map[string]uint64{},
		stale: map[string]bool{}, strays: map[string][]istio.Uncovered{},
	}
}

// note takes over what changed: others says that objects of others did.
func (c *coverage) note(j judged, versions map[istio.Ref]string, others bool, gateways []istio.Workload) {
	own := map[string][]string{} // versions of what was written for a cluster; "": for several at once
	count := func(kind string, m istio.Meta) {
		r := istio.Ref{Kind: kind, Namespace: m.Namespace, Name: m.Name}
		if v := versions[r]; v != "" {
			name := m.Labels[istio.LabelCluster]
			own[name] = append(own[name], r.String()+"@"+v)
		}
	}
	for _, o := range j.facts.EnvoyFilters {
		count(istio.KindEnvoyFilter, o.Metadata)
		for _, name := range o.Guarded() { // somebody else's
			own[name] = append(own[name], o.Metadata.Namespace+"/"+o.Metadata.Name+"@"+o.Metadata.ResourceVersion)
		}
	}
	for _, o := range j.facts.AuthorizationPolicies {
		count(istio.KindAuthorizationPolicy, o.Metadata)
	}
	for _, o := range j.facts.ConfigMaps { // each cluster has an entry
		for key, text := range o.Data {
			own[strings.TrimSuffix(key, ".yaml")] = append(own[strings.TrimSuffix(key, ".yaml")], text)
		}
	}
	shared := strings.Join(own[""], " ")
	others = others || shared != c.shared
	c.shared = shared
	prints := map[string]uint64{}
	for _, k := range j.facts.Clusters {
		h := c.print(k, own[k.Name])
		prints[k.Name] = h
		switch old, there := c.prints[k.Name]; {
		case there && old != h:
			c.stale[k.Name] = true
		case (others || !there) && !c.stale[k.Name]: // one that was edited stays so
			c.stale[k.Name] = false
		}
	}
	gone := func(name string) bool { _, there := prints[name]; return !there }
	maps.DeleteFunc(c.gaps, func(name string, _ []istio.Uncovered) bool { return gone(name) })
	maps.DeleteFunc(c.stale, func(name string, _ bool) bool { return gone(name) })
	if others || len(prints) != len(c.prints) {
		c.strays = map[string][]istio.Uncovered{}
		for _, u := range istio.Strays(j.facts, gateways...) {
			c.strays[u.Cluster] = append(c.strays[u.Cluster], u)
		}
	}
	c.prints = prints
}

// print changes with a cluster and what is written for it.
func (c *coverage) print(k istio.Cluster, own []string) uint64 {
	var h maphash.Hash
	h.SetSeed(c.seed)
	put := func(s string) { _, _ = h.WriteString(s); _ = h.WriteByte(0) }
	for _, w := range k.Ways {
		put(w.Flow)
		for _, s := range slices.Concat(w.Hosts, w.Destinations) {
			put(s)
		}
		if w.List.Protected {
			put("protected")
		}
		for _, l := range [][]policy.SourceEntry{w.List.Allow, w.List.Deny} {
			for _, e := range l {
				maphash.WriteComparable(&h, e.Prefix)
			}
			put("")
		}
	}
	for _, s := range own {
		put(s)
	}
	return h.Sum64()
}

// judge looks at stale clusters until it is over, and at some at least. It reports whether some are left.
func (c *coverage) judge(f istio.Facts, gateways []istio.Workload, over func() bool) bool {
	names := slices.SortedFunc(maps.Keys(c.stale), func(a, b string) int {
		return cmp.Or(-cmp.Compare(rank(c.stale[a]), rank(c.stale[b])), strings.Compare(a, b))
	})
	for some := range slices.Chunk(names, together) {
		for _, name := range some {
			c.gaps[name] = nil
			delete(c.stale, name)
		}
		for _, g := range gateways {
			for _, u := range istio.Coverage(f, g, some...) {
				c.gaps[u.Cluster] = append(c.gaps[u.Cluster], u)
			}
		}
		if over() {
			break
		}
	}
	return len(c.stale) > 0
}

// together is how many clusters are judged at once: what they share is worked out once.
const together = 4

func rank(edited bool) int {
	if edited {
		return 1
	}
	return 0
}

// of is what is wrong with the ways into a cluster, and whether that is known.
func (c *coverage) of(cluster string) (gaps []istio.Uncovered, known bool) {
	gaps, known = c.gaps[cluster]
	return slices.Concat(gaps, c.strays[cluster]), known && !c.stale[cluster]
}

// all lists every gap that is known.
func (c *coverage) all() (out []istio.Uncovered) {
	for _, name := range slices.Sorted(maps.Keys(c.prints)) {
		gaps, _ := c.of(name)
		out = append(out, gaps...)
	}
	slices.SortStableFunc(out, func(a, b istio.Uncovered) int {
		return cmp.Or(strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Flow, b.Flow))
	})
	return out
}
