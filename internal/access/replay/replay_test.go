// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// TestJudged: only what the hub's policy has decided can be changed by another one.
func TestJudged(t *testing.T) {
	denied := string(fault.CodePolicyDenied)
	for _, c := range []struct {
		what string
		rec  audit.Record
		want judge
	}{
		{"allowed", audit.Record{Verdict: audit.Allow, Resolved: "10.0.0.1:1"}, byHub},
		{"denied by the hub's policy", audit.Record{Verdict: audit.Deny, Policy: "1-00", Code: denied}, byHub},
		{"denied by the agent", audit.Record{Verdict: audit.Deny, Code: denied}, byAgent},
		{"allowed, and denied by the agent", audit.Record{Verdict: audit.Allow, Code: denied}, byAgent},
		{"beyond a limit", audit.Record{Code: string(fault.CodeLimit)}, byNone},
		{"reached at a hub without a policy", audit.Record{Resolved: "10.0.0.1:1"}, byHub},
	} {
		if got := judged(c.rec); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
}

// TestPorts: a record of an agent that asked for a port of the hub is asked again as one.
func TestPorts(t *testing.T) {
	p, problems := policy.Compile([]policy.Rule{{Name: "pull", Flow: []string{policy.FlowBack}, Destination: []string{"registry"}}}, nil)
	if p == nil {
		t.Fatal(problems)
	}
	r := New([]*policy.Policy{p}, func(string) bool { return true })
	for _, name := range []string{"registry", "other"} {
		r.Add(audit.Record{At: audit.AtHub, Kind: audit.KindDial, Frontend: "back", Caller: "spiffe://tombolo.internal/cluster/c1/agent/agent-1",
			Cluster: "c1", Asked: wire.PortAddress(name), Resolved: "10.0.0.5:5000", Source: "192.0.2.1:4711", Verdict: audit.Allow, Policy: "1-a", Rule: "pull"})
	}
	if got := r.Result(); got.Dials != 2 || got.Refused != 1 || len(got.Differences) != 1 || got.Differences[0].Target != wire.PortAddress("other") {
		t.Errorf("%+v", got)
	}
}

// TestAddBounds: records that are no dials of a hub count nowhere, and the table of
// differences is bounded.
func TestAddBounds(t *testing.T) {
	r := New(nil, func(string) bool { return false })
	r.Add(audit.Record{At: audit.AtAgent, Asked: "10.0.0.1:1", Cluster: "c1"})
	r.Add(audit.Record{At: audit.AtHub, Cluster: "c1"})
	r.Add(audit.Record{At: audit.AtHub, Asked: "127.1:22", Cluster: "c1"})
	if got := r.Result(); got.Dials != 0 || got.Unclear != 1 {
		t.Errorf("%+v", got)
	}
	for i := range mostDifferences + 3 {
		rec := audit.Record{At: audit.AtHub, Asked: "10.0.0.1:1", Cluster: "c1", Verdict: audit.Allow}
		rec.Caller = string(rune('a' + i))
		r.Add(rec)
	}
	got := r.Result()
	if len(got.Differences) != mostDifferences || got.More != 3 || got.Refused != mostDifferences+3 {
		t.Errorf("%d differences and %d more of %d", len(got.Differences), got.More, got.Refused)
	}
}
