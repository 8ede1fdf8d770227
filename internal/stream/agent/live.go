// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// live are the streams that the rules are asked about again when they change.
type live struct {
	mu  sync.Mutex
	all map[*liveStream]struct{}
}

// liveStream is one of them, with the question that it lives by.
type liveStream struct {
	carrier.Stream
	request policy.Request
	against atomic.Pointer[policy.Verdict] // of changed rules, by which it ended
}

// question is what the rules were asked for an address that was dialled.
func (a *Agent) question(d wire.Dial, resolved string) (q policy.Request) {
	if at, err := netip.ParseAddrPort(resolved); err == nil {
		q.Addr, q.Port = at.Addr().Unmap().WithZone(""), at.Port()
	}
	if target, err := policy.ParseTarget(d.Address); err == nil {
		q.Name = target.Name
	}
	q.Own = a.ownListeners()
	return q
}

// enter judges a stream by the rules as they are now, and keeps it in mind if it may
// live. Both happen at once, so that no change falls between the dial and this.
func (a *Agent) enterLive(s *liveStream) policy.Verdict {
	a.live.mu.Lock()
	defer a.live.mu.Unlock()
	v := policy.Decide(s.request, a.settings.Load().Policy)
	if !v.Allow {
		return v
	}
	if a.live.all == nil {
		a.live.all = map[*liveStream]struct{}{}
	}
	a.live.all[s] = struct{}{}
	return v
}

func (a *Agent) leaveLive(s *liveStream) {
	a.live.mu.Lock()
	defer a.live.mu.Unlock()
	delete(a.live.all, s)
}

// judgeAgain ends the live streams that the rules refuse now.
func (a *Agent) judgeAgain() {
	a.live.mu.Lock()
	streams := make([]*liveStream, 0, len(a.live.all))
	for s := range a.live.all {
		streams = append(streams, s)
	}
	a.live.mu.Unlock()
	p, ended := a.settings.Load().Policy, 0
	for _, s := range streams {
		v := policy.Decide(s.request, p)
		if v.Allow {
			continue
		}
		ended++
		s.against.Store(&v)
		a.log.Debug("a stream ends that the changed rules refuse", telemetry.AttrReason, v.Why())
		s.Reset(splice.ResetCode(fault.CodePolicyDenied))
	}
	if ended > 0 {
		a.log.Info("streams ended that the changed rules refuse", "streams", ended, "version", p.Digest().String())
	}
}

// refusedBy is the fault of a verdict.
func refusedBy(v policy.Verdict) *fault.Fault {
	return fault.New(fault.CodePolicyDenied, "the agent refuses the destination").Whyf("%s", v.Why()).
		Hint("if it shall be reached, start the agent with --allow for it")
}
