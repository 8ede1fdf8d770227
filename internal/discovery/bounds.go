// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"net/netip"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// Bounds are how much a board takes. The zero value of a field is no bound.
type Bounds struct {
	Clusters  int
	Members   int   // of one cluster, and its removals that are kept
	Endpoints int   // of one member
	Bytes     int64 // of memory of all members

	ClustersPerAddress int
	BytesPerAddress    int64
}

// step is a change of a member, and whose.
type step struct {
	member string
	from   netip.Addr // a party; not valid: unknown
	was    held
	now    roster.Lease
}

// become puts a member into the place of what it was, within bounds, and counts
// it: of many at once, only as many get in as fit.
func (c *cluster) become(b *Board, s step, bounds Bounds) error {
	if err := c.fits(s.was.Lease, s.now, bounds); err != nil {
		return err
	}
	ask := c.claim(s)
	if ask.clusters > 0 {
		if all := b.inUse.Add(1); bounds.Clusters > 0 && all > int64(bounds.Clusters) {
			b.inUse.Add(-1)
			return crowded(all - 1)
		}
	}
	err := enough(b.bytes.Add(ask.now-ask.was)+b.shares.memory.Load(), ask, bounds)
	is := held{Lease: s.now}
	if err == nil {
		is.by, err = b.shares.move(ask, bounds)
	}
	if err != nil {
		b.bytes.Add(ask.was - ask.now)
		b.inUse.Add(int64(-ask.clusters))
		return err
	}
	if ask.clusters > 0 {
		c.by = is.by
	}
	c.put(b, s.member, s.was, is)
	return nil
}

// claim is what a change takes.
func (c *cluster) claim(s step) claim {
	out := claim{by: s.was.by, to: s.from, was: weight(s.member, s.was.Lease), now: weight(s.member, s.now)}
	if len(c.members) == 0 && s.now.Exists() {
		out.clusters, out.now = 1, out.now+c.weight
	}
	return out
}

// crowded is the refusal of a cluster more than there may be.
func crowded(n int64) error {
	return fault.New(fault.CodeLimit, "the cluster is not taken").
		Whyf("the service has %d clusters, which is its bound", n).
		Hint("raise limits.clusters of the service, or use another service")
}

// enough is the refusal of what makes all bytes too many; nil where they are not.
func enough(all int64, ask claim, bounds Bounds) error {
	most := bounds.Bytes
	if ask.was == 0 {
		most = admission(most)
	}
	if grown := ask.now - ask.was; most > 0 && grown > 0 && all > most {
		return full("bytes of members", all-grown, most, "bytes")
	}
	return nil
}

func full(what string, n, most int64, key string) error {
	return fault.New(fault.CodeLimit, "the member is not taken").
		Whyf("there are %d %s, and %d is the bound", n, what, most).
		Hint("raise limits.%s of the service", key)
}

// fits looks at the bounds that are of one cluster or member.
func (c *cluster) fits(was, now roster.Lease, bounds Bounds) error {
	removals := len(c.members) - c.listed
	switch {
	case bounds.Members > 0 && !was.Listed() && now.Listed() && c.listed >= bounds.Members:
		return full("members in the cluster", int64(c.listed), int64(bounds.Members), "members")
	case bounds.Members > 0 && !was.Removed && now.Removed && removals >= bounds.Members:
		// Apart from members: the removal of one makes room for its successor at once.
		return full("removals in the cluster", int64(removals), int64(bounds.Members), "members")
	case bounds.Endpoints > 0 && len(now.Endpoints) > bounds.Endpoints && len(now.Endpoints) > len(was.Endpoints):
		return full("endpoints of the member", int64(len(was.Endpoints)), int64(bounds.Endpoints), "endpoints")
	}
	return nil
}
