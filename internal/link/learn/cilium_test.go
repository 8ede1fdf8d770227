// SPDX-License-Identifier: Apache-2.0

package learn_test

import (
	"testing"

	"github.com/tombolo-io/tombolo/internal/link/learn"
)

func TestCilium(t *testing.T) {
	const from = " < Cilium's ConfigMap kube-system/cilium-config"
	// Cilium's own ranges of nodes are not those of Node.spec.
	two := node("a", "10.244.0.0/24") + node("b", "10.244.1.0/24")
	own := ciliumNode("a", "10.0.0.0/24") + ciliumNode("b", "10.0.1.0/24", "fd00:2:0:1::/64") + ciliumNode("gone", "10.0.2.0/24")
	conf := func(data string) string { return config("kube-system", "cilium-config", data) }
	for name, c := range map[string]podCase{
		"a pool of the cluster": {
			in: objects{nodes: two, ciliumNodes: own,
				configs: conf(`"ipam":"cluster-pool","cluster-pool-ipv4-cidr":"10.0.0.0/16","cluster-pool-ipv6-cidr":"fd00:2::/48"`)},
			cni: "cilium", how: "cilium-config", pods: []string{"10.0.0.0/16" + from},
			nodes:    []string{"a 10.0.0.0/24", "b 10.0.1.0/24"},
			problems: "PodRangesDisagree", says: "fd00:2:0:1::/64 of b", // IPv6 is not enabled
		},
		"both families, and several ranges": {
			in: objects{nodes: two, ciliumNodes: own, configs: conf(`"ipam":"cluster-pool","enable-ipv4":"true","enable-ipv6":"true",` +
				`"cluster-pool-ipv4-cidr":"10.0.0.0/16 10.2.0.0/16","cluster-pool-ipv6-cidr":"fd00:2::/48"`)},
			cni: "cilium", how: "cilium-config",
			pods:  []string{"10.0.0.0/16" + from, "10.2.0.0/16" + from, "fd00:2::/48" + from},
			nodes: []string{"a 10.0.0.0/24", "b 10.0.1.0/24 fd00:2:0:1::/64"},
		},
		"IPv6 alone": {
			in: objects{nodes: two, configs: conf(`"ipam":"cluster-pool","enable-ipv4":"false","enable-ipv6":"true",` +
				`"cluster-pool-ipv4-cidr":"10.0.0.0/8","cluster-pool-ipv6-cidr":"fd00:2::/48"`)},
			cni: "cilium", how: "cilium-config", pods: []string{"fd00:2::/48" + from},
		},
		"the default pool has the services in it": {
			in:  objects{nodes: two, ciliumNodes: own, configs: conf(`"ipam":"cluster-pool","cluster-pool-ipv4-cidr":"10.0.0.0/8"`)},
			cni: "cilium", how: "cilium-config", pods: []string{"10.0.0.0/8" + from},
			nodes:    []string{"a 10.0.0.0/24", "b 10.0.1.0/24"},
			problems: "PodRangesDisagree RangesOverlap", says: "overlaps 10.96.0.0/12 of services (ServiceCIDR kubernetes)",
		},
		"ranges of Kubernetes": {
			in:  objects{nodes: two, ciliumNodes: own, configs: conf(`"ipam":"kubernetes"`)},
			cni: "cilium", how: "cilium-config", pods: []string{"10.244.0.0/23 < Node.spec.podCIDRs of all nodes"},
			nodes: []string{"a 10.244.0.0/24", "b 10.244.1.0/24"},
		},
		"several pools": {
			in: objects{nodes: two, configs: conf(`"ipam":"multi-pool"`),
				ciliumPools: `{"metadata":{"name":"default"},"spec":{"ipv4":{"cidrs":["10.10.0.0/16"],"maskSize":27},"ipv6":{"cidrs":["fd00:3::/48"]}}}` +
					"\n" + `{"metadata":{"name":"mars"},"spec":{"ipv4":{"cidrs":["10.20.0.0/16"],"maskSize":27}}}`,
				ciliumNodes: `{"metadata":{"name":"a"},"spec":{"ipam":{"pools":{"allocated":[{"pool":"default","cidrs":["10.10.0.0/27","10.10.0.32/27"]},` +
					`{"pool":"mars","cidrs":["10.20.0.0/27"]}]}}}}`},
			cni: "cilium", how: "cilium-config", pods: []string{"10.10.0.0/16 < CiliumPodIPPool default",
				"10.20.0.0/16 < CiliumPodIPPool mars", "fd00:3::/48 < CiliumPodIPPool default"},
			nodes: []string{"a 10.10.0.0/26 10.20.0.0/27"},
		},
		"addresses of the cloud": {
			in:  objects{nodes: node("a") + node("b"), ciliumNodes: ciliumNode("a"), configs: conf(`"ipam":"eni"`)},
			cni: "cilium", how: "cilium-config", problems: "PodRangesUnknown", says: `IPAM mode "eni"`,
		},
		"a configuration of another place": {
			in: objects{nodes: two, ciliumNodes: own, configs: config("cilium", "cilium-config",
				`"ipam":"cluster-pool","cluster-pool-ipv4-cidr":"10.0.0.0/16"`) + config("elsewhere", "cilium-config", `"ipam":"eni"`)},
			cni: "cilium", how: "cilium/cilium-config", pods: []string{"10.0.0.0/16 < Cilium's ConfigMap cilium/cilium-config"},
			nodes: []string{"a 10.0.0.0/24", "b 10.0.1.0/24"}, problems: "PodRangesDisagree",
		},
		"a configuration that is not found": {
			in: objects{nodes: two, ciliumNodes: own}, cni: "cilium", how: "CiliumNodes",
			pods:  []string{"10.0.0.0/23 < CiliumNodes of all nodes", "fd00:2:0:1::/64 < CiliumNodes of all nodes"},
			nodes: []string{"a 10.0.0.0/24", "b 10.0.1.0/24 fd00:2:0:1::/64"},
		},
		"a configuration that is not found, and a node without ranges": {
			in: objects{nodes: two + node("c", "10.244.2.0/24"), ciliumNodes: own}, cni: "cilium", how: "CiliumNodes",
			problems: "PodRangesUnknown", says: "not all nodes have ranges by CiliumNodes: c",
		},
		"behind another CNI": {
			in: objects{nodes: two, configs: conf(`"ipam":"cluster-pool","cni-chaining-mode":"generic-veth","cluster-pool-ipv4-cidr":"10.0.0.0/8"`) +
				flannel("kube-flannel", `{"Network":"10.244.0.0/16"}`)},
			cni: "flannel", how: "kube-flannel", pods: []string{"10.244.0.0/16 < Flannel's ConfigMap kube-flannel/kube-flannel-cfg"},
			nodes: []string{"a 10.244.0.0/24", "b 10.244.1.0/24"},
		},
		"annotations of a Flannel that was removed": {
			in: objects{nodes: marked("a", "flannel.alpha.coreos.com/backend-type", "vxlan", "10.244.0.0/24"), ciliumNodes: own,
				configs: conf(`"ipam":"cluster-pool","cni-chaining-mode":"none","cluster-pool-ipv4-cidr":"10.0.0.0/16"`)},
			cni: "cilium", how: "cilium-config", pods: []string{"10.0.0.0/16" + from}, nodes: []string{"a 10.0.0.0/24"},
		},
		"the user's ranges win": {
			in:   objects{nodes: two, ciliumNodes: own, configs: conf(`"ipam":"cluster-pool","cluster-pool-ipv4-cidr":"10.0.0.0/8"`)},
			spec: learn.Spec{PodRanges: []string{"10.0.0.0/16"}}, cni: "cilium", how: "cilium-config",
			pods: []string{"10.0.0.0/16 < spec.clusterPodCIDRs"}, nodes: []string{"a 10.0.0.0/24", "b 10.0.1.0/24"},
			problems: "PodRangesDisagree",
		},
	} {
		t.Run(name, func(t *testing.T) { check(t, c) })
	}
}
