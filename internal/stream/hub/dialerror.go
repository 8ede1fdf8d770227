// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

// dialError turns a failure before the agent's answer into a fault; an agent's own fault is returned as it is.
func dialError(ctx context.Context, s *session, err error) error {
	var f *fault.Fault
	if errors.As(err, &f) && (f.Code != fault.CodeDialCanceled || ctx.Err() != nil) {
		return err
	}
	var reset *carrier.ResetError
	isReset := errors.As(err, &reset)
	switch {
	case ctx.Err() == nil && (f != nil || isReset && splice.ResetReason(reset.Code) == fault.CodeDialCanceled):
		// We did not cancel: the agent was stopped.
		return fault.Newf(fault.CodeSessionLost, "agent %s was stopped during the dial", s.agent)
	case refused(err) && s.draining.Load():
		return fault.Newf(fault.CodeDraining, "agent %s takes no new streams", s.agent).Because(err)
	case refused(err):
		return fault.Newf(fault.CodeLimit, "agent %s takes no more streams", s.agent).Because(err).
			Hint("it has as many streams, or as many unread bytes, as it may: look at 'tombolo status %s'", s.cluster.name)
	case isReset && ctx.Err() == nil:
		// The end of the stream overtook an answer about the target, and no
		// other agent would answer differently.
		return fault.Newf(splice.ResetReason(reset.Code), "agent %s broke the stream off during the dial", s.agent).
			Whyf("the target may have reset the connection at once").Hint("look at the agent's log")
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fault.Newf(fault.CodeDialTimeout, "the dial did not end in time").
			Whyf("agent %s gave no answer about the target", s.agent).
			Hint("check that the target is alive: tombolo connect %s HOST:PORT", s.cluster.name)
	case ctx.Err() != nil:
		return fault.New(fault.CodeDialCanceled, "the caller gave up")
	}
	return fault.Newf(fault.CodeSessionLost, "the session to agent %s was lost during the dial", s.agent).Because(err)
}
