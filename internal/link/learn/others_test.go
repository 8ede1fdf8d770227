// SPDX-License-Identifier: Apache-2.0

package learn_test

import (
	"fmt"
	"testing"

	"github.com/tombolo-io/tombolo/internal/link/learn"
)

const (
	fromFlannel = " < Flannel's ConfigMap kube-flannel/kube-flannel-cfg"
	fromSpecs   = " < Node.spec.podCIDRs of all nodes"
)

func TestFlannel(t *testing.T) {
	two := node("a", "10.244.0.0/24") + node("b", "10.244.1.0/24")
	dual := node("a", "10.244.0.0/24", "fd00:4::/64") + node("b", "10.244.1.0/24", "fd00:4:0:1::/64")
	const key = "flannel.alpha.coreos.com/backend-type"
	for name, c := range map[string]podCase{
		"in its namespace": {
			in:  objects{nodes: two, configs: flannel("kube-flannel", `{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}`)},
			cni: "flannel", how: "kube-flannel/kube-flannel-cfg", pods: []string{"10.244.0.0/16" + fromFlannel},
			nodes: []string{"a 10.244.0.0/24", "b 10.244.1.0/24"},
		},
		"in kube-system, as before 0.20": {
			in:  objects{nodes: two, configs: flannel("kube-system", `{"Network":"10.244.0.0/16"}`)},
			cni: "flannel", how: "kube-system/kube-flannel-cfg",
			pods:  []string{"10.244.0.0/16 < Flannel's ConfigMap kube-system/kube-flannel-cfg"},
			nodes: []string{"a 10.244.0.0/24", "b 10.244.1.0/24"},
		},
		"both families": {
			in:  objects{nodes: dual, configs: flannel("kube-flannel", `{"Network":"10.244.0.0/16","EnableIPv6":true,"IPv6Network":"fd00:4::/48"}`)},
			cni: "flannel", how: "kube-flannel", pods: []string{"10.244.0.0/16" + fromFlannel, "fd00:4::/48" + fromFlannel},
			nodes: []string{"a 10.244.0.0/24 fd00:4::/64", "b 10.244.1.0/24 fd00:4:0:1::/64"},
		},
		"IPv6 that is not enabled": {
			in:  objects{nodes: two, configs: flannel("kube-flannel", `{"Network":"10.244.0.0/16","IPv6Network":"fd00:4::/48"}`)},
			cni: "flannel", how: "kube-flannel", pods: []string{"10.244.0.0/16" + fromFlannel},
			nodes: []string{"a 10.244.0.0/24", "b 10.244.1.0/24"},
		},
		"IPv6 alone": {
			in:  objects{configs: flannel("kube-flannel", `{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fd00:4::/48"}`)},
			cni: "flannel", how: "kube-flannel", pods: []string{"fd00:4::/48" + fromFlannel},
		},
		"a node beside the network": {
			in:  objects{nodes: two + node("c", "10.42.0.0/24"), configs: flannel("kube-flannel", `{"Network":"10.244.0.0/16"}`)},
			cni: "flannel", how: "kube-flannel", pods: []string{"10.244.0.0/16" + fromFlannel},
			nodes: []string{"a 10.244.0.0/24", "b 10.244.1.0/24"}, problems: "PodRangesDisagree", says: "10.42.0.0/24 of c",
		},
		"a new node without a range": {
			in:  objects{nodes: two + node("c"), configs: flannel("kube-flannel", `{"Network":"10.244.0.0/16"}`)},
			cni: "flannel", how: "kube-flannel", pods: []string{"10.244.0.0/16" + fromFlannel},
			nodes: []string{"a 10.244.0.0/24", "b 10.244.1.0/24"},
		},
		"no JSON": {
			in:  objects{nodes: two, configs: flannel("kube-flannel", `Network: 10.244.0.0/16`)},
			cni: "flannel", how: "kube-flannel", problems: "PodRangesUnknown", says: "net-conf.json that cannot be decoded",
		},
		"two that disagree": {
			in: objects{nodes: two, configs: flannel("kube-flannel", `{"Network":"10.244.0.0/16"}`) +
				flannel("kube-system", `{"Network":"10.42.0.0/16"}`)},
			cni: "flannel", how: "kube-flannel", problems: "PodRangesUnknown", says: "two ConfigMaps of Flannel disagree",
		},
		"two that agree": {
			in: objects{nodes: two, configs: flannel("kube-flannel", `{"Network":"10.244.0.0/16"}`) +
				flannel("kube-system", `{"Network":"10.244.0.0/16"}`)},
			cni: "flannel", how: "kube-flannel", pods: []string{"10.244.0.0/16" + fromFlannel},
			nodes: []string{"a 10.244.0.0/24", "b 10.244.1.0/24"},
		},
		"Canal, with the pool that Calico makes and does not use": {
			in: objects{nodes: two, pools: pool("default-ipv4-ippool", "192.168.0.0/16"),
				configs: config("kube-system", "canal-config", `"net-conf.json":"{\"Network\":\"10.244.0.0/16\"}"`)},
			cni: "flannel", how: "canal-config", pods: []string{"10.244.0.0/16 < Flannel's ConfigMap kube-system/canal-config"},
			nodes: []string{"a 10.244.0.0/24", "b 10.244.1.0/24"},
		},
		"k3s, which has it built in": { // submariner#2128
			in:  objects{nodes: marked("a", key, "vxlan", "10.42.0.0/24") + marked("b", key, "vxlan", "10.42.2.0/24")},
			cni: "flannel", how: "annotations of Flannel",
			pods:  []string{"10.42.0.0/24" + fromSpecs, "10.42.2.0/24" + fromSpecs},
			nodes: []string{"a 10.42.0.0/24", "b 10.42.2.0/24"},
		},
	} {
		t.Run(name, func(t *testing.T) { check(t, c) })
	}
}

