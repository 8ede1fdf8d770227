// SPDX-License-Identifier: Apache-2.0

// Package watch is what the loops of the controller's features have in common: they read objects of others as soon as
// the API server has their kinds, and do a pass when something changes. It does not know what a pass does.
package watch

import (
	"context"
	"time"
)

// Loop does passes, one at a time, when it is woken.
type Loop struct {
	gather time.Duration
	wake   chan struct{}
}

// NewLoop makes a loop for which the changes of gather are one pass.
func NewLoop(gather time.Duration) *Loop {
	return &Loop{gather: gather, wake: make(chan struct{}, 1)}
}

// Wake asks for a pass that sees what changed before the call. It does not block, and may be called by anybody.
func (l *Loop) Wake() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Run does a pass at once, and then until ctx ends when it is woken or when the last pass said: a pass says after which
// time there has to be another one, and 0 if it waits for a change.
func (l *Loop) Run(ctx context.Context, pass func(context.Context) time.Duration) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-l.wake:
			timer.Reset(l.gather)
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
			select { // what came meanwhile is seen
			case <-l.wake:
			default:
			}
		}
		again := pass(ctx)
		timer.Stop()
		if again > 0 {
			timer.Reset(again)
		}
	}
}
