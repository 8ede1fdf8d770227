// SPDX-License-Identifier: Apache-2.0

//go:build kube

package kube_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/api/objects/crds"
	"github.com/tombolo-io/tombolo/internal/link/kosmos"
)

const (
	linkedKey = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA="
	linkedPin = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA"
)

// linkedGood are objects of linked clusters with every field.
const linkedGood = `apiVersion: tombolo.dev/v1alpha1
kind: Cluster
metadata: {name: c1}
spec: {engine: ipsec, networkType: gateway, ipFamily: ipv4, cni: calico, mtu: 1400,
  nodeElasticIPMap: {n1.example.org: 198.51.100.1, n2: "2001:db8::1"}, clusterPodCIDRs: [10.244.0.0/16],
  useExternalAPIServer: true, globalCIDRsMap: {10.244.0.0/16: 100.64.0.0/16, "fd00:10::/64": "fd00:20::/64"},
  nics: [{interface: eth0, nodes: [n1]}, {reach: 192.0.2.1}], excludeNodes: [n3], excludeSelector: "a in (b, c)"}
---
apiVersion: tombolo.dev/v1alpha1
kind: ClusterNode
metadata: {name: c1.n1.example.org}
spec: {clusterName: c1, nodeName: n1.example.org, podCIDRs: [10.244.1.0/24, "fd00:10::/80"], ip: 192.0.2.7,
  ip6: "2001:db8::7", elasticIP: 198.51.100.1, roles: [gateway], publicKey: ` + linkedKey + `,
  overlay6: "fd7f::1", overlay4: 100.119.31.127, endpoints: ["198.51.100.1:51820"], mesh: 3, relayCluster: c1,
  relays: [h1], pin: ` + linkedPin + `, engine: ipsec}
---
apiVersion: tombolo.dev/v1alpha1
kind: NodeConfig
metadata: {name: c1.n1.example.org}
spec:
  peers: [{name: c2.n1, engine: ipsec, publicKey: ` + linkedKey + `, endpoints: ["198.51.100.2:1"], ranges: [10.1.0.0/16]}]
  routes: [{cidr: 10.1.0.0/16, interface: tombolo0, table: 180, mtu: 1400}, {cidr: 10.2.0.0/16, closed: true}]
  xfrmPolicies: [{leftIP: 192.0.2.7, leftNet: 10.244.1.0/24, rightIP: 198.51.100.2, rightNet: 10.1.0.0/16, reqID: 4294967295,
    dir: out}]
  xfrmStates: [{leftIP: 192.0.2.7, rightIP: 198.51.100.2, reqID: 7, spi: 4294967295, algorithm: rfc4106(gcm(aes))}]
  ipsetsAvoidMasq: [{cidr: 10.1.0.0/16, name: tombolo}]
  more: {routes: 1}
`

