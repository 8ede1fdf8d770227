// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// renewals bounds how often each agent and node gets a certificate, by a renewal or by a
// join that repeats an earlier one: each costs a signature and a write to the disk. The
// zero value is ready.
type renewals struct {
	mu sync.Mutex
	of map[string]*rate.Limiter // by identity
}

// take is nil if the identity gets a certificate now.
func (r *renewals) take(identity string, now time.Time, agentLife time.Duration) error {
	period := min(renewEvery, agentLife/renewBurst)
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.of[identity]
	if one == nil {
		r.makeRoomLocked(now)
		one = rate.NewLimiter(rate.Every(period), renewBurst)
		r.of[identity] = one
	}
	if one.AllowN(now, 1) {
		return nil
	}
	wait := time.Duration((1-one.TokensAt(now))*float64(period)) + time.Second
	return fault.Newf(fault.CodeLimit, "%s asks for certificates too often", identity).
		Whyf("it gets %d at once, and one more each %v", renewBurst, period).
		Hint("it is served again in %v; look why it joins or renews so often", wait.Round(time.Second)).After(wait)
}

// makeRoomLocked forgets identities that have used nothing lately, or else the one that used least.
func (r *renewals) makeRoomLocked(now time.Time) {
	if r.of == nil {
		r.of = map[string]*rate.Limiter{}
	}
	if len(r.of) < renewKept {
		return
	}
	best, most := "", -1.0
	for identity, one := range r.of {
		if left := one.TokensAt(now); left >= renewBurst {
			delete(r.of, identity)
		} else if left > most {
			best, most = identity, left
		}
	}
	if len(r.of) >= renewKept {
		delete(r.of, best)
	}
}
