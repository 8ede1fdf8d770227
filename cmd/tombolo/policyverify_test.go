// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/access/policy"
)

const gatewayObjects = `apiVersion: v1
kind: List
items:
- apiVersion: networking.istio.io/v1
  kind: Gateway
  metadata: {name: kube-apiserver, namespace: c1-ns}
  spec:
    selector: {app: gateway}
    servers:
    - {hosts: [api.c1.example], port: {name: tls, number: 443, protocol: TLS}, tls: {mode: PASSTHROUGH}}
- apiVersion: networking.istio.io/v1
  kind: VirtualService
  metadata: {name: kube-apiserver, namespace: c1-ns}
  spec:
    hosts: [api.c1.example]
    gateways: [kube-apiserver]
    tls:
    - match: [{port: 443, sniHosts: [api.c1.example]}]
      route: [{destination: {host: kube-apiserver.c1-ns.svc.cluster.local, port: {number: 443}}}]
- apiVersion: v1
  kind: Service
  metadata: {name: gateway, namespace: istio-ingress}
  spec: {type: LoadBalancer, selector: {app: gateway}, ports: [{port: 443}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: another, namespace: default}
spec: {listeners: []}
`

// TestPolicyVerify: objects that are written for a policy decide as it does, and what is left out or changed is named.
func TestPolicyVerify(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	policyOf := func(sources string) string {
		return "apiVersion: tombolo.dev/v1alpha1\nkind: AccessPolicy\nrules:\n- name: office\n  clusters: [c1]\n" +
			"  flows: [api]\n  sources: [" + sources + "]\n  allow: ['*']\n"
	}
	tenants := write("c1.yaml", `apiVersion: tombolo.dev/v1alpha1
kind: EdgeTenant
metadata: {name: c1}
spec: {ways: [{flow: api, names: [api.c1.example], upstreams: ["192.0.2.1:443"]}]}
`)
	policies := write("policy.yaml", policyOf("203.0.113.0/24, 2001:db8::/32"))
	objects := write("objects.yaml", gatewayObjects)
	flags := []string{"--gateway", "istio-ingress/app=gateway", "--policy", policies, "--tenants", tenants}

	// What a controller would write for this policy.
	v := verifyFlags{gateway: "istio-ingress/app=gateway", objects: []string{objects}, policies: []string{policies},
		tenants: tenantsFlag{[]string{tenants}}}
	facts, w, err := v.read(nil)
	if err != nil {
		t.Fatal(err)
	}
	planned, problems := istio.Plan(facts, w)
	if len(problems) > 0 || len(planned.EnvoyFilters) != 1 {
		t.Fatalf("%v, %+v", problems, planned)
	}
	raw, err := json.Marshal(planned.EnvoyFilters[0])
	if err != nil {
		t.Fatal(err)
	}
	guarded := write("guarded.yaml", gatewayObjects+"---\n"+string(raw)+"\n")
	wider := write("wider.yaml", gatewayObjects+"---\n"+strings.ReplaceAll(string(raw), `"prefix_len":24`, `"prefix_len":20`))

	for name, tc := range map[string]struct {
		args []string
		code int
		want []string
	}{
		"allowed": {[]string{"c1/api", "--from", "203.0.113.9", "--objects", guarded}, 0,
			[]string{"api.c1.example: allowed", "allowed  "}},
		"denied": {[]string{"c1/api", "--from", "198.51.100.9", "--objects", guarded}, 0,
			[]string{"api.c1.example: denied", "denied"}},
		"IPv6": {[]string{"c1/api", "--from", "2001:db8::9", "--objects", guarded}, 0,
			[]string{"api.c1.example: allowed"}},
		"JSON": {[]string{"c1/api", "--from", "2001:db8::9", "--objects", guarded, "-o", "json"}, 0, []string{`"same": true`}},
		"all":  {[]string{"--objects", guarded}, 0, []string{"every way into 1 tenant is guarded as the policy says"}},
		"no guard": {[]string{"c1/api", "--from", "198.51.100.9", "--objects", objects}, 4,
			[]string{"allowed", "do not decide about c1/api"}},
		"all, no guard": {[]string{"--objects", objects}, 4, []string{"c1/api", "1 way guarded otherwise"}},
		"a wider guard": {[]string{"--objects", wider}, 4, []string{"c1/api", "1 way guarded otherwise"}},
		"a source between": {[]string{"c1/api", "--from", "203.0.112.9", "--objects", wider}, 4,
			[]string{"api.c1.example: denied", "allowed"}},
		"no way": {[]string{"c1/vpn", "--from", "203.0.113.9", "--objects", guarded}, 4,
			[]string{"no way leads to c1/vpn"}},
		"no such tenant": {[]string{"c2/api", "--from", "203.0.113.9", "--objects", guarded}, 1,
			[]string{`no tenant "c2"`}},
		"no address": {[]string{"c1/api", "--objects", guarded}, 2, []string{"is no address"}},
		"no flow": {[]string{"c1", "--from", "203.0.113.9", "--objects", guarded}, 2,
			[]string{"api, vpn, proxy, ingress"}},
		"no objects": {[]string{"c1/api", "--from", "203.0.113.9"}, 2, []string{"--objects is missing"}},
		"nonsense":   {[]string{"--objects", write("bad.yaml", "a: [")}, 2, []string{"bad.yaml: document 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := tombolo(t, append(append([]string{"policy", "verify"}, flags...), tc.args...)...)
			if o.code != tc.code {
				t.Errorf("exit code %d, want %d\n%s%s", o.code, tc.code, o.out, o.err)
			}
			for _, want := range tc.want {
				if !strings.Contains(o.out+o.err, want) {
					t.Errorf("%q is missing in\n%s%s", want, o.out, o.err)
				}
			}
		})
	}
}