// linkedClusters: kube-apiserver takes the kinds of linked clusters, and refuses what no object of them may say.
func (w *members) linkedClusters(t *testing.T) {
	for _, text := range []string{crds.Clusters(), crds.ClusterNodes(), crds.NodeConfigs()} {
		if err := w.Apply(t.Context(), strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Kubectl(t.Context(), "wait", "--for=condition=Established", "--timeout=30s", "crd/clusters.tombolo.dev",
		"crd/clusternodes.tombolo.dev", "crd/nodeconfigs.tombolo.dev"); err != nil {
		t.Fatal(err)
	}
	if err := w.Apply(t.Context(), strings.NewReader(linkedGood)); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"nothing said":           "kind: Cluster\nmetadata: {name: c2}\nspec: {}",
		"a NIC by an address":    "kind: Cluster\nmetadata: {name: c2}\nspec: {nics: [{reach: \"2001:db8::1\"}]}",
		"a node that is only in": "kind: ClusterNode\nmetadata: {name: c2.a}\nspec: {clusterName: c2, nodeName: a}",
		"an empty plan":          "kind: NodeConfig\nmetadata: {name: c2.a}\nspec: {}",
	} {
		if err := w.Apply(t.Context(), strings.NewReader("apiVersion: tombolo.dev/v1alpha1\n"+text+"\n")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.linkedImported(t)
	w.linkedRefused(t)
	w.linkedShown(t)
}

// linkedImported: kube-apiserver takes all that is made of objects of Kosmos.
func (w *members) linkedImported(t *testing.T) {
	data, err := os.ReadFile("../../internal/link/kosmos/testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r, err := kosmos.Read("full.yaml", data)
	if err != nil || len(r.Objects) != 3 {
		t.Fatal(len(r.Objects), err)
	}
	for _, o := range r.Objects {
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Apply(t.Context(), bytes.NewReader(text)); err != nil {
			t.Errorf("%s %s: %v", o.Kind, o.Metadata.Name, err)
		}
	}
}

// linkedRefused: each object is refused for a reason of its own.
func (w *members) linkedRefused(t *testing.T) {
	node := func(more string) string {
		return "kind: ClusterNode\nmetadata: {name: c3.a}\nspec: {clusterName: c3, nodeName: a, " + more + "}"
	}
	spec := func(kind, text string) string {
		return "kind: " + kind + "\nmetadata: {name: c3}\nspec: {" + text + "}"
	}
	policy := "xfrmPolicies: [{leftIP: 192.0.2.7, leftNet: 10.1.0.0/16, rightIP: 192.0.2.8, rightNet: 10.2.0.0/16, reqID: 1, dir: out}]"
	state := "xfrmStates: [{leftIP: 192.0.2.7, rightIP: 192.0.2.8, reqID: 1, spi: 256, algorithm: x}]"
	for name, c := range map[string]struct{ text, want string }{
		"an engine that is none":    {spec("Cluster", "engine: openvpn"), "spec.engine: Unsupported value"},
		"a type that is none":       {spec("Cluster", "networkType: star"), "spec.networkType: Unsupported value"},
		"a family that is none":     {spec("Cluster", "ipFamily: ipv5"), "spec.ipFamily: Unsupported value"},
		"a CNI that is none":        {spec("Cluster", "cni: pigeon"), "spec.cni: Unsupported value"},
		"a low MTU":                 {spec("Cluster", "mtu: 1279"), "spec.mtu"},
		"a high MTU":                {spec("Cluster", "mtu: 9001"), "spec.mtu"},
		"a name as elastic address": {spec("Cluster", "nodeElasticIPMap: {n1: example.org}"), "it is not an IP address"},
		"host bits":                 {spec("Cluster", "clusterPodCIDRs: [10.0.0.1/8]"), "spec.clusterPodCIDRs[0]: Invalid value"},
		"65 ranges":                 {spec("Cluster", "clusterPodCIDRs: ["+strings.Repeat("10.0.0.0/8, ", 65)+"]"), "Too many"},
		"mapped host bits":          {spec("Cluster", "globalCIDRsMap: {10.0.0.0/16: 10.1.0.1/16}"), "not a CIDR without host bits"},
		"a key with host bits":      {spec("Cluster", "globalCIDRsMap: {10.0.0.1/16: 10.1.0.0/16}"), "a key is not a CIDR"},
		"another length":            {spec("Cluster", "globalCIDRsMap: {10.0.0.0/16: 10.1.0.0/17}"), "another IP version or length"},
		"another family":            {spec("Cluster", `globalCIDRsMap: {10.0.0.0/16: "fd00::/16"}`), "another IP version or length"},
		"a NIC by both":             {spec("Cluster", "nics: [{interface: a, reach: 192.0.2.1}]"), "either interface or reach"},
		"a NIC by neither":          {spec("Cluster", "nics: [{nodes: [a]}]"), "either interface or reach"},
		"two NICs for all others":   {spec("Cluster", "nics: [{interface: a}, {interface: b}]"), "for all other nodes"},
		"an interface with a slash": {spec("Cluster", "nics: [{interface: a/b}]"), "should match"},
		"a field that is none":      {spec("Cluster", "kubeconfig: abc"), `unknown field "spec.kubeconfig"`},
		"a cluster with a dot":      {"kind: Cluster\nmetadata: {name: a.b}\nspec: {}", "no dot"},

		"another name":             {"kind: ClusterNode\nmetadata: {name: c3-a}\nspec: {clusterName: c3, nodeName: a}", "not clusterName.nodeName"},
		"a node without a cluster": {"kind: ClusterNode\nmetadata: {name: .a}\nspec: {nodeName: a}", "spec.clusterName: Required"},
		"another cluster's node": {strings.Replace(strings.Split(linkedGood, "---\n")[1], "clusterName: c1", "clusterName: c9", 1),
			"clusterName does not change"},
		"another pin": {strings.Replace(strings.Split(linkedGood, "---\n")[1], "pin: "+linkedPin, "pin: "+strings.Repeat("A", 42)+"E", 1),
			"pin does not change"},
		"a short key":             {node("publicKey: abc"), "spec.publicKey"},
		"a key as a pin":          {node("pin: " + linkedKey), "spec.pin"},
		"an engine of a node":     {node("engine: auto"), "spec.engine: Unsupported value"},
		"an IPv6 address as ip":   {node(`ip: "fd00::1"`), "ip is an IPv4 address"},
		"an IPv4 address as ip6":  {node("ip6: 10.0.0.1"), "ip6 is an IPv6 address"},
		"an elastic name":         {node("elasticIP: a.b"), "it is not an IP address"},
		"an IPv4 overlay6":        {node("overlay6: 10.0.0.1"), "overlay6 is an IPv6 address"},
		"an IPv6 overlay4":        {node(`overlay4: "fd00::1"`), "overlay4 is an IPv4 address"},
		"a role that is none":     {node("roles: [king]"), "Unsupported value"},
		"a node's host bits":      {node("podCIDRs: [10.0.0.1/24]"), "spec.podCIDRs[0]"},
		"a private key of a node": {node("privateKey: abc"), `unknown field "spec.privateKey"`},

		"a key of IPsec":           {spec("NodeConfig", strings.Replace(state, "spi", "PSK: abc, spi", 1)), `unknown field "spec.xfrmStates[0].PSK"`},
		"SPI 0":                    {spec("NodeConfig", strings.Replace(state, "256", "0", 1)), "spec.xfrmStates[0].spi"},
		"a long SPI":               {spec("NodeConfig", strings.Replace(state, "256", "4294967296", 1)), "spec.xfrmStates[0].spi"},
		"a direction as a number":  {spec("NodeConfig", strings.Replace(policy, "out", "1", 1)), "spec.xfrmPolicies[0].dir"},
		"a policy with host bits":  {spec("NodeConfig", strings.Replace(policy, "10.2.0.0", "10.2.0.1", 1)), "spec.xfrmPolicies[0].rightNet"},
		"a policy between names":   {spec("NodeConfig", strings.Replace(policy, "192.0.2.8", "n2", 1)), "spec.xfrmPolicies[0].rightIP"},
		"a route with host bits":   {spec("NodeConfig", "routes: [{cidr: 10.0.0.1/8}]"), "spec.routes[0].cidr"},
		"a set without a name":     {spec("NodeConfig", "ipsetsAvoidMasq: [{cidr: 10.0.0.0/8}]"), "spec.ipsetsAvoidMasq[0].name: Required"},
		"an engine of a peer":      {spec("NodeConfig", "peers: [{name: a, engine: auto}]"), "spec.peers[0].engine"},
		"a plan with a kubeconfig": {spec("NodeConfig", "kubeconfig: a"), `unknown field "spec.kubeconfig"`},
	} {
		text := c.text
		if !strings.HasPrefix(text, "apiVersion") {
			text = "apiVersion: tombolo.dev/v1alpha1\n" + text + "\n"
		}
		err := w.Apply(t.Context(), strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// linkedShown: a status is taken, and kubectl shows what is in it.
func (w *members) linkedShown(t *testing.T) {
	for _, c := range []struct{ kind, name, status, want string }{
		{"clusters.tombolo.dev", "c1", `{"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "False",
  "reason": "NoNode", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}], "gateways": ["n1"],
  "podCIDRs": [{"cidr": "10.244.0.0/16", "source": "IPPool a"}],
  "serviceCIDRs": [{"cidr": "10.96.0.0/12", "source": "ServiceCIDR kubernetes"}],
  "mapped": [{"cidr": "10.244.0.0/16", "as": "100.64.0.0/16"}]}`, "c1 gateway ipsec False NoNode"},
		{"tcn", "c1.n1.example.org", `{"observedGeneration": 1, "nodeStatus": "Ready", "engine": "ipsec", "engineReason": "x",
  "tunnels": "3/4", "lastHeard": "2026-01-01T00:00:00Z"}`, "c1.n1.example.org c1 n1.example.org Ready 3/4"},
		{"tnc", "c1.n1.example.org", `{"appliedGeneration": 1, "differs": 2, "differences": ["add route 10.1.0.0/16"],
  "tunnels": [{"peer": "c2.n1", "engine": "ipsec", "state": "down", "reason": "x", "since": "2026-01-01T00:00:00Z"}],
  "moreTunnels": 1}`, "c1.n1.example.org 1 2"},
	} {
		if _, err := w.Kubectl(t.Context(), "patch", c.kind, c.name, "--subresource=status", "--type=merge",
			"-p", fmt.Sprintf(`{"status": %s}`, c.status)); err != nil {
			t.Errorf("%s: %v", c.kind, err)
			continue
		}
		out, err := w.Kubectl(t.Context(), "get", c.kind, c.name, "--no-headers")
		if line := strings.Join(strings.Fields(out), " "); err != nil || !strings.HasPrefix(line, c.want+" ") {
			t.Errorf("%s shows %q, want %q, %v", c.kind, line, c.want, err)
		}
	}
	for _, bad := range []string{`{"nodeStatus": "Dead"}`, `{"conditions": [{"type": "TunnelsUp"}]}`} {
		if _, err := w.Kubectl(t.Context(), "patch", "tcn", "c1.n1.example.org", "--subresource=status", "--type=merge",
			"-p", fmt.Sprintf(`{"status": %s}`, bad)); err == nil {
			t.Errorf("the status %s is taken", bad)
		}
	}
}
