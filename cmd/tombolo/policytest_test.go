// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/audit"
)

func auditFile(t *testing.T, records []audit.Record, tail string) string {
	t.Helper()
	var data []byte
	for _, r := range records {
		data = audit.Append(data, r)
	}
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	if err := os.WriteFile(path, append(data, tail...), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func dialRecord(asked, resolved, verdict string) audit.Record {
	return audit.Record{
		Kind: audit.KindDial, Time: time.Unix(1, 0), At: audit.AtHub, Cluster: "c1", Caller: "unix:c1/connect", Egress: "cluster",
		Peer: &audit.Peer{UID: 7}, Asked: asked, Resolved: resolved, Verdict: verdict,
	}
}

// byHubs is a refusal by the hub's policy: it names the version.
func byHubs(r audit.Record) audit.Record {
	r.Kind, r.Policy, r.Code = audit.KindRefusal, "1-00", "policy_denied"
	return r
}

// TestPolicyTestTellsOfNoChangeThatIsNone: what the agent refused the hub's policy had
// let through, and what a limit refused nobody has judged.
func TestPolicyTestTellsOfNoChangeThatIsNone(t *testing.T) {
	agents := dialRecord("10.0.0.1:443", "", audit.Deny) // also a listener of its own
	agents.Kind, agents.Code = audit.KindRefusal, "policy_denied"
	limited := dialRecord("10.1.0.1:443", "", "")
	limited.Kind, limited.Code = audit.KindRefusal, "limit_reached"
	before := dialRecord("10.1.0.2:443", "10.1.0.2:443", "") // at a hub without a policy
	file := auditFile(t, []audit.Record{agents, limited, limited, before}, "")
	path := policyFile(t, t.TempDir(), "p.yaml", "- {name: a, allow: [10.0.0.0/16]}\n")
	got := tombolo(t, "policy", "test", path, "--audit", file, "-o", "json")
	var a rehearsed
	if err := json.Unmarshal([]byte(got.out), &a); err != nil || got.code != 0 {
		t.Fatalf("%+v: %v", got, err)
	}
	if a.Dials != 1 || a.Refused != 1 || a.Admitted != 0 || a.Agents != 1 || a.Unjudged != 2 || len(a.Differences) != 1 {
		t.Errorf("%+v", a)
	}
	text := must(t, "policy", "test", path, "--audit", file)
	for _, want := range []string{"1 more dial refused by the agent", "2 more dials without a verdict"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
}

// TestPolicyTest replays dials: what was allowed and is refused now, and what was
// refused and is allowed now, by every fact that a record holds.
func TestPolicyTest(t *testing.T) {
	agent := dialRecord("10.0.0.1:443", "", audit.Allow)
	agent.At = audit.AtAgent // tells the same dial once more
	file := auditFile(t, []audit.Record{
		dialRecord("10.0.0.1:443", "10.0.0.1:443", audit.Allow),
		dialRecord("10.1.0.1:443", "10.1.0.1:443", audit.Allow),
		dialRecord("10.1.0.1:443", "10.1.0.1:443", audit.Allow),
		dialRecord("db.svc:5432", "10.1.0.9:5432", audit.Allow), // its address decides
		dialRecord("db.svc:5432", "", audit.Allow),              // and is not known here
		byHubs(dialRecord("10.2.0.1:22", "", audit.Deny)),
		dialRecord("127.1:22", "", audit.Deny),
		agent,
	}, "{\"v\":1,\"ti")
	policy := policyFile(t, t.TempDir(), "p.yaml", `- {name: a, clusters: [c1], callers: ["unix:c1/*"], uids: [7], egress: [cluster], allow: ["10.0.0.0/8"]}
- {name: b, deny: [10.1.0.0/16]}
`)
	got := tombolo(t, "policy", "test", policy, "--audit", file, "-o", "json")
	var a rehearsed
	if err := json.Unmarshal([]byte(got.out), &a); err != nil || got.code != 0 {
		t.Fatalf("%+v: %v", got, err)
	}
	if a.Dials != 6 || a.Refused != 3 || a.Admitted != 1 || a.Open != 1 || a.Unclear != 1 || len(a.Differences) != 3 {
		t.Errorf("%+v", a)
	}
	if d := a.Differences[0]; d.Target != "10.1.0.1:443" || d.Dials != 2 || d.Rule != "b" || d.After != "denied" || d.Why == "" {
		t.Errorf("the first difference: %+v", d)
	}
	if !strings.Contains(got.err, file+":9:") {
		t.Errorf("the torn line is not told of: %q", got.err)
	}
	if got := tombolo(t, "policy", "test", policy, "--audit", file, "--strict"); got.code != 4 {
		t.Errorf("--strict: %+v", got)
	}
	text := must(t, "policy", "test", policy, "--audit", file)
	if !strings.Contains(text, "6 dials: 3 that were allowed would be refused, 1 that were refused would be allowed, 1 are open") {
		t.Errorf("%s", text)
	}
	if got := tombolo(t, "policy", "test", policy); got.code == 0 || !strings.Contains(got.err, "--audit") {
		t.Errorf("without records: %+v", got)
	}
	if got := tombolo(t, "policy", "test", policy, "--audit", file+".none"); got.code == 0 {
		t.Errorf("records that there are not: %+v", got)
	}
}

// TestPolicyTestAtAnEdge replays connections: by flow, name and source, at an edge and at ext-authz.
func TestPolicyTestAtAnEdge(t *testing.T) {
	visit := func(flow, source, asked, verdict, code string) audit.Record {
		r := audit.Record{Kind: audit.KindDial, Time: time.Unix(1, 0), At: audit.AtEdge, Frontend: "tls", Cluster: "c1",
			Egress: flow, Source: source, Asked: asked, Verdict: verdict, Code: code}
		if verdict == audit.Allow {
			r.Resolved = "192.0.2.1:6443"
		}
		return r
	}
	const vpn, denied = "outbound|1194||vpn-seed-server.shoot--p--c1.svc.cluster.local", "policy_denied"
	unjudged := visit("api", "203.0.113.9:4711", "api.c1.example.org", "", "ok")
	unjudged.Resolved = "192.0.2.1:6443" // an edge without a policy
	sum := visit("", "", "", audit.Deny, denied)
	sum.Count = 40
	file := auditFile(t, []audit.Record{
		visit("api", "203.0.113.9:4711", "api.c1.example.org", audit.Allow, "ok"),
		unjudged,
		visit("api", "[2001:db8::1]:4711", "api.c1.example.org", audit.Allow, "ok"),
		visit("api", "203.0.113.7", "api.c1.example.org", audit.Deny, denied), // of ext-authz
		visit("api", "203.0.113.8:1", "other.c1.example.org", audit.Allow, "ok"),
		visit("vpn", "203.0.113.9:4711", vpn, audit.Allow, "dial_refused"),
		visit("ingress", "203.0.113.9:4711", "www.example.org", audit.Allow, "ok"),
		visit("api", "203.0.113.9:4711", "api.c1.example.org", "", "limit_reached"),
		visit("api", "junk", "api.c1.example.org", audit.Allow, "ok"),
		visit("", "203.0.113.9:4711", "", "", "name_missing"),
		sum,
	}, "")
	path := policyFile(t, t.TempDir(), "p.yaml", `- {name: office, clusters: [c1], flows: [api], sources: [203.0.113.0/24], allow: [api.c1.example.org]}
- {name: vpn, clusters: [c1], flows: [vpn], sources: [203.0.113.0/24], allow: ["*"]}
- {name: www, clusters: [c1], flows: [ingress], sources: [203.0.113.0/24], allow: ["*:443"]}
`)
	var a rehearsed
	if err := json.Unmarshal([]byte(must(t, "policy", "test", path, "--audit", file, "-o", "json")), &a); err != nil {
		t.Fatal(err)
	}
	if a.Dials != 7 || a.Refused != 2 || a.Admitted != 1 || a.Open != 1 || a.Unclear != 1 || a.Unjudged != 41 || len(a.Differences) != 3 {
		t.Errorf("%+v", a)
	}
	text := must(t, "policy", "test", path, "--audit", file)
	for _, want := range []string{
		"c1/api   2001:db8::1  api.c1.example.org    allowed  denied",
		"c1/api   203.0.113.8  other.c1.example.org  allowed  denied",
		"c1/api   203.0.113.7  api.c1.example.org    denied   allowed  office",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	// A tenant that is protected: what no rule allows is refused, whatever the policy is about.
	empty := policyFile(t, t.TempDir(), "p.yaml", "- {name: a, clusters: [c1], allow: [\"*\"]}\n")
	for _, c := range []struct {
		args    []string
		refused int
	}{{nil, 0}, {[]string{"--tenants", tenantFile(t, t.TempDir(), "c1", "  protected: true\n")}, 6}} {
		args := append([]string{"policy", "test", empty, "--audit", file, "-o", "json"}, c.args...)
		if err := json.Unmarshal([]byte(must(t, args...)), &a); err != nil || a.Refused != c.refused {
			t.Errorf("%v: %+v, %v", c.args, a, err)
		}
	}
}
