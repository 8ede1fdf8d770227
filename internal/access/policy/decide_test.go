// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/policy"
)

const head = "apiVersion: tombolo.dev/v1alpha1\nkind: AccessPolicy\n"

// read compiles a file without problems.
func read(t testing.TB, text string, files map[string]string) *policy.Policy {
	t.Helper()
	p, findings := policy.Read("p.yaml", []byte(head+text), func(path string) ([]byte, error) {
		if s, ok := files[path]; ok {
			return []byte(s), nil
		}
		return nil, errors.New("no such file")
	})
	if len(findings) > 0 || p == nil {
		t.Fatalf("%v", findings)
	}
	return p
}

// ask reads "cluster caller egress destination [source]"; - is nothing. A
// destination is host:port or name=address:port.
func ask(t testing.TB, text string) policy.Request {
	t.Helper()
	f := strings.Fields(text)
	for i := range f {
		f[i] = strings.TrimPrefix(f[i], "-")
	}
	q := policy.Request{Cluster: f[0], Caller: f[1], Egress: f[2], Flow: policy.FlowDial}
	name, at, resolved := strings.Cut(f[3], "=")
	if !resolved {
		at = name
	}
	target, err := policy.ParseTarget(at)
	if err != nil {
		t.Fatal(err)
	}
	q.Name, q.Addr, q.Port = target.Name, target.Addr, target.Port
	if resolved {
		q.Name = name
	}
	if len(f) > 4 {
		q.Source = netip.MustParseAddr(f[4])
	}
	return q
}

func verdict(v policy.Verdict) string {
	switch {
	case v.Allow:
		return "allow " + v.Rule
	case v.Open:
		return "open"
	}
	return strings.TrimSpace("deny " + v.Rule)
}

const rules = `
lists:
- name: nodes
  ranges: [192.168.0.0/24, "fd00:7::/64"]
- name: office
  file: office.txt
rules:
- name: kubelets
  comment: logs and exec
  clusters: ["shoot-*", c1]
  egress: [cluster]
  allow: ["@nodes:10250"]
- name: webhooks
  clusters: [c1]
  callers: ["unix:c1/connect", "spiffe://t/cluster/c1/client/*"]
  allow: ["*.svc.cluster.local:443", "hook.example.com", "10.96.0.0/12:443,8443"]
- name: not-the-database
  deny: ["10.96.7.0/24", "db.svc.cluster.local", "[fd00:7::7]:10250"]
- name: people
  clusters: [c2]
  sources: ["@office", 198.51.100.7]
  allow: ["10.0.0.0/8"]
- name: not-from-there
  clusters: [c2]
  sources: [203.0.113.66]
  deny: ["*"]
- name: everything
  clusters: [lab]
  allow: ["*"]
- name: metadata-of-the-lab
  clusters: [lab2]
  allow: ["*:80", "169.254.169.254:80"]
`