// TestPolicyVerifyWithDataElsewhere: the data of ext_authz may be in a namespace of its own.
func TestPolicyVerifyWithDataElsewhere(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	tenants := write("c1.yaml", "apiVersion: tombolo.dev/v1alpha1\nkind: EdgeTenant\nmetadata: {name: c1}\n"+
		"spec: {ways: [{flow: api, names: [api.c1.example], upstreams: [\"192.0.2.1:443\"]}]}\n")
	policies := write("policy.yaml", "apiVersion: tombolo.dev/v1alpha1\nkind: AccessPolicy\nrules:\n- {name: office, clusters: [c1],"+
		" flows: [api], sources: [203.0.113.0/24], allow: ['*']}\n")
	objects := write("objects.yaml", gatewayObjects)
	v := verifyFlags{gateway: "istio-ingress/app=gateway", objects: []string{objects}, policies: []string{policies},
		tenants: tenantsFlag{[]string{tenants}}, data: "data", provider: "tombolo"}
	facts, w, err := v.read(nil)
	if err != nil {
		t.Fatal(err)
	}
	w.Enforcement = istio.ExtAuthz
	planned, _ := istio.Plan(facts, w)
	text := gatewayObjects
	for _, o := range planned.AuthorizationPolicies {
		raw, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		text += "---\n" + string(raw) + "\n"
	}
	for _, o := range planned.ConfigMaps {
		raw, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		text += "---\n" + string(raw) + "\n"
	}
	flags := []string{"policy", "verify", "--gateway", "istio-ingress/app=gateway", "--provider", "tombolo", "--policy", policies,
		"--tenants", tenants, "--objects", write("guarded.yaml", text)}
	if o := tombolo(t, append(flags, "--data-namespace", "data")...); o.code != 0 {
		t.Errorf("exit code %d\n%s%s", o.code, o.out, o.err)
	}
	if o := tombolo(t, flags...); o.code != 4 {
		t.Errorf("without the namespace: exit code %d\n%s%s", o.code, o.out, o.err)
	}
}

// TestPolicyVerifyOfOneClusterOnly: a rule that no list of sources can say spoils the answer about its own clusters.
func TestPolicyVerifyOfOneClusterOnly(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const head = "apiVersion: tombolo.dev/v1alpha1\nkind: "
	for _, c := range []string{"c1", "c2"} {
		write(c+".yaml", head+"EdgeTenant\nmetadata: {name: "+c+"}\nspec: {ways: [{flow: api, names: [api."+c+
			".example], upstreams: [\"192.0.2.1:443\"]}]}\n")
	}
	policies := write("policy", head+"AccessPolicy\nrules:\n- {name: one, clusters: [c2], flows: [api], allow: ['*:443']}\n"+
		"- {name: office, clusters: [c1], flows: [api], sources: [203.0.113.0/24], deny: ['*']}\n")
	flags := []string{"--gateway", "istio-ingress/app=gateway", "--policy", policies, "--tenants", filepath.Join(dir, "c1.yaml"),
		"--tenants", filepath.Join(dir, "c2.yaml"), "--objects", write("objects", gatewayObjects)}
	for name, tc := range map[string]struct {
		args []string
		code int
		want string
	}{
		"its own": {[]string{"c2/api", "--from", "192.0.2.1"}, 2, "no list of sources says what the policy says about c2"},
		"another": {[]string{"c1/api", "--from", "192.0.2.1"}, 4, "policy:  api.c1.example: denied"},
		"all":     {nil, 4, "warning: no list of sources says what the policy says about c2"},
	} {
		o := tombolo(t, append(append([]string{"policy", "verify"}, tc.args...), flags...)...)
		if o.code != tc.code || !strings.Contains(o.out+o.err, tc.want) {
			t.Errorf("%s: exit code %d\n%s%s", name, o.code, o.out, o.err)
		}
	}
}

// TestVerifyRefusesRulesForPorts: no guard can tell them apart.
func TestVerifyRefusesRulesForPorts(t *testing.T) {
	p, problems := policy.Compile([]policy.Rule{{
		Name: "r", Cluster: []string{"c1"}, Flow: []string{policy.FlowAPI}, Destination: []string{"*:443"},
	}}, nil)
	if p == nil {
		t.Fatal(problems)
	}
	_, partly := istio.Ways(policy.NewEdgeRules(p), "c1", false, istio.Way{Flow: policy.FlowAPI, Hosts: []string{"a.example"}})
	if len(partly) != 1 {
		t.Errorf("%v", partly)
	}
}
