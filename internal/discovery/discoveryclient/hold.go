// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"sync"
	"time"
)

// presence is whether a service tells of members for one secret, and takes their word.
// Where none of a member's services does, a lease that runs out says nothing: it could
// not have been renewed.
//
//	absent ──a session has told all──▶ grace ──it is over──▶ present ──the last session ends──▶ absent
//	  held, staleHold at most           held                 leases end members
type presence struct {
	mu       sync.Mutex
	sessions int
	from     time.Time // from when a member that is not told of is gone
	lastly   time.Time // when it was present last
}

// tells says that a session has told all it knows; what is lacking has grace to come.
func (p *presence) tells(now time.Time, grace time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sessions++; p.sessions == 1 || now.Add(grace).Before(p.from) {
		p.from = now.Add(grace)
	}
}

// ends is the end of a session of which tells has said so.
func (p *presence) ends(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sessions--; p.sessions == 0 && now.After(p.from) {
		p.lastly = now
	}
}

// present reports whether who is not told of is gone.
func (p *presence) present(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sessions > 0 && !now.Before(p.from)
}

// end is when a member counts no longer whose lease ends at until. It is stale from
// then on. What has ended once ends for good: time only adds to it.
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

// graceOf is how long members may take to come back to a service that has told all it
// knows: longer to one that has lost its state, or whose clients we do not know.
func graceOf(settled bool) time.Duration {
	if settled {
		return returnGrace
	}
	return returnGraceSlow
}
