// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/hub/quota"
)

// leaver is a cluster that has bytes which nobody read yet.
type leaver struct {
	cluster *cluster
	unread  int64
	bound   int64
}

// overdue decides who gives how many bytes back: who is beyond its bound, and was
// when it was looked at before. Streams were granted their windows while nothing was
// unread, so the bound does not hold by itself; and a burst that is being read is no
// reason to cut anything. Who gives back has another two looks before the next time.
func overdue(all []leaver, before map[id.Cluster]bool) (cut map[id.Cluster]int64, beyond map[id.Cluster]bool) {
	for _, l := range all {
		switch {
		case l.unread <= l.bound:
		case before[l.cluster.name]:
			if cut == nil {
				cut = map[id.Cluster]int64{}
			}
			cut[l.cluster.name] = l.unread - l.bound
		default:
			if beyond == nil {
				beyond = map[id.Cluster]bool{}
			}
			beyond[l.cluster.name] = true
		}
	}
	return cut, beyond
}

// lookAtUnread cuts the streams of clusters that stay beyond limits.cluster.unreadBytes.
func (h *Hub) lookAtUnread() {
	all := h.clusters.leavers()
	var cut map[id.Cluster]int64
	cut, h.memory.beyond = overdue(all, h.memory.beyond)
	for _, l := range all {
		need := cut[l.cluster.name]
		if need == 0 {
			continue
		}
		a := l.cluster.accounts.Cluster
		n := h.cutLargest(l.cluster.name, need, 0, (*hubStream).unread, fault.Newf(fault.CodeLimit, "%s may leave %s unread", a.Label(), quota.SizeText(l.bound)).
			Whyf("the bound cluster.%s was exceeded, and this was among the newest and largest streams", quota.UnreadBytes).
			Hint("read what you ask for, or ask for less at a time; 'tombolo status %s' shows what is used", a.Name))
		for range n {
			a.Hit(quota.UnreadBytes)
		}
		if n > 0 {
			h.log.Warn("streams cut: more is unread than the cluster may leave", telemetry.AttrCluster, l.cluster.name, "streams", n,
				"unread", l.unread, "limit", l.bound)
		}
	}
}

// leavers lists the clusters of which something is unread.
func (r *registry) leavers() (out []leaver) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, c := range r.clusters {
		if n := c.accounts.Unread(c.accounts.Cluster); n > 0 {
			out = append(out, leaver{c, n, c.accounts.Cluster.Bounds().Unread})
		}
	}
	return out
}

// cutLargest cuts the newest and largest streams of a cluster until need bytes are
// given back: what each holds by that measure, and what it costs beside that. Where it costs nothing,
// one that holds nothing is no use. It says how many those were.
func (h *Hub) cutLargest(c id.Cluster, need, cost int64, measure func(*hubStream) int64, why *fault.Fault) int {
	streams := h.access.Streams(c)
	held := make([]holding, len(streams))
	for i, s := range streams {
		live := s.(*hubStream)
		held[i] = holding{measure(live), live.begun}
	}
	chosen := newestLargest(held, need, cost)
	for _, i := range chosen {
		streams[i].(*hubStream).cut(why)
	}
	return len(chosen)
}
