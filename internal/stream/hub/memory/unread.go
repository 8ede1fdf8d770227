// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/hub/quota"
)

// backlog is what a cluster's callers have not read yet.
type backlog struct {
	cluster id.Cluster
	book    *quota.Book
	unread  int64
	bound   int64
}

// overdue decides which clusters give back how many bytes: those that are beyond their bound
// and were at the look before. Streams were granted their windows while nothing was unread,
// so the bound is not enough, and a burst that is being read is no reason to cut
// anything. A cluster that has given back has another two looks before the next time.
func overdue(all []backlog, before map[id.Cluster]bool) (cut map[id.Cluster]int64, beyond map[id.Cluster]bool) {
	for _, l := range all {
		switch {
		case l.unread <= l.bound:
		case before[l.cluster]:
			if cut == nil {
				cut = map[id.Cluster]int64{}
			}
			cut[l.cluster] = l.unread - l.bound
		default:
			if beyond == nil {
				beyond = map[id.Cluster]bool{}
			}
			beyond[l.cluster] = true
		}
	}
	return cut, beyond
}

// LookAtUnread cuts the streams of clusters that stay beyond limits.cluster.unreadBytes.
func (m *Guard) LookAtUnread() {
	var all []backlog
	m.Clusters(func(c id.Cluster, book *quota.Book, _ int64) {
		if n := book.Unread(book.Cluster); n > 0 {
			all = append(all, backlog{c, book, n, book.Cluster.Bounds().Unread})
		}
	})
	var cut map[id.Cluster]int64
	cut, m.beyond = overdue(all, m.beyond)
	for _, l := range all {
		need := cut[l.cluster]
		if need == 0 {
			continue
		}
		a := l.book.Cluster
		why := fault.Newf(fault.CodeLimit, "%s may leave %s unread", a.Label(), quota.SizeText(l.bound)).
			Whyf("the bound cluster.%s was exceeded, and this was among the newest and largest streams", quota.UnreadBytes).
			Hint("read what you ask for, or ask for less at a time; 'tombolo status %s' shows what is used", a.Name)
		n := m.cutLargest(l.cluster, need, 0, Stream.UnreadBytes, why)
		for range n {
			a.Hit(quota.UnreadBytes)
		}
		if n > 0 {
			m.Log.Warn("streams cut: more is unread than the cluster may leave", telemetry.AttrCluster, l.cluster, "streams", n,
				"unread", l.unread, "limit", l.bound)
		}
	}
}

// cutLargest cuts the newest and largest streams of a cluster until need bytes are given
// back. A stream gives back what measure says and cost; one that gives back nothing is not
// cut. It says how many were.
func (m *Guard) cutLargest(c id.Cluster, need, cost int64, measure func(Stream) int64, why *fault.Fault) int {
	streams := m.Streams(c)
	held := make([]holding, len(streams))
	for i, s := range streams {
		held[i] = holding{measure(s), s.Begun()}
	}
	chosen := newestLargest(held, need, cost)
	for _, i := range chosen {
		streams[i].Cut(why)
	}
	return len(chosen)
}
