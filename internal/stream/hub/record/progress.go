// SPDX-License-Identifier: Apache-2.0

package record

import (
	"net/netip"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/access/authz"
	"github.com/tombolo-io/tombolo/internal/access/policy"
)

// Progress is how far a dial came, for the record of one that becomes no stream. The
// goroutine that dials writes it. A nil one notes nothing.
type Progress struct {
	agent    string         // the last one that was asked
	ruling   authz.Ruling   // the newest
	resolved netip.AddrPort // of a name: what was tried, or refused first
}

// Asks notes the agent that is asked.
func (p *Progress) Asks(agent string) {
	if p != nil {
		p.agent = agent
	}
}

// Ruled notes what the policy says.
func (p *Progress) Ruled(r authz.Ruling) {
	if p != nil {
		p.ruling = r
	}
}

// Leads notes what an agent said that it dialled or refused.
func (p *Progress) Leads(q policy.Request, resolved string) {
	if p == nil {
		return
	}
	if at, err := netip.ParseAddrPort(resolved); err == nil && at.Addr().Zone() == "" {
		p.LeadsTo(q, at)
	}
}

// LeadsTo notes an address of the name that was asked for.
func (p *Progress) LeadsTo(q policy.Request, at netip.AddrPort) {
	if p != nil && q.Name != "" && at.IsValid() {
		p.resolved = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	}
}

// note puts into a record what is known. A verdict of the policy is noted only if it allowed:
// a denial is in the fault, which may also be the agent's.
func (p *Progress) note(r *audit.Record) {
	r.Agent = p.agent
	if p.resolved.IsValid() {
		r.Resolved = p.resolved.String()
	}
	if p.ruling.Judged && p.ruling.Allow {
		r.Verdict, r.Rule, r.Policy = audit.Allow, p.ruling.Rule, p.ruling.Version.String()
	}
}