func TestDecide(t *testing.T) {
	p := read(t, rules, map[string]string{"office.txt": "# the office\n203.0.113.0/24 # both floors\n\n2001:db8::/48\n"})
	for _, c := range []struct{ name, ask, want string }{
		{"a list and a port", "c1 - cluster 192.168.0.9:10250", "allow kubelets"},
		{"IPv6 of a list", "c1 - cluster [fd00:7::1]:10250", "allow kubelets"},
		{"deny wins over allow", "c1 - cluster [fd00:7::7]:10250", "deny not-the-database"},
		{"a pattern of clusters", "shoot-a - cluster 192.168.0.9:10250", "allow kubelets"},
		{"another cluster", "c3 - cluster 192.168.0.9:10250", "deny"},
		{"a cluster that only begins like it", "c11 - cluster 192.168.0.9:10250", "deny"},
		{"no cluster", "- - cluster 192.168.0.9:10250", "deny"},
		{"another egress type", "c1 - etcd 192.168.0.9:10250", "deny"},
		{"an unknown egress type", "c1 - - 192.168.0.9:10250", "deny"},
		{"another port", "c1 - cluster 192.168.0.9:22", "deny"},
		{"a caller", "c1 unix:c1/connect - 10.96.1.1:443", "allow webhooks"},
		{"a pattern of callers", "c1 spiffe://t/cluster/c1/client/kas - 10.96.1.1:443", "allow webhooks"},
		{"another caller", "c1 unix:c1/konnectivity - 10.96.1.1:443", "deny"},
		{"a range that is denied within one that is allowed", "c1 unix:c1/connect - 10.96.7.1:443", "deny not-the-database"},
		{"a denied range of a cluster without rules", "c9 - - 10.96.7.1:443", "deny not-the-database"},
		{"a name with its address", "c1 unix:c1/connect - a.svc.cluster.local=172.16.0.1:443", "allow webhooks"},
		{"a name whose address is denied", "c1 unix:c1/connect - a.svc.cluster.local=10.96.7.1:443", "deny not-the-database"},
		{"a name that is denied", "c1 unix:c1/connect - db.svc.cluster.local=172.16.0.1:443", "deny not-the-database"},
		{"a name that is denied needs no address", "c1 unix:c1/connect - db.svc.cluster.local:443", "deny not-the-database"},
		{"a name without its address", "c1 unix:c1/connect - a.svc.cluster.local:443", "open"},
		{"a name of no rule, which may have an address of one", "c1 unix:c1/connect - b.example.com:443", "open"},
		{"a name on a port of no rule", "c1 unix:c1/connect - b.example.com:22", "deny"},
		{"a name for a caller of no rule", "c1 unix:c9/connect - b.example.com:443", "deny"},
		{"a name whose address is special", "c1 unix:c1/connect - a.svc.cluster.local=127.0.0.1:443", "deny"},
		{"a source of a list's file", "c2 - - 10.1.2.3:1 203.0.113.9", "allow people"},
		{"an IPv6 source", "c2 - - 10.1.2.3:1 2001:db8::9", "allow people"},
		{"a mapped source", "c2 - - 10.1.2.3:1 ::ffff:198.51.100.7", "allow people"},
		{"a source that is denied", "c2 - - 10.1.2.3:1 203.0.113.66", "deny not-from-there"},
		{"another source", "c2 - - 10.1.2.3:1 192.0.2.1", "deny"},
		{"no source: an allow rule does not match, a deny rule does", "c2 - - 10.1.2.3:1", "deny not-from-there"},
		{"everything", "lab - - 8.8.8.8:53", "allow everything"},
		{"everything is not what is special", "lab - - 169.254.169.254:80", "deny"},
		{"everything is not what is special in another form", "lab - - [64:ff9b::a9fe:a9fe]:80", "deny"},
		{"what is special by its own rule", "lab2 - - 169.254.169.254:80", "allow metadata-of-the-lab"},
		{"what is denied as NAT64 would carry it", "lab - - [64:ff9b::a60:701]:443", "deny not-the-database"},
		{"what is denied as 6to4 would carry it", "lab - - [2002:a60:701::1]:443", "deny not-the-database"},
		{"what is denied, mapped", "lab - - [::ffff:10.96.7.1]:443", "deny not-the-database"},
		{"a loopback address in its mapped form", "lab - - [::ffff:127.0.0.1]:443", "deny"},
	} {
		v := policy.Decide(ask(t, c.ask), p)
		if got := verdict(v); got != c.want {
			t.Errorf("%s: %s: %s, want %s: %s", c.name, c.ask, got, c.want, v.Why())
		}
		if v.Why() == "" || v.Allow && v.Open {
			t.Errorf("%s: %+v", c.name, v)
		}
	}
}

func TestNoPolicyAllowsNothing(t *testing.T) {
	q := ask(t, "c1 - - 10.0.0.1:80")
	for _, ps := range [][]*policy.Policy{nil, {nil}, {nil, new(policy.Policy)}} {
		if v := policy.Decide(q, ps...); v.Allow || v.Open || v.Why() == "" {
			t.Errorf("%+v", v)
		}
	}
}

// TestBothHaveToAgree: a hub's policy and an agent's list are asked one after
// the other, so neither widens the other.
func TestSeveralPolicies(t *testing.T) {
	one := read(t, "rules: [{name: a, allow: [10.0.0.0/8]}]\n", nil)
	two := read(t, "rules: [{name: b, deny: [10.1.0.0/16]}, {name: c, allow: [172.16.0.0/12]}]\n", nil)
	for text, want := range map[string]string{
		"c - - 10.0.0.1:1":   "allow a",
		"c - - 10.1.0.1:1":   "deny b",
		"c - - 172.16.0.1:1": "allow c",
		"c - - 192.0.2.1:1":  "deny",
	} {
		for _, ps := range [][]*policy.Policy{{one, two}, {two, one}, {two, nil, one}} {
			if got := verdict(policy.Decide(ask(t, text), ps...)); got != want {
				t.Errorf("%s: %s, want %s", text, got, want)
			}
		}
	}
}

