// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const edgeRules = `- {name: office, clusters: [c1], flows: [api], sources: [203.0.113.0/24], allow: ["*"]}
- {name: laptop, clusters: [c1], flows: [api], sources: [203.0.113.7], deny: ["*"]}
- {name: named, clusters: [c1], flows: [ingress], sources: [203.0.113.0/24], allow: ["www.example.org", "*.app.example.org:8443"]}
- {name: seeds, group: platform, flows: [api, vpn, proxy, ingress], sources: ["10.250.0.0/16", "fd00:10::/64"], allow: ["*"]}
- {name: dials, clusters: [c2], allow: ["*"]}
`

func tenantFile(t *testing.T, dir, name, more string) string {
	t.Helper()
	text := "apiVersion: tombolo.dev/v1alpha1\nkind: EdgeTenant\nmetadata: {name: " + name + "}\nspec:\n" + more +
		"  ways:\n  - {flow: api, names: [api." + name + ".example.org], upstreams: [\"192.0.2.1:6443\"]}\n"
	path := filepath.Join(dir, name+".yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPolicyExplainAtAnEdge(t *testing.T) {
	dir := t.TempDir()
	file := policyFile(t, dir, "p.yaml", edgeRules)
	tenants := filepath.Join(dir, "tenants")
	if err := os.Mkdir(tenants, 0o700); err != nil {
		t.Fatal(err)
	}
	tenantFile(t, tenants, "c1", "")
	tenantFile(t, tenants, "c3", "  protected: true\n")
	for _, c := range []struct {
		args                                  string
		verdict, rule, line, group, byDefault string
		protected, note                       string
	}{
		{"c1/api --from 203.0.113.9", "allowed", "office", "4", "", "denied", `rule "office" (` + file + `:4)`, "tenants were not read"},
		{"c1/api --from ::ffff:203.0.113.9", "allowed", "office", "4", "", "denied", "office", ""},
		{"c1/api --from 203.0.113.7", "denied", "laptop", "5", "", "denied", "office", ""},
		{"c1/api --from 198.51.100.1", "denied", "", "", "", "denied", "office", ""},
		{"c1/api --from fd00:10::7", "allowed", "seeds", "7", "platform", "denied", "office", ""},
		{"c1/vpn --from 198.51.100.1", "allowed", "", "", "", "allowed", "", ""},
		{"c1/proxy --from 10.250.0.1", "allowed", "seeds", "7", "platform", "allowed", "", ""},
		{"c2/api --from 198.51.100.1", "allowed", "", "", "", "allowed", "", ""}, // a rule about dials protects nothing here
		{"c1/ingress --from 203.0.113.9", "denied", "", "", "", "denied", "named", "without --name"},
		{"c1/ingress --from 203.0.113.9 --name WWW.example.org", "allowed", "named", "6", "", "denied", "named", "without --port"},
		{"c1/ingress --from 203.0.113.9 --name a.app.example.org", "denied", "", "", "", "denied", "named", "without --port"},
		{"c1/ingress --from 203.0.113.9 --name a.app.example.org --port 8443", "allowed", "named", "6", "", "denied", "named", ""},
		{"c3/vpn --from 198.51.100.1 --tenants " + tenants, "denied", "", "", "", "denied", "the tenant", "no way with the flow vpn"},
		{"c4/api --from 198.51.100.1 --tenants " + tenants, "allowed", "", "", "", "allowed", "", "no tenant is called c4"},
		{"c1/api --from 203.0.113.9 --tenants " + tenants + " --name api.c3.example.org", "allowed", "office", "4", "", "denied", "office",
			"the name api.c3.example.org leads to c3/api"},
	} {
		t.Run(c.args, func(t *testing.T) {
			args := append([]string{"policy", "explain", "--policy", dir, "-o", "json"}, strings.Fields(c.args)...)
			var e edgeExplanation
			if err := json.Unmarshal([]byte(must(t, args...)), &e); err != nil {
				t.Fatal(err)
			}
			at := ""
			if c.line != "" {
				at = file + ":" + c.line
			}
			if e.Verdict != c.verdict || e.Rule != c.rule || e.At != at || e.Group != c.group || e.Default != c.byDefault || e.Why == "" ||
				!strings.Contains(e.Protected, c.protected) || (c.protected == "") != (e.Protected == "") {
				t.Errorf("%+v", e)
			}
			if c.note != "" && !strings.Contains(fmt.Sprint(e.Notes), c.note) {
				t.Errorf("%q, want %q", e.Notes, c.note)
			}
		})
	}
	text := must(t, "policy", "explain", "c1/api", "--from", "203.0.113.7", "--policy", file)
	want := "c1/api from 203.0.113.7: denied\n\n" +
		"why:      203.0.113.7 is denied for c1/api by rule \"laptop\"\n" +
		"rule:     laptop (" + file + ":5)\n" +
		"default:  denied: protected by rule \"office\" (" + file + ":4)\n"
	if !strings.HasPrefix(text, want) {
		t.Errorf("%s\nwant %s", text, want)
	}
	for args, says := range map[string]string{
		"c1/api --policy " + file:                                     "--from is missing",
		"c1/api --from 203.0.113.9 --tenants x":                       "--tenants needs --policy",
		"c1/api --from 203.0.113.9 --admin-socket /no.sock":           "no 'tombolo edge' answers at /no.sock",
		"c1/apj --from 203.0.113.9 --policy " + file:                  "did you mean api?",
		"c1/dial --from 203.0.113.9 --policy " + file:                 "HOST:PORT",
		"c1/api --from 203.0.113.9 --as x --policy " + file:           "--as has no meaning at an edge",
		"c1/api --from localhost --policy " + file:                    "is no IP address",
		"c1/api --from fe80::1%eth0 --policy " + file:                 "is no IP address",
		"C_1/api --from 203.0.113.9 --policy " + file:                 "C_1",
		"c1/api --from 203.0.113.9 --name a..b --policy " + file:      "--name",
		"c1 10.0.0.1:443 --name a --policy " + file:                   "--name is about an edge",
		"c1/api --from 203.0.113.9 --policy " + file + ".no":          "p.yaml.no",
		"c1/api --from 1.2.3.4 --policy " + file + " --tenants /no/x": "/no/x",
	} {
		if got := tombolo(t, append([]string{"policy", "explain"}, strings.Fields(args)...)...); got.code == 0 || !strings.Contains(got.err, says) {
			t.Errorf("%s: %+v, want %q", args, got, says)
		}
	}
}

func TestPolicyDiffAtAnEdge(t *testing.T) {
	dir := t.TempDir()
	one := policyFile(t, dir, "one.yaml", edgeRules)
	two := policyFile(t, dir, "two.yaml", strings.Replace(edgeRules, "203.0.113.7", "203.0.113.8", 1)+
		"- {name: vpn, clusters: [c1], flows: [vpn], sources: [0.0.0.0/0], allow: [\"*\"]}\n")
	want := "~ at an edge, c1/api from 203.0.113.7: denied -> allowed: rule office\n" +
		"~ at an edge, c1/api from 203.0.113.8: allowed -> denied: rule laptop\n" +
		"~ at an edge, c1/vpn from ::-fd00:f:ffff:ffff:ffff:ffff:ffff:ffff, fd00:10:0:1::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff: " +
		"allowed -> denied: no rule decides\n"
	if got := must(t, "policy", "diff", one, two); !strings.HasSuffix(got, want) || !strings.HasPrefix(got, "- laptop") {
		t.Errorf("%s\nwant %s", got, want)
	}
	var a compared
	if err := json.Unmarshal([]byte(must(t, "policy", "diff", one, two, "-o", "json")), &a); err != nil || len(a.Edge) != 3 ||
		a.Edge[1].Rule != "laptop" || a.Edge[1].Sources[0] != "203.0.113.8" || a.Edge[1].After != "denied" {
		t.Errorf("%+v, %v", a, err)
	}
	// Where the tenant is protected anyway, only the new rule's sources change: from denied to allowed.
	tenant := tenantFile(t, t.TempDir(), "c1", "  protected: true\n")
	want = "~ at an edge, c1/vpn from 0.0.0.0-10.249.255.255, 10.251.0.0-255.255.255.255: denied -> allowed: rule vpn\n"
	if got := must(t, "policy", "diff", one, two, "--tenants", tenant); !strings.HasSuffix(got, want) {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestPolicyCheckOfLockouts(t *testing.T) {
	dir := t.TempDir()
	file := policyFile(t, dir, "p.yaml", edgeRules+
		"- {name: vpn, clusters: [\"c1*\"], flows: [vpn], sources: [192.0.2.0/25], allow: [\"*\"]}\n")
	dials := policyFile(t, t.TempDir(), "d.yaml", "- {name: a, clusters: [c1], allow: [\"10.0.0.0/8\"]}\n")
	at := func(line string) string { return file + ":" + line + ":3: rules[" }
	for name, c := range map[string]struct {
		args, ssh, connection string
		exit                  int
		says, not             string
	}{
		"an address that gets in":  {"--from 203.0.113.9", "", "", 0, "would lock out your own address 203.0.113.9 (--from); not for nodes", "error"},
		"one that a rule denies":   {"--from 203.0.113.7", "", "", 2, "error: " + at("5") + "1]: c1/api locks out your own address 203.0.113.7: 203.0.113.7 is denied for c1/api by rule \"laptop\"; let 203.0.113.7 in, or repeat with --force", ""},
		"one that no rule allows":  {"--from 198.51.100.1", "", "", 2, "error: " + at("4") + "0]: c1/api locks out your own address 198.51.100.1: rule \"office\" protects it, and no rule allows 198.51.100.1 for c1/api", ""},
		"an IPv6 address":          {"--from 2001:db8::1", "", "", 2, "no rule allows 2001:db8::1 for c1/api", "vpn locks"},
		"an IPv4-mapped address":   {"--from ::ffff:203.0.113.9", "", "", 0, "0 findings", ""},
		"by force":                 {"--from 203.0.113.7 --force", "", "", 0, "warning: " + at("5"), "error"},
		"by force, strictly":       {"--from 203.0.113.7 --force --strict", "", "", 2, "warning: " + at("5"), ""},
		"the platform's group":     {"--from 10.250.7.7", "", "", 0, "0 findings", ""},
		"the SSH client":           {"", "203.0.113.7 4711 22", "", 2, "your own address 203.0.113.7 (SSH_CLIENT)", ""},
		"the SSH connection":       {"", "", "fe80::1%eth0 4711 fe80::2%eth0 22", 2, "your own address fe80::1 (SSH_CONNECTION)", ""},
		"what is named, not SSH":   {"--from 203.0.113.9", "203.0.113.7 4711 22", "", 0, "0 findings", "SSH"},
		"nobody":                   {"", "", "", 0, "note: did not look whether an edge would lock you out: name your own address with --from", "error"},
		"nodes that get in":        {"--nodes c1=10.250.0.0/16", "", "", 0, "would lock out the nodes c1=10.250.0.0/16", "error"},
		"nodes, of which half do":  {"--nodes c1x=192.0.2.0/24", "", "", 2, "c1x/vpn locks out the nodes 192.0.2.0/24: rule \"vpn\" protects it, and no rule allows 192.0.2.128", "c1*/vpn locks"},
		"nodes of a known cluster": {"--nodes c1x=192.0.2.0/24 --known c1,c1x,c2", "", "", 2, "c1x/vpn locks out the nodes 192.0.2.0/24: rule \"vpn\" protects it, and no rule allows 192.0.2.128", "c1x/api"},
		"nodes of all":             {"--nodes 192.0.2.0/24", "", "", 2, "c1/vpn locks out the nodes 192.0.2.0/24", ""},
		"nodes and the API":        {"--nodes c1=192.0.2.1", "", "", 2, "c1/api locks out the nodes 192.0.2.1:", "c1/vpn locks"},
		"ingress is for others":    {"--nodes c1=10.250.0.0/16,c1=fd00:10::/64 --from 203.0.113.9", "", "", 0, "0 findings", ""},
		"no address":               {"--from localhost", "", "", 1, "", ""},
		"no range":                 {"--nodes 192.0.2.1/24", "", "", 1, "", ""},
		"no cluster":               {"--nodes C_1=192.0.2.0/24", "", "", 1, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("SSH_CLIENT", c.ssh)
			t.Setenv("SSH_CONNECTION", c.connection)
			args := append([]string{"policy", "check", file}, strings.Fields(c.args)...)
			if !strings.Contains(c.args, "--known") {
				args = append(args, "--known", "c1,c2")
			}
			got := tombolo(t, args...)
			if c.exit == 1 && got.code != 0 && got.out == "" {
				return
			}
			if got.code != c.exit || !strings.Contains(got.out, c.says) || c.not != "" && strings.Contains(got.out, c.not) {
				t.Errorf("%+v, want %q", got, c.says)
			}
		})
	}
	t.Setenv("SSH_CLIENT", "203.0.113.7 4711 22")
	if got := tombolo(t, "policy", "check", dials, "--known", "c1"); got.code != 0 || strings.Contains(got.out, "edge") {
		t.Errorf("rules about dials: %+v", got)
	}
	tenant := tenantFile(t, t.TempDir(), "c1", "")
	if got := tombolo(t, "policy", "check", file, "--tenants", tenant, "--from", "203.0.113.9"); got.code != 0 ||
		!strings.Contains(got.out, "no known cluster is c2") && !strings.Contains(got.out, "rule dials never counts") {
		t.Errorf("tenants are the clusters: %+v", got)
	}
	var many strings.Builder
	for i := range 30 {
		fmt.Fprintf(&many, "- {name: r%d, clusters: [c%[1]d], flows: [api], sources: [192.0.2.%[1]d], allow: [\"*\"]}\n", i)
	}
	file = policyFile(t, t.TempDir(), "many.yaml", many.String())
	if got := tombolo(t, "policy", "check", file); got.code != 2 || !strings.Contains(got.out, "and 10 more ways are closed to them") ||
		strings.Count(got.out, "locks out") != 20 {
		t.Errorf("%+v", got)
	}
}
