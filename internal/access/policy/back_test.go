// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/policy"
)

func TestPortsOfTheHub(t *testing.T) {
	p, findings := policy.Read("p.yaml", []byte(head+`rules:
- {name: pull, clusters: [c1, "shoot-*"], flows: [back], allow: [registry]}
- {name: any, clusters: [c2], flows: [back], sources: [10.0.0.0/8], allow: ["*"]}
- {name: not-one, callers: ["*/agent/agent-2"], flows: [back], deny: [registry]}
- {name: scanner, flows: ["*"], sources: [192.0.2.66], deny: ["*"]}
- {name: all, allow: ["*", registry]}
- {name: everything, flows: ["*"], allow: ["*", registry]}
- {name: in-all-clusters, clusters: [c3], deny: ["*"]}
`), nil)
	if p == nil {
		t.Fatal(findings)
	}
	for _, c := range []struct {
		cluster, caller, source, port, rule, why string
		allow                                    bool
	}{
		{"c1", agent, "", "registry", "scanner", `port registry is denied by rule "scanner"`, false}, // an unknown source
		{"c1", agent, "203.0.113.1", "registry", "pull", `allowed by "pull"`, true},
		{"shoot-7", agent, "203.0.113.1", "registry", "pull", "", true},
		{"c1", strings.Replace(agent, "agent-1", "agent-2", 1), "203.0.113.1", "registry", "not-one", `port registry is denied by rule "not-one"`, false},
		{"c1", agent, "192.0.2.66", "registry", "scanner", "", false},
		{"c1", agent, "203.0.113.1", "other", "", "no rule allows " + agent + " to reach port other", false},
		{"c2", agent, "10.1.1.1", "other", "any", "", true},
		{"c2", agent, "203.0.113.1", "other", "", "", false},
		{"c3", agent, "203.0.113.1", "registry", "", "", false}, // what is allowed in other flows is not, and what is denied there does not count
	} {
		q := policy.Request{Cluster: c.cluster, Caller: c.caller, Flow: policy.FlowOf(c.caller), Name: c.port}
		if c.source != "" {
			q.Source = netip.MustParseAddr(c.source)
		}
		v := policy.Decide(q, nil, p)
		if v.Allow != c.allow || v.Open || v.Rule != c.rule || c.why != "" && v.Why() != c.why {
			t.Errorf("%+v: %v by %q, %s", c, v.Allow, v.Rule, v.Why())
		}
	}
	if v := policy.Decide(policy.Request{Cluster: "c1", Caller: kas, Flow: policy.FlowOf(kas), Name: "other", Addr: netip.MustParseAddr("10.0.0.1"), Port: 1},
		read(t, "rules: [{name: a, flows: [back], allow: [\"*\"]}]\n", nil)); v.Allow || v.Open {
		t.Errorf("a rule for ports allows a dial: %s", v.Why())
	}
	if v := policy.Decide(policy.Request{Cluster: "c1", Caller: agent, Flow: policy.FlowBack, Name: "registry"}); v.Allow || v.Why() != "there is no rule, so nothing is allowed" {
		t.Errorf("without a rule: %s", v.Why())
	}
}

func TestRulesForPortsThatMeanNothing(t *testing.T) {
	for rule, want := range map[string]string{
		`{name: a, flows: [back, dial], allow: [registry]}`:              "rules[0].flows: back stands alone",
		`{name: a, flows: [back, api], allow: [registry]}`:               "rules[0].flows: back stands alone",
		`{name: a, flows: ["b*", route], deny: [registry]}`:              "rules[0].flows: back stands alone",
		`{name: a, flows: ["b*"], allow: [registry]}`:                    `there is no flow "b*"`,
		`{name: a, flows: [back], uids: [0], allow: [registry]}`:         "rules[0].uids: an agent comes",
		`{name: a, flows: [back], egress: [cluster], allow: [registry]}`: "rules[0].egress: an agent has",
		`{name: a, flows: [back], allow: [10.0.0.5]}`:                    "rules[0].allow: a rule for back names ports",
		`{name: a, flows: [back], deny: [10.0.0.0/8]}`:                   "rules[0].deny: a rule for back names ports",
		`{name: a, flows: [back], allow: ["registry:5000"]}`:             "a rule for back names ports",
		`{name: a, flows: [back], allow: ["*:5000"]}`:                    "a rule for back names ports",
		`{name: a, flows: [back], allow: [registry.example]}`:            "a rule for back names ports",
		`{name: a, flows: [back], allow: ["*.registry"]}`:                "a rule for back names ports",
		`{name: a, flows: [back], allow: ["@l"]}`:                        "a rule for back names ports",
	} {
		doc := head + "rules: [" + rule + "]\nlists: [{name: l, ranges: [10.0.0.0/8]}]\n"
		p, findings := policy.Read("p.yaml", []byte(doc), nil)
		if p != nil || !strings.Contains(fmt.Sprint(findings), want) {
			t.Errorf("%s: %v", rule, findings)
		}
	}
}

// A rule for every flow does not make one for ports superfluous, as it opens none.
func TestARuleForPortsBesideAWiderOne(t *testing.T) {
	doc := head + "rules:\n- {name: wide, flows: [\"*\"], allow: [\"*\"]}\n- {name: pull, flows: [back], allow: [registry]}\n"
	p, findings := policy.Read("p.yaml", []byte(doc), nil)
	if p == nil || len(findings) > 0 {
		t.Errorf("%v", findings)
	}
}
