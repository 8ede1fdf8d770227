// SPDX-License-Identifier: Apache-2.0

package invite

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// Said is what people say of a cluster when it joins, as words of a command line.
type Said struct {
	NodeElasticIPs []string // NODE=IP
	PodCIDRs       []string
	Maps           []string // CIDR=CIDR
	ExternalAPI    bool
	NetworkType    string // empty: not said
	CNI            string // empty: not said
}

// Nothing reports whether nothing was said.
func (s Said) Nothing() bool {
	return len(s.NodeElasticIPs)+len(s.PodCIDRs)+len(s.Maps) == 0 && !s.ExternalAPI && s.NetworkType == "" && s.CNI == ""
}

// NetworkTypes are the words for networkType.
func NetworkTypes() []string { return []string{v1alpha1.NetworkP2P, v1alpha1.NetworkGateway} }

// CNIs are the words for cni.
func CNIs() []string {
	return []string{"auto", "calico", "flannel", "cilium", "globalrouter", "other"}
}

// The bounds of a Cluster's spec.
const (
	mostElastic = 1024
	mostRanges  = 64
)

// Spec is what was said as the spec of a Cluster, with nothing else in it. The error has all that is wrong.
func Spec(s Said) (v1alpha1.ClusterSpec, error) {
	out := v1alpha1.ClusterSpec{NetworkType: s.NetworkType, CNI: s.CNI, UseExternalAPIServer: s.ExternalAPI}
	var wrong []string
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	owner := map[netip.Addr]string{}
	for _, text := range s.NodeElasticIPs {
		node, ip, _ := strings.Cut(text, "=")
		a, err := netip.ParseAddr(ip)
		switch {
		case node == "" || len(node) > 253 || err != nil || a.Zone() != "" || a.Is4In6():
			add("--node-elastic-ip %q is not NODE=IP", text)
		case a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast():
			add("--node-elastic-ip %q: others cannot reach a node by %s", text, a)
		case out.NodeElasticIPMap[node] != "":
			add("--node-elastic-ip names the node %q twice", node)
		case owner[a] != "":
			add("--node-elastic-ip gives %s to %q and %q: it has to lead to one node alone", a, owner[a], node)
		default:
			if out.NodeElasticIPMap == nil {
				out.NodeElasticIPMap = map[string]v1alpha1.Address{}
			}
			out.NodeElasticIPMap[node], owner[a] = v1alpha1.Address(a.String()), node
		}
	}
	for _, text := range s.PodCIDRs {
		if p, ok := rangeOf(text); !ok {
			add("--cluster-pod-cidr %q is no range without host bits, such as 10.244.0.0/16", text)
		} else if !slices.Contains(out.ClusterPodCIDRs, p.String()) {
			out.ClusterPodCIDRs = append(out.ClusterPodCIDRs, p.String())
		}
	}
	for _, text := range s.Maps {
		from, to, _ := strings.Cut(text, "=")
		a, okA := rangeOf(from)
		b, okB := rangeOf(to)
		switch {
		case !okA || !okB:
			add("--map %q is not CIDR=CIDR, both without host bits", text)
		case a.Addr().Is4() != b.Addr().Is4() || a.Bits() != b.Bits():
			add("--map %q: both ranges must be of the same IP version and length", text)
		case out.GlobalCIDRsMap[a.String()] != "":
			add("--map maps %s twice", a)
		default:
			if out.GlobalCIDRsMap == nil {
				out.GlobalCIDRsMap = map[string]v1alpha1.Range{}
			}
			out.GlobalCIDRsMap[a.String()] = v1alpha1.Range(b.String())
		}
	}
	if s.NetworkType != "" && !slices.Contains(NetworkTypes(), s.NetworkType) {
		add("--network-type %q is none of %s", s.NetworkType, strings.Join(NetworkTypes(), ", "))
	}
	if s.CNI != "" && !slices.Contains(CNIs(), s.CNI) {
		add("--cni %q is none of %s", s.CNI, strings.Join(CNIs(), ", "))
	}
	if n := len(s.NodeElasticIPs); n > mostElastic {
		add("--node-elastic-ip is given %d times, at most %d are allowed", n, mostElastic)
	}
	if n := max(len(s.PodCIDRs), len(s.Maps)); n > mostRanges {
		add("%d ranges are given, at most %d are allowed", n, mostRanges)
	}
	if len(wrong) == 0 {
		return out, nil
	}
	f := fault.New(fault.CodeUsage, "what is said of the cluster cannot be used").
		Hint("tombolo link join --help; nothing was changed")
	if len(wrong) == 1 {
		return v1alpha1.ClusterSpec{}, f.Whyf("%s", wrong[0])
	}
	return v1alpha1.ClusterSpec{}, f.Whyf("\n  %s", strings.Join(wrong, "\n  "))
}

// rangeOf reads a range without host bits.
func rangeOf(text string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(text)
	return p, err == nil && p == p.Masked() && !p.Addr().Is4In6()
}
