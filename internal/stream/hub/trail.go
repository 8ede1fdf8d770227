// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"net/netip"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/stream/hub/authz"
)

// trail is how far a dial came, for the record of one that becomes no stream. It is
// written by the goroutine that dials. nil notes nothing.
type trail struct {
	agent    string         // that was asked last
	ruling   authz.Ruling   // the newest
	resolved netip.AddrPort // of a name: what was tried, or refused first
}

type trailKey struct{}

func withTrail(ctx context.Context, t *trail) context.Context {
	return context.WithValue(ctx, trailKey{}, t)
}

func trailOf(ctx context.Context) *trail {
	t, _ := ctx.Value(trailKey{}).(*trail)
	return t
}

func (t *trail) asks(s *session) {
	if t != nil {
		t.agent = s.agent.String()
	}
}

func (t *trail) ruled(r authz.Ruling) {
	if t != nil {
		t.ruling = r
	}
}

// leads notes what an agent said that it dialled or refused.
func (t *trail) leads(q policy.Request, resolved string) {
	if at, err := netip.ParseAddrPort(resolved); err == nil && at.Addr().Zone() == "" {
		t.leadsTo(q, at)
	}
}

// leadsTo notes an address of the name that was asked for.
func (t *trail) leadsTo(q policy.Request, at netip.AddrPort) {
	if t != nil && q.Name != "" && at.IsValid() {
		t.resolved = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	}
}

// note puts into a record what is known. A verdict of the policy stands there only
// if it allowed: a denial is in the fault, which may as well be the agent's.
func (t *trail) note(r *audit.Record) {
	r.Agent = t.agent
	if t.resolved.IsValid() {
		r.Resolved = t.resolved.String()
	}
	if t.ruling.Judged && t.ruling.Allow {
		r.Verdict, r.Rule, r.Policy = audit.Allow, t.ruling.Rule, t.ruling.Version.String()
	}
}
