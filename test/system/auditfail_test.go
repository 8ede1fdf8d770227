// SPDX-License-Identifier: Apache-2.0

package system

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// TestRecordsOfDialsThatFail: both ends say by which rule a dial was tried, through
// which agent, and which address a name led to.
func TestRecordsOfDialsThatFail(t *testing.T) {
	_, port, err := net.SplitHostPort(runtest.Address(9))
	if err != nil {
		t.Fatal(err)
	}
	allowAll := "- {name: open, allow: [\"127.0.0.0/8\"]}\n"
	local := "localhost:" + port
	for name, c := range map[string]struct {
		rules, agent, asked string
		hub, at             audit.Record // what is wanted; resolved: a loopback address of the name
		resolved            bool
	}{
		"nothing listens": {allowAll, "127.0.0.0/8", "127.0.0.1:" + port,
			audit.Record{Kind: audit.KindDial, Verdict: audit.Allow, Rule: "open", Code: "dial_refused"},
			audit.Record{Kind: audit.KindDial, Verdict: audit.Allow, Rule: "127.0.0.0/8", Code: "dial_refused"}, false},
		"nothing listens at a name": {allowAll, "127.0.0.0/8", local,
			audit.Record{Kind: audit.KindDial, Verdict: audit.Allow, Rule: "open", Code: "dial_refused"},
			audit.Record{Kind: audit.KindDial, Verdict: audit.Allow, Rule: "127.0.0.0/8", Code: "dial_refused"}, true},
		"the agent refuses what a name leads to": {allowAll, "127.0.0.99/32", local,
			audit.Record{Kind: audit.KindRefusal, Verdict: audit.Deny, Code: "policy_denied"},
			audit.Record{Kind: audit.KindRefusal, Verdict: audit.Deny, Code: "policy_denied"}, true},
		"it does so without a policy of the hub": {"", "127.0.0.99/32", local,
			audit.Record{Kind: audit.KindRefusal, Verdict: audit.Deny, Code: "policy_denied"},
			audit.Record{Kind: audit.KindRefusal, Verdict: audit.Deny, Code: "policy_denied"}, true},
		"the hub refuses what a name leads to": {"- {name: other, allow: [\"10.0.0.0/8\"]}\n", "127.0.0.0/8", local,
			audit.Record{Kind: audit.KindRefusal, Verdict: audit.Deny, Code: "policy_denied"},
			audit.Record{Kind: audit.KindRefusal, Verdict: audit.Deny, Code: "policy_denied"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := runtest.Dir(t)
			extra := fmt.Sprintf("audit: {path: %q}\n", filepath.Join(dir, "hub.jsonl"))
			if c.rules != "" {
				f := policyFolder(t)
				f.put("p.yaml", c.rules)
				extra += f.extra()
			}
			h, _ := pair(t, hubSpec{extra: extra}, agentSpec{allow: []string{c.agent}, extra: fmt.Sprintf("audit: {path: %q}\n", filepath.Join(dir, "agent.jsonl"))})
			if conn, err := h.ways("c1")[0].dial(runtest.Within(t), c.asked); err == nil {
				conn.Close()
				t.Fatal("it was dialled")
			}
			agent := h.status("c1").Agents[0].ID
			for file, want := range map[string]audit.Record{"hub": c.hub, "agent": c.at} {
				var got []audit.Record
				runtest.Eventually(t, "the record of the "+file, func() bool {
					got = audited(t, filepath.Join(dir, file+".jsonl"), audit.Filter{Agent: agent})
					return len(got) > 0
				})
				r := got[0]
				led := strings.HasPrefix(r.Resolved, "127.") || strings.HasPrefix(r.Resolved, "[::1]:")
				if len(got) != 1 || r.Kind != want.Kind || r.Verdict != want.Verdict || r.Rule != want.Rule || r.Code != want.Code ||
					(r.Policy != "") != (want.Rule != "") && file == "agent" || led != c.resolved || !led && r.Resolved != "" {
					t.Errorf("%s: %+v", file, got)
				}
			}
		})
	}
}

// TestTheAgentCountsRefusalsThatAreAlike: a hub that asks over and over for what the
// agent refuses fills neither its records nor its log, and nothing goes uncounted.
func TestTheAgentCountsRefusalsThatAreAlike(t *testing.T) {
	const flood = 60
	file := filepath.Join(runtest.Dir(t), "agent.jsonl")
	h, a := pair(t, hubSpec{}, agentSpec{allow: []string{"10.99.0.0/16"}, extra: fmt.Sprintf("audit: {path: %q}\n", file)})
	for range flood {
		if conn, err := h.ways("c1")[0].dial(runtest.Within(t), "127.0.0.1:9"); err == nil {
			conn.Close()
			t.Fatal("it was dialled")
		}
	}
	a.stop()
	single, counted := 0, int64(0)
	for _, r := range audited(t, file, audit.Filter{Denied: true}) {
		if r.Kind != audit.KindRefusal || r.Agent == "" || r.Cluster != "c1" || r.Asked != "127.0.0.1:9" || r.Code != "policy_denied" {
			t.Errorf("%+v", r)
		}
		if counted += r.Count; r.Count == 0 {
			single++
		}
	}
	if single > 2*limit.AuditAlike || int64(single)+counted != flood { // a minute may end within
		t.Errorf("%d single records, %d counted, of %d", single, counted, flood)
	}
}
