// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

// keyClash counts how often others spoke with this member's key lately. Once is a state
// directory that was put back; again and again is a machine that was copied, and two
// that answer each other at once would do so for ever.
type keyClash struct {
	floor uint64 // the version that the next entry must be above
	times int
	last  time.Time
	due   time.Time     // when the next entry is to be made; zero: it is there
	wake  chan struct{} // due has changed
}

// met counts an entry that we did not make, and says how long to wait before it is answered.
func (r *keyClash) met(now time.Time) time.Duration {
	if now.Sub(r.last) >= limit.DiscoveryTTL {
		r.times = 0
	}
	r.times, r.last = r.times+1, now
	if r.times < 2 {
		return 0
	}
	return min(rivalWait<<min(r.times-2, 16), rivalWaitMost)
}

// answerLocked makes the next entry above a version, at once or later.
func (a *announcer) answerLocked(now time.Time, known uint64) error {
	a.clash.floor = max(a.clash.floor, known)
	if a.now.member == nil && !a.now.leaving {
		return nil
	}
	wait := a.clash.met(now)
	a.clashed()
	if n := a.clash.times; n >= copiedRivals && n&(n-1) == 0 {
		f := a.sharedLocked(now)
		a.log.Error("another machine announces itself with this member's key", telemetry.AttrCode, f.Code,
			telemetry.AttrReason, f.Explain())
	}
	if wait == 0 || a.now.leaving {
		return a.sealLocked(now, a.now)
	}
	a.clash.due = sooner(a.clash.due, now.Add(wait))
	select {
	case a.clash.wake <- struct{}{}:
	default:
	}
	return nil
}

// sharedLocked reports that another machine has this member's key; nil: none did lately.
func (a *announcer) sharedLocked(now time.Time) *fault.Fault {
	if a.clash.times < copiedRivals || now.Sub(a.clash.last) >= limit.DiscoveryTTL {
		return nil
	}
	return fault.Newf(fault.CodeMemberShared, "another machine announces itself as member %s", a.now.id.key.ID()).
		Whyf("%d entries with this member's key were not made here", a.clash.times).
		Hint("this machine or another one is a copy: stop one, remove %s from its node.stateDir, and start it: "+
			"it is another member then", keyFile)
}

// sharedKey is sharedLocked with the lock.
func (a *announcer) sharedKey(now time.Time) *fault.Fault {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sharedLocked(now)
}

// answerDue is when an entry is to be made out of turn; zero: none is.
func (a *announcer) answerDue() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.clash.due
}
