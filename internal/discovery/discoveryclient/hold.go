// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"sync"
	"time"
)

// presence is whether a service reports members for one secret, and accepts their entries.
// While no service of a member does, the end of its lease says nothing: it could not have
// been renewed.
//
//	absent ──a session has told all──▶ grace ──it is over──▶ present ──the last session ends──▶ absent
//	  held, staleHold at most           held                 leases end members
type presence struct {
	mu       sync.Mutex
	sessions int
	from     time.Time // from when a member that is not reported counts as gone
	lastly   time.Time // when it was present last
}

// tells notes a session that has received the whole list; members not in it have grace to come back.
func (p *presence) tells(now time.Time, grace time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sessions++; p.sessions == 1 || now.Add(grace).Before(p.from) {
		p.from = now.Add(grace)
	}
}

// ends notes the end of a session that tells has counted.
func (p *presence) ends(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sessions--; p.sessions == 0 && now.After(p.from) {
		p.lastly = now
	}
}

// present reports whether members that are not reported are gone.
func (p *presence) present(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sessions > 0 && !now.Before(p.from)
}

// end is when a member stops to count whose lease ends at until; from until on it is stale.
// What has ended stays ended.
func (p *presence) end(now, until time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	lastly := p.lastly
	if p.sessions > 0 && !now.Before(p.from) {
		lastly = now
	}
	if now.Before(until) || !lastly.IsZero() && !lastly.Before(until) {
		return until
	}
	end := until.Add(staleHold)
	if p.sessions > 0 {
		end = sooner(end, p.from)
	}
	return end
}

// graceOf is how long members may take to come back to a service after its first list: longer
// for a service that has lost its state, or whose clients are not known to be ours.
func graceOf(settled bool) time.Duration {
	if settled {
		return returnGrace
	}
	return returnGraceSlow
}
