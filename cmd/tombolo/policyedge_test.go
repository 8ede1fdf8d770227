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
		"c1/api --from 203.0.113.9":                                   "--policy is missing",
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
