// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"
	"time"

	"github.com/tombolo-io/tombolo/internal/audit"
	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/policy"
	"github.com/tombolo-io/tombolo/internal/splice"
	"github.com/tombolo-io/tombolo/internal/wire"
)

// account is the record of one stream, written once at its end. Without a Writer
// it costs nothing.
type account struct {
	to     *audit.Writer
	begun  time.Time
	record audit.Record
}

func (a *Agent) account(d wire.Dial) *account {
	if a.audit == nil {
		return nil
	}
	r := audit.Record{
		Kind: audit.KindDial, Time: a.now(), At: audit.AtAgent, Caller: wire.Clean(d.Caller), Egress: wire.Clean(d.EgressType),
		Traceparent: d.Trace, Metadata: audit.MetadataOf(d.Metadata), Asked: d.Address,
	}
	if me := a.identity(); me.joined() {
		r.Cluster, r.Agent = me.who.Cluster.String(), me.who.Name
	}
	return &account{to: a.audit, begun: time.Now(), record: r}
}

// judged notes by which rule an address was dialled.
func (c *account) judged(p *policy.Policy, d wire.Dial, resolved string) {
	at, err := netip.ParseAddrPort(resolved)
	if c == nil || err != nil {
		return
	}
	q := policy.Request{Addr: at.Addr().Unmap(), Port: at.Port()}
	if target, err := policy.ParseTarget(d.Address); err == nil {
		q.Name = target.Name
	}
	c.record.Resolved = resolved
	if v := policy.Decide(q, p); v.Allow {
		c.record.Verdict, c.record.Rule = audit.Allow, v.Rule
	}
}

// fail records what became no stream.
func (c *account) fail(f *fault.Fault) {
	if c == nil {
		return
	}
	switch f.Code {
	case fault.CodePolicyDenied:
		c.record.Kind, c.record.Verdict, c.record.Rule = audit.KindRefusal, audit.Deny, ""
	case fault.CodeAudit, fault.CodeRequest:
		c.record.Kind = audit.KindRefusal
	}
	c.write(f)
}

// ended records a stream that is over.
func (c *account) ended(r splice.Result) {
	if c == nil {
		return
	}
	c.record.Up, c.record.Down = r.Up, r.Down
	if r.Code == "" {
		c.write(nil)
		return
	}
	c.write(fault.New(r.Code, ""))
}

func (c *account) write(f *fault.Fault) {
	c.record.Duration = audit.Millis(time.Since(c.begun))
	c.record.End(f)
	c.to.Write(c.record)
}
