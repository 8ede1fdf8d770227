// SPDX-License-Identifier: Apache-2.0

package kosmos_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/link/kosmos"
)

// shown is a report as text.
func shown(r kosmos.Report) string {
	var b strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "%d:%d: %s\n", f.Line, f.Column, f)
	}
	return b.String()
}

// golden compares with a file, and writes it with UPDATE=1 in the environment.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || got != string(want) {
		t.Errorf("%s differs (UPDATE=1 writes it): %v\n%s", path, err, got)
	}
}

func TestEveryFieldIsReported(t *testing.T) {
	data, err := os.ReadFile("testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r, err := kosmos.Read("full.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(r.Objects, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/full.objects.json", string(text)+"\n")
	golden(t, "testdata/full.report.txt", shown(r)+r.Summary()+"\n")
	for _, secret := range []string{"c2VjcmV0", "5d41402a", "deadbeef"} {
		if strings.Contains(string(text)+shown(r), secret) {
			t.Errorf("%s is shown", secret)
		}
	}
	reported := map[string]bool{}
	for _, f := range r.Findings {
		kind, _, _ := strings.Cut(f.Object, " ")
		reported[kind+" "+f.Field] = true
	}
	for _, row := range kosmos.Rows() {
		if !reported[row.Kind+" "+row.Field] {
			t.Errorf("%s %s is not reported", row.Kind, row.Field)
		}
	}
}

const (
	clusterHead = "apiVersion: kosmos.io/v1alpha1\nkind: Cluster\nmetadata: {name: a}\nspec:\n"
	nodeHead    = "apiVersion: kosmos.io/v1alpha1\nkind: ClusterNode\nmetadata: {name: a-n}\nspec:\n"
	configHead  = "apiVersion: kosmos.io/v1alpha1\nkind: NodeConfig\nmetadata: {name: a-n}\nspec:\n"
)

// link is a Cluster with options.
func link(options string) string { return clusterHead + "  clusterLinkOptions: {" + options + "}\n" }

// node is a ClusterNode with more fields.
func node(more string) string { return nodeHead + "  {clusterName: a, nodeName: n, " + more + "}\n" }

// config is a NodeConfig behind its Cluster: its own lines begin with 7.
func config(spec string) string { return link("") + "---\n" + configHead + "  {" + spec + "}\n" }

func TestBadValuesAreRefusedWithTheirPlace(t *testing.T) {
	const policy = "leftip: 192.0.2.1, leftnet: 10.0.0.0/16, rightip: 192.0.2.2, rightnet: 10.1.0.0/16, reqid: 1, dir: 1"
	with := func(old, new string) string {
		return config("xfrmpolicies: [{" + strings.Replace(policy, old, new, 1) + "}]")
	}
	for text, want := range map[string]string{
		clusterHead + "  kubeconfg: a\n": "5:3: Cluster a: spec.kubeconfg: refused: unknown key; did you mean kubeconfig? " +
			"known here: kubeconfig, namespace, imageRepository, clusterLinkOptions, clusterTreeOptions",
		clusterHead + "  clusterLinkOptions:\n    clusterPodCIDRs: []\n": "6:5: Cluster a: spec.clusterLinkOptions.clusterPodCIDRs: " +
			"refused: unknown key; did you mean clusterpodCIDRs? known here: enable, cni, networkType, ipFamily, useIPPool, " +
			"localCIDRs, bridgeCIDRs, nicNodeNames, defaultNICName, autodetectionMethod, globalCIDRsMap, nodeElasticIPMap, " +
			"clusterpodCIDRs, useexternalapiserver",
		link("networkType: star"):                 `networkType: refused: "star" is none of p2p, gateway`,
		link("ipFamily: 4"):                       "ipFamily: refused: text is expected; put quotes around 4",
		link("cni: weave"):                        `cni: refused: "weave" is none of calico, flannel, cilium, globalrouter`,
		link("clusterpodCIDRs: [10.0.0.1/8]"):     "clusterpodCIDRs[0]: refused: 10.0.0.1/8 has host bits: 10.0.0.0/8 is meant",
		link("clusterpodCIDRs: [x]"):              `clusterpodCIDRs[0]: refused: "x" is not a CIDR`,
		link("nodeElasticIPMap: {n: x}"):          `nodeElasticIPMap[n]: refused: "x" is not an IP address`,
		link("nodeElasticIPMap: {N_: 192.0.2.1}"): "nodeElasticIPMap[N_]: refused: ",
		link("globalCIDRsMap: {10.0.0.0/16: 10.1.0.0/17}"): "globalCIDRsMap[10.0.0.0/16]: refused: 10.0.0.0/16 is mapped to " +
			"10.1.0.0/17, which is not of the same IP version and length",
		link("globalCIDRsMap: {10.0.0.0/16: 10.9.0.0/16, 10.1.0.0/16: 10.9.0.0/16}"): "refused: 10.9.0.0/16 overlaps 10.9.0.0/16",
		link("autodetectionMethod: first-found"):                                     `autodetectionMethod: refused: "first-found" is not can-reach=ADDRESS`,
		link("autodetectionMethod: can-reach=a.b"):                                   `autodetectionMethod: refused: "a.b" is not an IP address`,
		link("defaultNICName: a/b"):                                                  `defaultNICName: refused: "a/b" is not the name of an interface`,
		link("useIPPool: 1"):                                                         `useIPPool: refused: true or false is expected, not "1"`,
		node("ip: 2001:db8::1"):                                                      "spec.ip: refused: 2001:db8::1 is not an IPv4 address",
		node("ip6: 192.0.2.1"):                                                       "spec.ip6: refused: 192.0.2.1 is not an IPv6 address",
		node("elasticip: x"):                                                         `spec.elasticip: refused: "x" is not an IP address`,
		node("roles: [king]"):                                                        `spec.roles[0]: refused: "king" is not gateway`,
		nodeHead + "  {clusterName: a.b, nodeName: n}":                               "5:17: ClusterNode a-n: spec.clusterName: refused: ",
		nodeHead + "  {clusterName: a}":                                              "spec.nodeName: refused: ",
		with("dir: 1", "dir: 3"):                                                     "xfrmpolicies[0].dir: refused: 3 is none of 0, 1 and 2",
		with("192.0.2.2", "x"):                                                       `11:70: NodeConfig a-n: spec.xfrmpolicies[0].rightip: refused: "x" is not an IP address`,
		with("reqid: 1", "reqid: -1"):                                                "xfrmpolicies[0].reqid: refused: a whole number from 0",
		config("xfrmstates: [{leftip: 192.0.2.1, rightip: 192.0.2.2, reqid: 1, spi: 0, PSK: x}]"): "xfrmstates[0].spi: refused: ",
		config("xfrmstates: [{PSK: [sesame]}]"):                                                   "xfrmstates[0].PSK: refused: a single value is expected, not a list",
		config("ipsetsavoidmasq: [{cidr: 10.0.0.0/8}]"):                                           `ipsetsavoidmasq[0].name: refused: "" is not the name of a set`,
		configHead + "  {}\n": "3:18: NodeConfig a-n: metadata.name: refused: it does not say where the cluster's name ends: give",
		strings.Replace(link(""), "kosmos.io", "tombolo.dev", 1): `1:13: Cluster a: apiVersion: refused: "tombolo.dev/v1alpha1" is not kosmos.io/v1alpha1`,
		strings.Replace(link(""), "v1alpha1", "v1", 1):           `apiVersion: refused: "kosmos.io/v1" is not kosmos.io/v1alpha1`,
		strings.Replace(link(""), "Cluster", "Ship", 1):          `2:7: Ship a: kind: refused: "Ship" is no kind of kosmos.io that links clusters`,
		strings.Replace(link(""), "name: a", "x: a", 1):          "Cluster: metadata.name: refused: it is missing",
		strings.Replace(link(""), "name: a", "name: a.b", 1):     "3:18: Cluster a.b: metadata.name: refused: ",
		link("") + "---\n" + link(""):                            "9:18: Cluster a: metadata.name: refused: there are two of that name",
		"[a]":                                                    "1:1: document: refused: an object is expected",
	} {
		r, err := kosmos.Read("f.yaml", []byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := shown(r); r.Count(kosmos.Refused) == 0 || !strings.Contains(got, want) {
			t.Errorf("%s\nsays\n%swant\n%s", text, got, want)
		} else if strings.Contains(got, "sesame") {
			t.Errorf("a key is shown: %s", got)
		}
		if most := max(0, strings.Count(text, "apiVersion")-1); len(r.Objects) > most {
			t.Errorf("%s: %d objects, at most %d are good", text, len(r.Objects), most)
		}
	}
}

func TestAFileThatIsNone(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "f.yaml has no object",
		"---\n---\n":                       "f.yaml has no object",
		"a: [\n":                           "f.yaml is not YAML: f.yaml:1:1: ",
		strings.Repeat("#", 16<<20) + "##": "f.yaml has more than 16777216 bytes",
	} {
		_, err := kosmos.Read("f.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || fault.From(err).Next == "" {
			t.Errorf("%.20q: %v, want %q", text, err, want)
		}
	}
}

// spec is that of the only object.
func spec[T any](t *testing.T, text string) T {
	t.Helper()
	r, err := kosmos.Read("f.yaml", []byte(text))
	if err != nil || r.Count(kosmos.Refused) > 0 {
		t.Fatalf("%v\n%s", err, shown(r))
	}
	var out T
	for _, o := range r.Objects {
		if s, is := o.Spec.(T); is {
			out = s
		}
	}
	return out
}

func TestInterfaces(t *testing.T) {
	for options, want := range map[string]string{
		"":                     "[]",
		`defaultNICName: "*"`:  "[]",
		"defaultNICName: eth0": "[{[] eth0 }]",
		"autodetectionMethod: can-reach=192.0.2.1":                                      "[{[]  192.0.2.1}]",
		"defaultNICName: eth0, autodetectionMethod: can-reach=192.0.2.1":                "[{[] eth0 }]",
		"defaultNICName: eth0, nicNodeNames: [{interfaceName: eth1, nodeName: [n, m]}]": "[{[n m] eth1 } {[] eth0 }]",
		"nicNodeNames: [{interfaceName: eth1, nodeName: []}]":                           "[]",
	} {
		if got := fmt.Sprint(spec[v1alpha1.ClusterSpec](t, link(options)).NICs); got != want {
			t.Errorf("%s: %s, want %s", options, got, want)
		}
	}
}

func TestClustersThatAreNotLinked(t *testing.T) {
	for text, want := range map[string]string{
		link("enable: false"):            "clusterLinkOptions.enable: has no meaning any more: it is not linked: no Cluster is made",
		clusterHead + "  {}\n":           "spec: has no meaning any more: without clusterLinkOptions it is not linked",
		clusterHead[:len(clusterHead)-6]: "has no meaning any more: without clusterLinkOptions it is not linked",
		"apiVersion: kosmos.io/v1alpha1\nkind: Knode\nmetadata: {name: k}\n": "Knode k: kind: has no meaning any more: it belongs to virtual nodes",
	} {
		r, err := kosmos.Read("f.yaml", []byte(text))
		if err != nil || len(r.Objects) > 0 || r.Count(kosmos.Refused) > 0 || !strings.Contains(shown(r), want) {
			t.Errorf("%s: %v, %d objects\n%s", text, err, len(r.Objects), shown(r))
		}
	}
}

// TestNamesOfNodes: CLUSTER-NODE is taken apart where it is clear.
func TestNamesOfNodes(t *testing.T) {
	cluster := func(name string) string { return strings.Replace(link(""), "name: a", "name: "+name, 1) + "---\n" }
	named := func(name string) string { return strings.Replace(configHead, "a-n", name, 1) + "  {}\n" }
	for text, want := range map[string]string{
		cluster("a") + named("a-b-c"):                                        "a.b-c",
		cluster("a") + cluster("a-b") + named("a-b-c"):                       "",
		cluster("a") + named("b-c"):                                          "",
		cluster("a") + named("a-"):                                           "",
		cluster("a") + cluster("a-b") + nodeHeadOf("a-b-c") + named("a-b-c"): "a-b.c",
		named("a-b-c") + "---\n" + nodeHeadOf("a-b-c"):                       "a-b.c",
	} {
		r, err := kosmos.Read("f.yaml", []byte(text))
		got := ""
		for _, o := range r.Objects {
			if o.Kind == v1alpha1.KindNodeConfig {
				got = o.Metadata.Name
			}
		}
		if err != nil || got != want {
			t.Errorf("%s: %q, want %q, %v", text, got, want, err)
		}
	}
}

func nodeHeadOf(name string) string {
	return strings.Replace(nodeHead, "a-n", name, 1) + "  {clusterName: a-b, nodeName: c}\n---\n"
}

func TestLongPlansAreCounted(t *testing.T) {
	one := "{leftip: 192.0.2.1, leftnet: 10.0.0.0/16, rightip: 192.0.2.2, rightnet: 10.1.0.0/16, reqid: 1, dir: 1}, "
	got := spec[v1alpha1.NodeConfigSpec](t, config("xfrmpolicies: ["+strings.Repeat(one, 4100)+"]"))
	if len(got.XfrmPolicies) != 4096 || got.More == nil || got.More.XfrmPolicies != 4 {
		t.Errorf("%d policies, more: %+v", len(got.XfrmPolicies), got.More)
	}
}