func TestReadProblems(t *testing.T) {
	files := map[string]string{"bad.txt": "10.0.0.0/8\n# comment\n10.0.0.1/8\n"}
	for name, c := range map[string]struct{ text, want string }{
		"no rules":               {"rules: []\n", "p.yaml:3:"},
		"no name":                {"rules:\n- allow: [\"*\"]\n", "p.yaml:4:3: rules[0].name: the name is missing"},
		"a name with a space":    {"rules:\n- name: a b\n  allow: [\"*\"]\n", "p.yaml:4:9: rules[0].name:"},
		"a name twice":           {"rules:\n- {name: a, allow: [\"*\"]}\n- {name: a, deny: [\"*\"]}\n", "p.yaml:5:10: rules[1].name: rules[0] has the name a already"},
		"neither":                {"rules:\n- name: a\n", "p.yaml:4:3: rules[0]: the rule has neither allow nor deny"},
		"both":                   {"rules:\n- name: a\n  allow: [\"*\"]\n  deny: [\"*\"]\n", "p.yaml:6:9: rules[0].deny: a rule either allows or denies: write two rules"},
		"an action":              {"rules:\n- name: a\n  action: allow\n", "p.yaml:5:3:"},
		"no destinations":        {"rules:\n- name: a\n  allow: []\n", "p.yaml:5:10: rules[0].allow: there is no destination"},
		"nothing behind callers": {"rules:\n- name: a\n  callers:\n  allow: [\"*\"]\n", "p.yaml:5:3: rules[0].callers: the list is empty: leave the key out"},
		"nothing behind uids":    {"rules:\n- name: a\n  uids: [~]\n  allow: [\"*\"]\n", "p.yaml:5:10: rules[0].uids[0]: the item is empty"},
		"an unknown flow":        {"rules:\n- name: a\n  flows: [dial, dail]\n  deny: [\"*\"]\n", "p.yaml:5:17: rules[0].flows[1]: there is no flow \"dail\"; known: dial"},
		"no callers":             {"rules:\n- name: a\n  callers: []\n  allow: [\"*\"]\n", "p.yaml:5:12: rules[0].callers: the list is empty"},
		"no sources":             {"rules:\n- name: a\n  sources: []\n  allow: [\"*\"]\n", "p.yaml:5:12: rules[0].sources: the list is empty"},
		"host bits":              {"rules:\n- name: a\n  deny:\n  - 10.0.0.1/8\n", "p.yaml:6:5: rules[0].deny[0]: \"10.0.0.1/8\" has host bits set; did you mean 10.0.0.0/8?"},
		"host bits of a source":  {"rules:\n- name: a\n  sources: [10.0.0.1/8]\n  deny: [\"*\"]\n", "p.yaml:5:13: rules[0].sources[0]:"},
		"a list that is not":     {"rules:\n- name: a\n  allow: [\"@b:1\"]\n", "p.yaml:5:11: rules[0].allow[0]: there is no list \"b\""},
		"an empty list":          {"lists: [{name: b}]\nrules: [{name: a, allow: [\"@b\"]}]\n", "p.yaml:3:9: lists[0].ranges: list b is empty"},
		"a list's file":          {"lists: [{name: b, file: no.txt}]\nrules: [{name: a, allow: [\"@b\"]}]\n", "p.yaml:3:25: lists[0].file: no.txt cannot be read: no such file"},
		"a line of a list":       {"lists: [{name: b, ranges: [10.9.0.0/16], file: bad.txt}]\nrules: [{name: a, allow: [\"@b\"]}]\n", "bad.txt:3:1: \"10.0.0.1/8\" has host bits set"},
		"two stars":              {"rules: [{name: a, clusters: [\"a*b*\"], allow: [\"*\"]}]\n", "p.yaml:3:30: rules[0].clusters[0]: \"a*b*\" has more than one *"},
		"an unused list":         {"lists: [{name: b, ranges: [10.0.0.0/8]}]\nrules: [{name: a, allow: [\"*\"]}]\n", "p.yaml:3:9: lists[0]: no rule uses list b"},
		"a destination twice":    {"rules: [{name: a, allow: [10.0.0.0/8, 10.0.0.0/8]}]\n", "p.yaml:3:39: rules[0].allow[1]: \"10.0.0.0/8\" is listed twice"},
		"another kind":           {"kind: HubConfig\n", "kind"},
	} {
		p, findings := policy.Read("p.yaml", []byte(head+c.text), func(path string) ([]byte, error) {
			if s, ok := files[path]; ok {
				return []byte(s), nil
			}
			return nil, errors.New("no such file")
		})
		warning := len(findings) == 1 && findings[0].Warning
		said := slices.ContainsFunc(findings, func(f policy.Finding) bool { return strings.Contains(f.String(), c.want) })
		if !said || (p == nil) == warning {
			t.Errorf("%s: %v (policy %v), want %q", name, findings, p != nil, c.want)
		}
	}
}
