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
func (c *account) judged(v policy.Verdict, resolved string, p *policy.Policy) {
	if c == nil {
		return
	}
	c.record.Resolved = resolved
	if v.Allow {
		c.record.Verdict, c.record.Rule, c.record.Policy = audit.Allow, v.Rule, p.Digest().String()
	}
}

// tried notes which address of a name was refused, or failed and by which rule.
func (c *account) tried(q policy.Request, p *policy.Policy) {
	if !q.Addr.IsValid() {
		return
	}
	resolved := ""
	if q.Name != "" {
		resolved = netip.AddrPortFrom(q.Addr, q.Port).String()
	}
	c.judged(policy.Decide(q, p), resolved, p)
}

// overruled notes that changed rules ended the stream.
func (c *account) overruled(v policy.Verdict, p *policy.Policy) {
	if c != nil {
		c.record.Verdict, c.record.Rule, c.record.Policy = audit.Deny, v.Rule, p.Digest().String()
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
		c.record.Policy = ""
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
	what := ""
	if r.Code == fault.CodePolicyDenied { // of the hub, or our own
		what = "a changed policy refuses the stream"
	}
	c.write(fault.New(r.Code, what))
}

func (c *account) write(f *fault.Fault) {
	c.record.Duration = audit.Millis(time.Since(c.begun))
	c.record.End(f)
	c.to.Write(c.record)
}