func TestOtherCNIs(t *testing.T) {
	two := node("a", "10.244.0.0/24") + node("b", "10.244.1.0/24")
	router := config("kube-system", "kube-router-cfg", `"cni-conf.json":"{}"`)
	many := ""
	for i := range 512 { // every other range, so that none can be merged
		many += node(fmt.Sprint("n", i), fmt.Sprintf("10.%d.%d.0/24", i/128, i%128*2))
	}
	for name, c := range map[string]podCase{
		"kube-router": {
			in: objects{nodes: two, configs: router}, cni: "kube-router", how: "kube-router-cfg",
			pods: []string{"10.244.0.0/23" + fromSpecs}, nodes: []string{"a 10.244.0.0/24", "b 10.244.1.0/24"},
		},
		"kube-router with annotations": {
			in: objects{configs: router, nodes: marked("a", "kube-router.io/pod-cidr", "10.8.0.0/24", "10.244.0.0/24") +
				marked("b", "kube-router.io/pod-cidrs", "10.8.1.0/24,fd00:8::/64")},
			cni: "kube-router", how: "kube-router-cfg", pods: []string{"10.8.0.0/23" + fromSpecs, "fd00:8::/64" + fromSpecs},
			nodes: []string{"a 10.8.0.0/24", "b 10.8.1.0/24 fd00:8::/64"},
		},
		"annotations of kube-router where there is none": {
			in:  objects{nodes: marked("a", "kube-router.io/pod-cidr", "10.8.0.0/24", "10.244.0.0/24")},
			cni: "unknown", pods: []string{"10.244.0.0/24" + fromSpecs}, nodes: []string{"a 10.244.0.0/24"}, problems: "CNIUnknown",
		},
		"one that is not known": {
			in: objects{nodes: two}, cni: "unknown", pods: []string{"10.244.0.0/23" + fromSpecs},
			nodes: []string{"a 10.244.0.0/24", "b 10.244.1.0/24"}, problems: "CNIUnknown", says: "name it in spec.cni",
		},
		"the older field alone": {
			in:  objects{nodes: `{"metadata":{"name":"a"},"spec":{"podCIDR":"10.244.0.0/24"},` + readyStatus + `}`},
			cni: "unknown", pods: []string{"10.244.0.0/24" + fromSpecs}, nodes: []string{"a 10.244.0.0/24"}, problems: "CNIUnknown",
		},
		"one node has a range, and another one none": { // submariner#2953
			in: objects{nodes: node("a", "10.244.0.0/24") + node("b")}, cni: "unknown",
			problems: "CNIUnknown PodRangesUnknown", says: "not all nodes have ranges by Node.spec.podCIDRs: b",
		},
		"a node without one that does not work": {
			in: objects{nodes: two + lost("c")}, cni: "unknown", pods: []string{"10.244.0.0/23" + fromSpecs},
			nodes: []string{"a 10.244.0.0/24", "b 10.244.1.0/24"}, problems: "CNIUnknown",
		},
		"a node with one that does not work": {
			in: objects{nodes: two + lost("c", "10.244.8.0/24")}, cni: "unknown",
			pods:  []string{"10.244.0.0/23" + fromSpecs, "10.244.8.0/24" + fromSpecs},
			nodes: []string{"a 10.244.0.0/24", "b 10.244.1.0/24", "c 10.244.8.0/24"}, problems: "CNIUnknown",
		},
		"no node at all": {cni: "unknown", problems: "CNIUnknown PodRangesUnknown", says: "the cluster has no node"},
		"a cloud's, without ranges": {
			in: objects{nodes: node("a") + node("b")}, cni: "unknown", problems: "CNIUnknown PodRangesUnknown",
			says: "name them in spec.clusterPodCIDRs",
		},
		"globalrouter, as the user says": {
			in: objects{nodes: two}, spec: learn.Spec{CNI: "globalrouter"}, cni: "globalrouter", how: "spec.cni",
			pods: []string{"10.244.0.0/23" + fromSpecs}, nodes: []string{"a 10.244.0.0/24", "b 10.244.1.0/24"},
		},
		"more ranges than can be linked": {
			in: objects{nodes: many}, cni: "unknown", problems: "CNIUnknown PodRangesUnknown", says: "they are 512",
		},
		"the user says auto": {
			in: objects{nodes: two, configs: router}, spec: learn.Spec{CNI: "auto"}, cni: "kube-router", how: "kube-router-cfg",
			pods: []string{"10.244.0.0/23" + fromSpecs}, nodes: []string{"a 10.244.0.0/24", "b 10.244.1.0/24"},
		},
		"of two": {
			in: objects{nodes: two, configs: router + flannel("kube-flannel", `{"Network":"10.244.0.0/16"}`)}, cni: "unknown",
			problems: "CNIAmbiguous PodRangesUnknown",
			says:     "flannel (there is the ConfigMap kube-flannel/kube-flannel-cfg), kube-router (there is the ConfigMap",
		},
		"of two, and the user decides": {
			in:   objects{nodes: two, configs: router + flannel("kube-flannel", `{"Network":"10.244.0.0/16"}`)},
			spec: learn.Spec{CNI: "flannel"}, cni: "flannel", how: "spec.cni", pods: []string{"10.244.0.0/16" + fromFlannel},
			nodes: []string{"a 10.244.0.0/24", "b 10.244.1.0/24"},
		},
		"of two, and the user names ranges": {
			in:   objects{nodes: two, configs: router + flannel("kube-flannel", `{"Network":"10.244.0.0/16"}`)},
			spec: learn.Spec{PodRanges: []string{"10.244.0.0/16", "fd00::/48"}}, cni: "unknown",
			pods: []string{"10.244.0.0/16 < spec.clusterPodCIDRs", "fd00::/48 < spec.clusterPodCIDRs"}, problems: "CNIAmbiguous",
		},
		"Calico's blocks and Flannel's configuration": {
			in: objects{nodes: two, pools: pool("p", "10.244.0.0/16"), blocks: block("a", "10.244.0.0/26"),
				configs: flannel("kube-flannel", `{"Network":"10.244.0.0/16"}`)}, cni: "unknown",
			problems: "CNIAmbiguous PodRangesUnknown", says: "calico (nodes have blocks of Calico's IPAM), flannel",
		},
		"Calico that was removed, behind kube-router": {
			in:  objects{nodes: two, pools: pool("p", "192.168.0.0/16"), blocks: block("gone", "192.168.0.0/26"), configs: router},
			cni: "kube-router", how: "kube-router-cfg", pods: []string{"10.244.0.0/23" + fromSpecs},
			nodes: []string{"a 10.244.0.0/24", "b 10.244.1.0/24"},
		},
		"what would tell it may not be read": {
			in: objects{nodes: two, denied: []learn.Right{{"get", "configmaps", "kube-system", "cilium-config"}}}, cni: "unknown",
			problems: "CNIUnknown PodRangesUnknown RightMissing",
			says:     "the reader may not get configmaps cilium-config in the namespace kube-system",
		},
		"nodes may not be listed": {
			in: objects{denied: []learn.Right{{Verb: "list", Resource: "nodes"}}}, cni: "unknown",
			problems: "CNIUnknown PodRangesUnknown RightMissing", says: "not all nodes can be read",
		},
		"the user's ranges, one of which is none": {
			in:   objects{nodes: two, configs: router},
			spec: learn.Spec{PodRanges: []string{"10.244.0.0/16", "10.244.0.0/33", "127.0.0.0/8"}}, cni: "kube-router", how: "cfg",
			pods: []string{"10.244.0.0/16 < spec.clusterPodCIDRs"}, nodes: []string{"a 10.244.0.0/24", "b 10.244.1.0/24"},
			problems: "RangeInvalid", says: `spec.clusterPodCIDRs: "10.244.0.0/33" is no CIDR`,
		},
		"the user's ranges are none": {
			in: objects{nodes: two, configs: router}, spec: learn.Spec{PodRanges: []string{"::ffff:10.0.0.0/104"}},
			cni: "kube-router", how: "cfg", problems: "PodRangesUnknown RangeInvalid", says: "none that is given can be used",
		},
	} {
		t.Run(name, func(t *testing.T) { check(t, c) })
	}
}
