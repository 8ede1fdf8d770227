// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
)

// outcome is how the review of a connected agent's token ended.
type outcome string

const (
	good    outcome = "good"
	refused outcome = "refused" // the API server does not know it any more
	failed  outcome = "failed"  // the API server is away, or has answered with an error
)

func outcomeOf(err error) outcome {
	switch {
	case err == nil:
		return good
	case fault.Has(err, fault.CodeUnauthorized):
		return refused
	}
	return failed
}

// nextReview is how long after the last review of a token the next one is made; false: there is none any more, since
// the token ends before, at ends if it says so. That is what happens to every token, and no reason to let an agent go.
// One that was refused is asked about again soon: a TokenReview does not tell a token that is not good from one that
// could not be judged. random is in [0,1).
func nextReview(now, ends time.Time, last outcome, every time.Duration, random float64) (time.Duration, bool) {
	wait := every + time.Duration(random*float64(every)/2)
	if last == refused {
		wait = every / reviewDoubt
	}
	return wait, !over(now.Add(wait), ends)
}

// over says whether a token ends, or has ended: clocks differ.
func over(now, ends time.Time) bool { return !ends.IsZero() && !now.Before(ends.Add(-reviewMargin)) }

// watch reviews the token of a connected agent until ctx or the token ends. The error is that the API server has
// refused it reviewRefusals times in a row.
func (r *reviewer) watch(ctx context.Context, token string) error {
	ends, last, refusals := expiry(token), good, 0
	for {
		wait, ok := nextReview(time.Now(), ends, last, r.every, rand.Float64())
		if !ok || !run.Wait(ctx, wait) {
			return nil
		}
		_, err := r.ask(ctx, token, r.again)
		if ctx.Err() != nil || over(time.Now(), ends) {
			return nil
		}
		last = outcomeOf(err)
		r.count(last)
		switch last {
		case good:
			refusals = 0
		case refused:
			refusals++
			r.forget(token) // or it would be good for another agent
		}
		if refusals >= reviewRefusals {
			return fault.New(fault.CodeUnauthorized, "the token of a connected agent is not valid any more").Because(err).
				Hint("were its pod or its account deleted? An agent with a new token connects again by itself")
		}
	}
}
