// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net/netip"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// account is the record of one stream, written once at its end. Without a Writer
// it costs nothing.
type account struct {
	of     *Agent
	begun  time.Time
	record audit.Record
}

func (a *Agent) account(d wire.Dial) *account {
	if a.audit == nil {
		return nil
	}
	r := audit.Record{
		Kind: audit.KindDial, Time: a.now(), At: audit.AtAgent, Caller: wire.Clean(d.Caller),
		Egress:      wire.Clean(d.EgressType),
		Traceparent: d.Trace, Metadata: audit.MetadataOf(d.Metadata), Asked: d.Address,
	}
	if d.Datagrams() {
		r.Network = d.Network
	}
	if me := a.identity(); me.Joined() {
		r.Cluster, r.Agent = me.Who.Cluster.String(), me.Who.Name
	}
	return &account{of: a, begun: time.Now(), record: r}
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

// fail records what became no stream. Of refusals that are many alike the first
// have records of their own, and it reports whether this was one: a hub that asks
// for what we refuse as fast as it can shall not push other records out of the files.
func (c *account) fail(f *fault.Fault) (told bool) {
	if c == nil {
		return true
	}
	switch f.Code {
	case fault.CodePolicyDenied:
		c.record.Kind, c.record.Verdict, c.record.Rule = audit.KindRefusal, audit.Deny, ""
		c.record.Policy = ""
	case fault.CodeAudit, fault.CodeRequest:
		c.record.Kind = audit.KindRefusal
	}
	c.end(f)
	if c.record.Kind != audit.KindRefusal {
		c.of.audit.Write(c.record)
		return true
	}
	told, sums := c.of.refusals.Take(time.Now(), c.record)
	c.of.tellSums(sums)
	if told {
		c.of.audit.Write(c.record)
	}
	return told
}

// tellSums records how many refusals have no record of their own.
func (a *Agent) tellSums(sums []audit.Record) {
	for _, r := range sums {
		r.Time = a.now()
		a.audit.Write(r)
		a.log.Warn("refusals are counted", telemetry.AttrTarget, wire.Clean(r.Asked), telemetry.AttrCaller, r.Caller,
			telemetry.AttrCode, r.Code,
			"count", r.Count, "since", r.Since)
	}
}

// countRefusals ends the intervals in which nothing is refused any more, and the last.
func (a *Agent) countRefusals(ctx context.Context) error {
	turn := func() { a.tellSums(a.refusals.Turn(time.Now())) }
	defer turn()
	return run.Every(ctx, limit.AuditTold, turn)
}

// ended records a stream that is over.
func (c *account) ended(r splice.Result) {
	if c == nil {
		return
	}
	c.record.Up, c.record.Down = r.Up, r.Down
	var f *fault.Fault
	switch r.Code {
	case "":
	case fault.CodePolicyDenied: // of the hub, or our own
		f = fault.New(r.Code, "a changed policy refuses the stream")
	default:
		f = fault.New(r.Code, "")
	}
	c.end(f)
	c.of.audit.Write(c.record)
}

func (c *account) end(f *fault.Fault) {
	c.record.Duration = audit.Millis(time.Since(c.begun))
	c.record.End(f)
}
