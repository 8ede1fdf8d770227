// SPDX-License-Identifier: Apache-2.0

package member

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/link/doubled"
)

// A node with a new key gets a new object, and between the end of the old one and the beginning of the new one its
// address in the mesh would be nobody's: another cluster that waits for it would be the first to claim it. So an object
// without a key, the placeholder, claims the address meanwhile. It comes before the old object goes, and goes once the
// new one has the address.

const (
	// placeholderWait bounds how long an object stays in the way of what takes its place. Longer than this only a host
	// cluster takes whose controller is away.
	placeholderWait = 30 * time.Second
	// placeholderAgain is when to look again, if nothing changes before.
	placeholderAgain = time.Second
)

// placeholderOf is the name of the node that a placeholder seems to be of.
func placeholderOf(node string) string {
	sum := sha256.Sum256([]byte(node))
	return "placeholder-" + hex.EncodeToString(sum[:8])
}

// replacement is a node whose object is made anew.
type replacement struct {
	cluster, node string
	have          *objects.ClusterNode // without a UID: it is not there
	want          v1alpha1.ClusterNodeSpec
	placeholder   *objects.ClusterNode // nil: there is none
}

// changes are the next ones of a replacement. again is when to look again; 0: when something changes. keep says that
// the placeholder stays.
//
//	rivals: the claims of other clusters
//	room: whether the cluster may have a further object
func (r replacement) changes(by telling, rivals func() rivals, room bool, now time.Time) (out []change,
	again time.Duration, keep bool) {
	p := r.placeholder
	if is := r.have.UID != ""; !is || !renamed(r.have.Spec, r.want) {
		if p == nil || is && (rivals().first(r.have) || by.waited(r.have, now)) {
			return nil, 0, false
		}
		return nil, placeholderAgain, true
	}
	remove := change{kind: v1alpha1.KindClusterNode, name: r.have.Name, remove: r.have.UID}
	spec := v1alpha1.ClusterNodeSpec{ClusterName: r.cluster, NodeName: placeholderOf(r.node)}
	if r.have.Spec.Overlay4 == r.want.Overlay4 {
		spec.Overlay4 = r.want.Overlay4
	}
	if r.have.Spec.Overlay6 == r.want.Overlay6 {
		spec.Overlay6 = r.want.Overlay6
	}
	switch {
	case spec.Overlay4 == "" && spec.Overlay6 == "", // nothing of it stays its own
		r.have.Annotations[objects.AnnotationDoubled] != "", // it has nothing
		p == nil && !room:
		return []change{remove}, 0, false
	case p == nil:
		c := change{kind: v1alpha1.KindClusterNode, name: v1alpha1.ClusterNodeName(r.cluster, spec.NodeName), spec: spec}
		if by.version != "" {
			c.annotations = map[string]string{objects.AnnotationVersion: by.version}
		}
		return []change{c}, placeholderAgain, true
	case rivals().first(p) || by.waited(p, now):
		return []change{remove}, placeholderAgain, true
	}
	return nil, placeholderAgain, true
}

// waited reports whether an object has been there for so long that nothing is waited for any more. The time is this
// cluster's own: the clocks of both may differ.
func (by telling) waited(o *objects.ClusterNode, now time.Time) bool {
	since, known := by.seen[o.UID]
	return known && now.Sub(since) > placeholderWait
}

// see notes since when the objects are there that take part in replacements.
func (by *telling) see(there linked, now time.Time) {
	next := map[types.UID]time.Time{}
	for _, n := range there.nodes {
		if n.Spec.ClusterName != by.cluster || !v1alpha1.IsPlaceholder(n.Spec) {
			continue
		}
		note := func(o *objects.ClusterNode) {
			if next[o.UID] = now; !by.seen[o.UID].IsZero() {
				next[o.UID] = by.seen[o.UID]
			}
		}
		note(n)
		for _, of := range there.nodes {
			if of.Spec.ClusterName == by.cluster && placeholderOf(of.Spec.NodeName) == n.Spec.NodeName {
				note(of)
			}
		}
	}
	by.seen = next
}

// rivals are the claims of other clusters, by what they claim.
type rivals struct {
	keys      map[string][]doubled.Claim
	addresses map[netip.Addr][]doubled.Claim
}

func rivalsOf(cluster string, there linked) rivals {
	out := rivals{map[string][]doubled.Claim{}, map[netip.Addr][]doubled.Claim{}}
	for _, n := range there.nodes {
		if n.Spec.ClusterName == cluster {
			continue
		}
		c := claimOf(n)
		out.keys[c.Key] = append(out.keys[c.Key], c)
		for _, a := range c.Addresses {
			out.addresses[a] = append(out.addresses[a], c)
		}
	}
	return out
}

// first reports whether an object is known to come before what other clusters claim of it, whatever else goes.
func (r rivals) first(o *objects.ClusterNode) bool {
	c := claimOf(o)
	all := r.keys[c.Key]
	for _, a := range c.Addresses {
		all = slices.Concat(all, r.addresses[a])
	}
	for _, other := range all {
		if !doubled.Before(c, other) {
			return false
		}
	}
	return c.Order != 0
}

func claimOf(o *objects.ClusterNode) doubled.Claim {
	c := doubled.Claim{Cluster: o.Spec.ClusterName, Node: o.Spec.NodeName, Created: o.CreationTimestamp.Time,
		Marked: o.Annotations[objects.AnnotationDoubled], Key: o.Spec.PublicKey}
	c.Order, _ = strconv.ParseUint(o.Annotations[objects.AnnotationOrder], 10, 64) // 0: it is not noted yet
	for _, text := range []string{o.Spec.Overlay4, o.Spec.Overlay6} {
		if a, err := netip.ParseAddr(text); err == nil {
			c.Addresses = append(c.Addresses, a.Unmap())
		}
	}
	return c
}
