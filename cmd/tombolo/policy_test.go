// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/admin"
)

const policyHead = "apiVersion: tombolo.dev/v1alpha1\nkind: AccessPolicy\nrules:\n"

func policyFile(t *testing.T, dir, name, rules string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(policyHead+rules), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPolicyCheck(t *testing.T) {
	dir := t.TempDir()
	good := policyFile(t, dir, "a.yaml", "- {name: a, clusters: [c1], allow: [\"10.0.0.0/8:443\"]}\n")
	for _, c := range []struct {
		name string
		args []string
		exit int
		says string
	}{
		{"a good file", []string{good}, 0, "1 file, 1 rule, 0 findings"},
		{"a cluster that is known", []string{good, "--known", "c1"}, 0, "0 findings"},
		{"a cluster that is not", []string{good, "--known", "c2"}, 0, "warning: " + good + ":4:23: rules[0].clusters: rule a never counts: it is about no known cluster"},
		{"and strictly", []string{good, "--known", "c2", "--strict"}, 2, "no known cluster"},
	} {
		got := tombolo(t, append([]string{"policy", "check"}, c.args...)...)
		if got.code != c.exit || !strings.Contains(got.out, c.says) {
			t.Errorf("%s: %+v, want %d and %q", c.name, got, c.exit, c.says)
		}
	}
	bad := policyFile(t, dir, "b.yaml", "- {name: a, allow: [10.0.0.1/8]}\n")
	got := tombolo(t, "policy", "check", dir)
	for _, says := range []string{bad + ":4:21: rules[0].allow[0]:", "did you mean 10.0.0.0/8?"} {
		if got.code != 2 || !strings.Contains(got.out, says) {
			t.Errorf("a folder with a bad file: %+v, want %q", got, says)
		}
	}
	policyFile(t, dir, "b.yaml", "- {name: a, allow: [10.0.0.0/8]}\n")
	if got := tombolo(t, "policy", "check", dir); got.code != 0 || !strings.Contains(got.out, "a.yaml has a rule a too") {
		t.Errorf("a name in two files: %+v", got)
	}
}

func TestPolicyCheckOfRulesThatMeet(t *testing.T) {
	file := policyFile(t, t.TempDir(), "a.yaml", "- {name: a, allow: [10.0.0.0/8]}\n- {name: b, deny: [10.1.0.0/16]}\n- {name: c, allow: [10.1.1.0/24]}\n")
	shadow := file + ":6:3: rules[2]: rule c never counts: deny rule b covers it"
	meet := "information: " + file + ":4:3: rules[0]: allow rule a and deny rule b meet at 10.1.0.0/16: deny wins\n"
	if got := tombolo(t, "policy", "check", file); got.code != 0 || !strings.Contains(got.out, "warning: "+shadow) || strings.Contains(got.out, meet) {
		t.Errorf("%+v", got)
	}
	if got := tombolo(t, "policy", "check", file, "--overlaps"); got.code != 0 || !strings.Contains(got.out, meet) || !strings.Contains(got.out, "2 findings") {
		t.Errorf("%+v", got)
	}
	if got := tombolo(t, "policy", "check", file, "--overlaps", "-o", "json"); !strings.Contains(got.out, `"severity": "information"`) {
		t.Errorf("%+v", got)
	}
	if got := tombolo(t, "policy", "check", file, "--strict"); got.code != 2 {
		t.Errorf("%+v", got)
	}
}

func TestPolicyExplainAFile(t *testing.T) {
	file := policyFile(t, t.TempDir(), "a.yaml", "- {name: a, clusters: [c1], callers: [\"unix:c1/*\"], allow: [\"10.0.0.0/8:443\"]}\n- {name: b, deny: [10.1.0.0/16]}\n")
	for _, c := range []struct {
		args          []string
		verdict, rule string
	}{
		{[]string{"c1", "10.0.0.1:443", "--as", "unix:c1/connect"}, admin.VerdictAllowed, "a"},
		{[]string{"c1", "10.1.0.1:443", "--as", "unix:c1/connect"}, admin.VerdictDenied, "b"},
		{[]string{"c1", "10.0.0.1:443"}, admin.VerdictDenied, ""},
		{[]string{"c1", "x.svc:443", "--as", "unix:c1/connect"}, admin.VerdictOpen, ""},
	} {
		got := tombolo(t, append([]string{"policy", "explain", "--policy", file, "-o", "json"}, c.args...)...)
		var e admin.Explanation
		if err := json.Unmarshal([]byte(got.out), &e); err != nil || got.code != 0 {
			t.Fatalf("%v: %+v: %v", c.args, got, err)
		}
		if e.Verdict != c.verdict || len(e.Hops) != 1 || e.Hops[0].Rule != c.rule || e.Hops[0].Why == "" {
			t.Errorf("%v: %+v, want %s by %q", c.args, e, c.verdict, c.rule)
		}
	}
	ports := policyFile(t, t.TempDir(), "b.yaml", "- {name: pull, clusters: [c1], flows: [back], allow: [registry]}\n")
	for port, verdict := range map[string]string{"registry": admin.VerdictAllowed, "other": admin.VerdictDenied} {
		got := tombolo(t, "policy", "explain", "--policy", ports, "c1", port, "--as", "spiffe://tombolo.internal/cluster/c1/agent/agent-1")
		if got.code != 0 || !strings.Contains(got.out, " to "+port+" in c1: "+verdict) {
			t.Errorf("a port of the hub: %+v", got)
		}
	}
	if got := tombolo(t, "policy", "explain", "--policy", file, "c1", "127.1:80"); got.code == 0 || !strings.Contains(got.err, "HOST:PORT") {
		t.Errorf("an odd form of an address: %+v", got)
	}
}

func TestPolicyDiff(t *testing.T) {
	dir := t.TempDir()
	one := policyFile(t, dir, "one.yaml", "- {name: same, allow: [\"*:1\"]}\n- {name: gone, deny: [10.0.0.0/8]}\n- {name: other, allow: [\"*:2\"]}\n")
	two := policyFile(t, dir, "two.yaml", "- {name: same, allow: [\"*:1\"]}\n- {name: other, clusters: [c1], allow: [\"*:2\"]}\n- {name: new, allow: [\"*:3\"]}\n")
	got := tombolo(t, "policy", "diff", one, two)
	want := "- gone deny=10.0.0.0/8\n- other allow=*:2\n+ other clusters=c1 allow=*:2\n+ new allow=*:3\n"
	if got.code != 0 || got.out != want {
		t.Errorf("%+v, want %q", got, want)
	}
	// What rules name counts as well: users, and the ranges of lists.
	lists := func(name, uid, cidr string) string {
		path := filepath.Join(dir, name)
		text := strings.Replace(policyHead, "rules:", "lists: [{name: l, ranges: ["+cidr+", 10.0.0.0/8]}]\nrules:", 1) +
			"- {name: same, comment: why, uids: [" + uid + "], allow: [\"@l\"]}\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one, two = lists("1.yaml", "0", "192.0.2.0/24"), lists("2.yaml", "1", "198.51.100.0/24")
	want = "- same uids=0 allow=@l # why\n+ same uids=1 allow=@l # why\n- list l: 192.0.2.0/24\n+ list l: 198.51.100.0/24\n"
	if got := tombolo(t, "policy", "diff", one, two); got.code != 0 || got.out != want {
		t.Errorf("%+v, want %q", got, want)
	}
	if got := tombolo(t, "policy", "diff", one, one); got.code != 0 || got.out != "no rule and no list differs\n" {
		t.Errorf("%+v", got)
	}
	if got := tombolo(t, "policy", "diff", one, two, "-o", "json"); got.code != 0 || !strings.Contains(got.out, `"kind": "PolicyDiff"`) || !strings.Contains(got.out, `"198.51.100.0/24"`) {
		t.Errorf("%+v", got)
	}
}

// TestPolicyCheckAsksTheHub: which clusters there are says the hub, and if it was named
// and does not answer that is an error.
func TestPolicyCheckAsksTheHub(t *testing.T) {
	file := policyFile(t, t.TempDir(), "a.yaml", "- {name: a, clusters: [c1, c2], allow: [\"10.0.0.0/8:443\"]}\n- {name: b, clusters: [\"x-*\"], allow: [\"*\"]}\n")
	startHub(t)
	if got := tombolo(t, "token", "create", "--cluster", "c1"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	got := tombolo(t, "policy", "check", file)
	for _, says := range []string{":4:28: rules[0].clusters[1]: no known cluster is c2", ":5:23: rules[1].clusters: rule b never counts", "2 findings"} {
		if got.code != 0 || !strings.Contains(got.out, says) || strings.Contains(got.out, "note:") {
			t.Errorf("%+v, want %q", got, says)
		}
	}
	if got := tombolo(t, "policy", "check", file, "--admin-socket", filepath.Join(t.TempDir(), "no.sock")); got.code == 0 || !strings.Contains(got.err, "hub_unreachable") {
		t.Errorf("a hub that was named and is not there: %+v", got)
	}
	if got := tombolo(t, "policy", "check", file, "--admin-socket", "/no.sock", "--known", "c1,c2,x-1"); got.code != 0 || !strings.Contains(got.out, "0 findings") {
		t.Errorf("with --known no hub is asked: %+v", got)
	}
}
