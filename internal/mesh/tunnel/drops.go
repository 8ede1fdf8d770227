// SPDX-License-Identifier: Apache-2.0

package tunnel

import "sync/atomic"

// Counts are what a Socket and its engines dropped, in packets, by reason. Another socket of the mesh has them too.
type Counts struct {
	Unknown   atomic.Uint64 // no kind of packet that we know
	Stray     atomic.Uint64 // handshakes of WireGuard for another key, or no message of it at all
	NoPath    atomic.Uint64 // to a peer that cannot be reached
	Unsent    atomic.Uint64 // the kernel refused to send it
	Unrelayed atomic.Uint64 // through a relay, of a peer that is not configured, or no WireGuard
	Probes    atomic.Uint64 // probes that were too large, or came faster than they were taken
	STUN      atomic.Uint64 // packets of STUN, likewise
	Inject    atomic.Uint64 // through a relay, likewise
	Failed    atomic.Uint64 // reads that failed
}

// Drop is how many packets were dropped for a reason.
type Drop struct {
	Reason  string
	Packets uint64
}

// Counts are what was dropped so far.
func (s *Socket) Counts() *Counts { return &s.counts }

// Drops are what was dropped so far between the network and a link, which may be nil: every
// reason that there is, always in one order.
func (s *Socket) Drops(t *Tun) []Drop {
	var link uint64
	if t != nil {
		link = t.Lost.Load()
	}
	return s.counts.Drops(link)
}

// DropReasons are the reasons of Drops, in its order.
func DropReasons() []string {
	var out []string
	for _, d := range new(Counts).Drops(0) {
		out = append(out, d.Reason)
	}
	return out
}

// Drops names the counts as metrics and status do.
//
//	link: what a link has dropped
func (c *Counts) Drops(link uint64) []Drop {
	return []Drop{
		{"unknown", c.Unknown.Load()},
		{"stray", c.Stray.Load()},
		{"no_peer", c.Unrelayed.Load()},
		{"no_path", c.NoPath.Load()},
		{"unsent", c.Unsent.Load()},
		{"probes", c.Probes.Load()},
		{"stun", c.STUN.Load()},
		{"queue", c.Inject.Load()},
		{"link", link},
		{"read", c.Failed.Load()},
	}
}
