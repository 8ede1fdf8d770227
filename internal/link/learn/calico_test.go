// SPDX-License-Identifier: Apache-2.0

package learn_test

import (
	"testing"

	"github.com/tombolo-io/tombolo/internal/link/learn"
)

const (
	fromDefault = " < Calico IPPool default-ipv4-ippool"
	fromSix     = " < Calico IPPool default-ipv6-ippool"
)

func TestCalico(t *testing.T) {
	// kubeadm gives each node a range, which Calico's IPAM does not use.
	two := node("a", "10.244.0.0/24") + node("b", "10.244.1.0/24")
	blocks := block("a", "192.168.0.64/26") + block("b", "192.168.9.0/26") + block("a", "192.168.0.0/26")
	for name, c := range map[string]podCase{
		"pools and blocks": {
			in:  objects{nodes: two, pools: pool("default-ipv4-ippool", "192.168.0.0/16"), blocks: blocks},
			cni: "calico", how: "blocks", pods: []string{"192.168.0.0/16" + fromDefault},
			nodes: []string{"a 192.168.0.0/25", "b 192.168.9.0/26"},
		},
		"both families": {
			in: objects{nodes: two, pools: pool("default-ipv4-ippool", "192.168.0.0/16") + pool("default-ipv6-ippool", "fd00:1::/48"),
				blocks: blocks + block("b", "fd00:1:0:9::/122")},
			cni: "calico", how: "blocks", pods: []string{"192.168.0.0/16" + fromDefault, "fd00:1::/48" + fromSix},
			nodes: []string{"a 192.168.0.0/25", "b 192.168.9.0/26 fd00:1:0:9::/122"},
		},
		"pools that are disabled, ours, or not for pods": {
			in: objects{nodes: two, blocks: blocks, pools: pool("default-ipv4-ippool", "192.168.0.0/16") +
				poolWith("clusterlink-b-pod", "10.1.0.0/16", `"disabled":true`) +
				poolWith("tunnels", "10.2.0.0/24", `"allowedUses":["Tunnel"]`) +
				poolWith("balancers", "10.3.0.0/24", `"allowedUses":["LoadBalancer"]`) +
				poolWith("both", "10.4.0.0/24", `"allowedUses":["Tunnel","Workload"]`) +
				`{"metadata":{"name":"tombolo-b","labels":{"app.kubernetes.io/managed-by":"tombolo"}},"spec":{"cidr":"10.5.0.0/16"}}`},
			cni: "calico", how: "blocks",
			pods:  []string{"10.4.0.0/24 < Calico IPPool both", "192.168.0.0/16" + fromDefault},
			nodes: []string{"a 192.168.0.0/25", "b 192.168.9.0/26"},
		},
		"blocks that nodes do not have": {
			in: objects{nodes: two, pools: pool("default-ipv4-ippool", "192.168.0.0/16"), blocks: block("a", "192.168.0.0/26") +
				block("gone", "192.168.1.0/26") +
				blockWith("b", "192.168.2.0/26", `"state":"pending","deleted":"false"`) +
				blockWith("b", "192.168.3.0/26", `"state":"confirmed","deleted":"true"`) +
				blockWith("b", "192.168.4.0/26", `"state":"confirmed","deleted":true`) +
				blockWith("b", "192.168.5.0/26", `"state":"confirmed","type":"virtual"`) +
				blockWith("b", "192.168.6.0/26", `"state":"confirmed","type":"host","deleted":""`)},
			cni: "calico", how: "blocks", pods: []string{"192.168.0.0/16" + fromDefault},
			nodes: []string{"a 192.168.0.0/26", "b 192.168.6.0/26"},
		},
		"a block of a pool that is disabled": {
			in: objects{nodes: two, blocks: blocks + block("b", "10.9.0.0/26"),
				pools: pool("default-ipv4-ippool", "192.168.0.0/16") + poolWith("old", "10.9.0.0/16", `"disabled":true`)},
			cni: "calico", how: "blocks", pods: []string{"192.168.0.0/16" + fromDefault},
			nodes:    []string{"a 192.168.0.0/25", "b 192.168.9.0/26"},
			problems: "PodRangesDisagree", says: "10.9.0.0/26 of b",
		},
		"one address of two nodes": {
			in: objects{nodes: two + node("c"), pools: pool("default-ipv4-ippool", "192.168.0.0/16"),
				blocks: block("a", "192.168.0.0/24") + block("b", "192.168.0.64/26") + block("c", "192.168.0.64/26") +
					block("c", "192.168.1.0/26") + block("a", "192.168.2.0/26") + block("a", "192.168.2.0/27")},
			cni: "calico", how: "blocks", pods: []string{"192.168.0.0/16" + fromDefault},
			nodes:    []string{"a 192.168.2.0/26", "c 192.168.1.0/26"},
			problems: "NodeRangesOverlap", says: "192.168.0.0/24 of a, 192.168.0.64/26 of b, 192.168.0.64/26 of c",
		},
		"nodes of one address, and ranges within it": {
			in: objects{nodes: two, pools: pool("default-ipv4-ippool", "10.0.0.0/13"),
				blocks: block("a", "10.1.0.0/16") + block("b", "10.1.0.0/16") + block("a", "10.1.2.0/24") +
					block("a", "10.4.0.0/14") + block("b", "10.5.0.0/16") + block("a", "10.6.0.0/16")},
			cni: "calico", how: "blocks", pods: []string{"10.0.0.0/13" + fromDefault}, nodes: []string{"a 10.6.0.0/16"},
			problems: "NodeRangesOverlap", says: "10.1.0.0/16 of a, 10.1.0.0/16 of b, 10.1.2.0/24 of a and 2 more",
		},
		"nodes may not be listed": {
			in: objects{blocks: blocks, pools: pool("default-ipv4-ippool", "192.168.0.0/16"),
				denied: []learn.Right{{Verb: "list", Resource: "nodes"}}},
			cni: "calico", how: "blocks", pods: []string{"192.168.0.0/16" + fromDefault},
			nodes: []string{"a 192.168.0.0/25", "b 192.168.9.0/26"}, problems: "RightMissing",
		},
		"host-local, which gives the addresses of Node.spec": {
			in:  objects{nodes: two, pools: pool("default-ipv4-ippool", "10.244.0.0/16")},
			cni: "calico", how: "IPPools", pods: []string{"10.244.0.0/16" + fromDefault},
			nodes: []string{"a 10.244.0.0/24", "b 10.244.1.0/24"},
		},
		"policies only, with a pool that nobody uses": {
			in:  objects{nodes: node("a") + node("b"), pools: pool("default-ipv4-ippool", "192.168.0.0/16")},
			cni: "calico", how: "IPPools", problems: "PodRangesUnknown", says: "another CNI may give the addresses",
		},
		"the user says that it is Calico": {
			in:   objects{nodes: node("a") + node("b"), pools: pool("default-ipv4-ippool", "192.168.0.0/16")},
			spec: learn.Spec{CNI: "calico"}, cni: "calico", how: "spec.cni", pods: []string{"192.168.0.0/16" + fromDefault},
		},
		"with an etcd of its own": { // kosmos#823
			in:  objects{nodes: two, configs: config("kube-system", "calico-config", `"etcd_endpoints":"https://10.0.0.1:2379"`)},
			cni: "calico", how: "etcd_endpoints", problems: "PodRangesUnknown", says: "etcd of its own",
		},
		"the user says that it is Calico, and there is nothing of it": {
			in: objects{nodes: two}, spec: learn.Spec{CNI: "calico"}, cni: "calico", how: "spec.cni",
			problems: "PodRangesUnknown", says: "Calico has no IPPool",
		},
		"all pools disabled": {
			in:  objects{nodes: two, blocks: blocks, pools: poolWith("default-ipv4-ippool", "192.168.0.0/16", `"disabled":true`)},
			cni: "calico", how: "blocks", problems: "PodRangesUnknown", says: "no IPPool that is enabled",
		},
		"pools may not be listed": {
			in:  objects{nodes: two, blocks: blocks, denied: []learn.Right{{Verb: "list", Resource: "ippools.crd.projectcalico.org"}}},
			cni: "calico", how: "blocks", problems: "PodRangesUnknown RightMissing",
			says: "the reader may not list ippools.crd.projectcalico.org",
		},
		"nothing of Calico may be listed, and Node.spec is not it": {
			in: objects{nodes: two, denied: []learn.Right{{Verb: "list", Resource: "ippools.crd.projectcalico.org"},
				{Verb: "list", Resource: "blockaffinities.crd.projectcalico.org"}}},
			cni: "calico", how: "API of IPPools", problems: "PodRangesUnknown RightMissing",
		},
		"blocks may not be listed": {
			in: objects{nodes: two, pools: pool("default-ipv4-ippool", "10.244.0.0/16"),
				denied: []learn.Right{{Verb: "list", Resource: "blockaffinities.crd.projectcalico.org"}}},
			cni: "calico", how: "IPPools", pods: []string{"10.244.0.0/16" + fromDefault}, problems: "RightMissing",
		},
		"a pool that is no range": {
			in: objects{nodes: two, blocks: blocks, pools: pool("default-ipv4-ippool", "192.168.0.0/16") + pool("bad", "0.0.0.0/0") +
				pool("worse", "10.0.0.0")},
			cni: "calico", how: "blocks", pods: []string{"192.168.0.0/16" + fromDefault},
			nodes:    []string{"a 192.168.0.0/25", "b 192.168.9.0/26"},
			problems: "RangeInvalid", says: `Calico IPPool worse: "10.0.0.0" is no CIDR`,
		},
	} {
		t.Run(name, func(t *testing.T) { check(t, c) })
	}
}
