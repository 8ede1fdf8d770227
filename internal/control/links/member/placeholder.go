// SPDX-License-Identifier: Apache-2.0

package member

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strconv"
	"time"

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
//	room: whether the cluster may have a further object
func (r replacement) changes(by telling, there linked, room bool, now time.Time) (out []change, again time.Duration,
	keep bool) {
	p := r.placeholder
	if is := r.have.UID != ""; !is || !renamed(r.have.Spec, r.want) {
		if p == nil || is && (first(r.have, there) || waited(r.have, now)) {
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
	case first(p, there) || waited(p, now):
		return []change{remove}, placeholderAgain, true
	}
	return nil, placeholderAgain, true
}

func waited(o *objects.ClusterNode, now time.Time) bool {
	return now.After(o.CreationTimestamp.Add(placeholderWait))
}

// first reports whether an object is known to come before what other clusters claim of it, whatever else goes.
func first(o *objects.ClusterNode, there linked) bool {
	c := claimOf(o)
	for _, other := range there.nodes {
		if other.Spec.ClusterName != o.Spec.ClusterName && !doubled.Before(c, claimOf(other)) {
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
