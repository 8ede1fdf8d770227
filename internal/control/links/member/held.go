// SPDX-License-Identifier: Apache-2.0

package member

import (
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tombolo-io/tombolo/internal/link/trouble"
)

// missedFor is how long a copied object has to be missing at the host cluster until its copy is removed: where the
// kinds are deleted there, or an empty backup is restored, other objects are gone a moment before the own Cluster is.
const missedFor = 5 * time.Second

// held are copies that stay though the host cluster has no such objects, with the time since when, by UID.
type held map[types.UID]time.Time

// hold adds to what the host cluster has those copies that stay. A host cluster without the own Cluster is not taken
// at its word: all copies stay until it has one again, or this cluster is unlinked. It says when to look again; 0:
// there is no need.
//
//	there, own: as in copied
func (h held) hold(there, own linked, cluster string, now time.Time) (
	out linked, next held, again time.Duration) {
	out, next = linked{maps.Clone(there.clusters), maps.Clone(there.nodes)}, held{}
	lost := there.clusters[cluster] == nil
	stays := func(id types.UID) bool {
		since, known := h[id]
		if !known || lost { // once the own Cluster is back, the host cluster gets its time
			since = now
		}
		left := missedFor - now.Sub(since)
		if left <= 0 {
			return false
		}
		if next[id] = since; !lost && (again == 0 || left < again) {
			again = left
		}
		return true
	}
	for name, c := range own.clusters {
		if there.clusters[name] == nil && isCopy(c) && stays(c.UID) {
			out.clusters[name] = c
		}
	}
	for name, n := range own.nodes {
		if there.nodes[name] == nil && isCopy(n) && stays(n.UID) {
			out.nodes[name] = n
		}
	}
	return out, next, again
}

// unlinked is what the condition HostReached says where the host cluster answers, but does not have this one.
func unlinked(cluster string) trouble.Verdict {
	return trouble.Verdict{Status: trouble.No, Reason: trouble.Unlinked, Message: fmt.Sprintf("the host cluster has no "+
		"Cluster %s: it was unlinked there, or the host has lost its objects. What is known of other clusters stays. If it "+
		"was unlinked, run 'tombolo link unjoin %s' here; else restore the objects at the host, or join again with a new "+
		"line", cluster, cluster)}
}
