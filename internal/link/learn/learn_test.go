// SPDX-License-Identifier: Apache-2.0

package learn_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/link/learn"
)

// read decodes objects, one in each line.
func read[T learn.Object](t *testing.T, text string) (out []T) {
	t.Helper()
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		one, err := learn.Decode[T]([]byte(line))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		out = append(out, one)
	}
	return out
}

// quoted is a JSON list of words.
func quoted(words []string) string {
	if len(words) == 0 {
		return "[]"
	}
	return `["` + strings.Join(words, `","`) + `"]`
}

const readyStatus = `"status":{"conditions":[{"type":"MemoryPressure","status":"False"},{"type":"Ready","status":"True"}]}`

// node is a Node that is ready.
func node(name string, ranges ...string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"podCIDRs":%s},%s}`+"\n", name, quoted(ranges), readyStatus)
}

// lost is a Node that is not ready.
func lost(name string, ranges ...string) string {
	return strings.Replace(node(name, ranges...), `"True"`, `"Unknown"`, 1)
}

// marked is a Node with an annotation.
func marked(name, key, value string, ranges ...string) string {
	return strings.Replace(node(name, ranges...), `"metadata":{`, fmt.Sprintf(`"metadata":{"annotations":{%q:%q},`, key, value), 1)
}

func pool(name, cidr string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"cidr":%q}}`+"\n", name, cidr)
}

// poolWith is an IPPool with more fields of its specification.
func poolWith(name, cidr, more string) string {
	return strings.Replace(pool(name, cidr), `"spec":{`, `"spec":{`+more+`,`, 1)
}

func block(name, cidr string) string {
	return blockWith(name, cidr, `"state":"confirmed","deleted":"false"`)
}

func blockWith(name, cidr, more string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"node":%q,"cidr":%q,%s}}`+"\n", name+"-"+cidr, name, cidr, more)
}

func ciliumNode(name string, ranges ...string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"ipam":{"podCIDRs":%s}}}`+"\n", name, quoted(ranges))
}

func config(namespace, name, data string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":%q},"data":{%s}}`+"\n", name, namespace, data)
}

func flannel(namespace, conf string) string {
	return config(namespace, "kube-flannel-cfg", fmt.Sprintf(`"cni-conf.json":"{}","net-conf.json":%q`, conf))
}

// objects are those of a cluster, as texts.
type objects struct {
	nodes, pools, blocks, ciliumNodes, ciliumPools, configs, services, servers string
	answers                                                                    []string
	api                                                                        bool
	denied                                                                     []learn.Right
}

func (o objects) facts(t *testing.T) learn.Facts {
	t.Helper()
	return learn.Facts{
		Nodes: read[learn.Node](t, o.nodes), Pools: read[learn.IPPool](t, o.pools),
		Blocks:      read[learn.BlockAffinity](t, o.blocks),
		CiliumNodes: read[learn.CiliumNode](t, o.ciliumNodes), CiliumPools: read[learn.CiliumPodIPPool](t, o.ciliumPools),
		ConfigMaps: read[learn.ConfigMap](t, o.configs), ServiceCIDRs: read[learn.ServiceCIDR](t, o.services),
		APIServers: read[learn.Pod](t, o.servers), Answers: o.answers, ServiceCIDRAPI: o.api, Denied: o.denied,
	}
}

// described is a list of ranges as "PREFIX < SOURCE".
func described(in []learn.Learned) (out []string) {
	for _, one := range in {
		out = append(out, one.Prefix.String()+" < "+one.From)
	}
	return out
}

// byNode are the ranges of nodes as "NODE PREFIX...".
func byNode(r learn.Result) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(r.Nodes)) {
		words := name
		for _, p := range r.Nodes[name] {
			words += " " + p.String()
		}
		out = append(out, words)
	}
	return out
}

// reasons are those of the problems, each once.
func reasons(r learn.Result) string {
	var out []string
	for _, p := range r.Problems {
		out = append(out, string(p.Reason))
	}
	return strings.Join(slices.Compact(out), " ")
}

// podCase is a cluster, and what is learned about its pods.
type podCase struct {
	in       objects
	spec     learn.Spec
	cni, how string // how: part of it
	pods     []string
	nodes    []string
	problems string // the reasons
	says     string // part of a problem
}

func check(t *testing.T, c podCase) {
	t.Helper()
	c.in.services = `{"metadata":{"name":"kubernetes"},"spec":{"cidrs":["10.96.0.0/12"]}}`
	got := learn.From(c.in.facts(t), c.spec)
	if string(got.CNI) != c.cni || !strings.Contains(got.CNIFrom, c.how) || got.CNIFrom == "" && c.cni != "unknown" {
		t.Errorf("CNI %s (%s), want %s (%s)", got.CNI, got.CNIFrom, c.cni, c.how)
	}
	if pods := described(got.Ranges.Pods); !slices.Equal(pods, c.pods) {
		t.Errorf("pods %q, want %q", pods, c.pods)
	}
	if nodes := byNode(got); !slices.Equal(nodes, c.nodes) {
		t.Errorf("nodes %q, want %q", nodes, c.nodes)
	}
	said := ""
	for _, p := range got.Problems {
		said += p.String() + "\n"
	}
	if reasons(got) != c.problems || !strings.Contains(said, c.says) {
		t.Errorf("problems %q, want %q with %q:\n%s", reasons(got), c.problems, c.says, said)
	}
}
