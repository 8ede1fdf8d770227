// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

// TestWhichDialsMoveOn: another agent is asked when this one has seen nothing of
// the dial, or has gone; never when it may have said something about the target.
func TestWhichDialsMoveOn(t *testing.T) {
	reset := func(code uint32) error { return &carrier.ResetError{Code: code} }
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		err      error
		draining bool
		ctx      context.Context
		want     fault.Code
		moves    bool
	}{
		"one stream too many":              {reset(carrier.ResetRefused), false, t.Context(), fault.CodeLimit, true},
		"a stream that came after a drain": {reset(carrier.ResetRefused), true, t.Context(), fault.CodeDraining, true},
		"the mux knows of the drain":       {fault.New(fault.CodeDraining, "x"), false, t.Context(), fault.CodeDraining, true},
		"the agent drains by its own code": {reset(splice.ResetCode(fault.CodeDraining)), false, t.Context(), fault.CodeDraining, true},
		"the session was lost":             {fault.New(fault.CodeSessionLost, "x"), false, t.Context(), fault.CodeSessionLost, true},
		"the connection broke":             {errors.New("EPIPE"), false, t.Context(), fault.CodeSessionLost, true},
		"the agent says that we gave up":   {fault.New(fault.CodeDialCanceled, "x"), false, t.Context(), fault.CodeSessionLost, true},
		"the agent resets as if we did":    {reset(splice.ResetCode(fault.CodeDialCanceled)), false, t.Context(), fault.CodeSessionLost, true},
		"we did give up, and it says so":   {fault.New(fault.CodeDialCanceled, "x"), false, canceled, fault.CodeDialCanceled, false},
		"the agent is stopped":             {reset(splice.ResetCode(fault.CodeSessionLost)), false, t.Context(), fault.CodeSessionLost, true},
		"an answer overtaken by its end":   {reset(0), false, t.Context(), fault.CodeStreamReset, false},
		"the target reset the connection":  {reset(splice.ResetCode(fault.CodeStreamReset)), false, t.Context(), fault.CodeStreamReset, false},
		"the target refused":               {fault.New(fault.CodeDialRefused, "x"), false, t.Context(), fault.CodeDialRefused, false},
		"the agent itself reached a bound": {fault.New(fault.CodeLimit, "x"), false, t.Context(), fault.CodeLimit, false},
		"the caller gave up":               {reset(0), false, canceled, fault.CodeDialCanceled, false},
		"a code that nobody knows":         {reset(4711), false, t.Context(), fault.CodeStreamReset, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &session{cluster: &cluster{}}
			s.draining.Store(c.draining)
			err := dialError(c.ctx, s, c.err)
			if f := fault.From(err); f.Code != c.want || retriable(err) != c.moves {
				t.Errorf("%v, moves=%v; want %s, %v", err, retriable(err), c.want, c.moves)
			}
		})
	}
}
