// SPDX-License-Identifier: Apache-2.0

package roster

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/member"
)

// The annotations of a Kubernetes node by which Talos nodes find each other.
const (
	AnnotationNodeID    = "cluster.talos.dev/node-id"
	AnnotationAddresses = "networking.talos.dev/self-ips"
	AnnotationPort      = "networking.talos.dev/api-server-port"
	AnnotationOverlay   = "networking.talos.dev/kubespan-ip"
	AnnotationKey       = "networking.talos.dev/kubespan-public-key"
	AnnotationRanges    = "networking.talos.dev/assigned-prefixes"
	AnnotationEndpoints = "networking.talos.dev/kubespan-endpoints"
	AnnotationExcluded  = "networking.talos.dev/kubespan-exclude-advertised-networks"
)

// ReadAnnotations is what a node's annotations say of it; false if there is none
// of ours. One that is wrong, and nothing of the node counts.
func ReadAnnotations(source, nodename string, in map[string]string) (Said, bool, error) {
	var problems []string
	r := reading{func(path, format string, args ...any) {
		problems = append(problems, path+": "+fmt.Sprintf(format, args...))
	}}
	list := func(name string) []string {
		if len(in[name]) > rosterAnnotation {
			r.report(name, "%d bytes, at most %d are read", len(in[name]), rosterAnnotation)
			return nil
		}
		if in[name] == "" {
			return nil
		}
		out := strings.Split(in[name], ",")
		for i := range out {
			out[i] = strings.TrimSpace(out[i])
		}
		return out
	}
	f := member.Facts{
		ID:        r.text("the node's name", nodename),
		Nodename:  nodename,
		Node:      r.text(AnnotationNodeID, in[AnnotationNodeID]),
		Key:       r.key(AnnotationKey, in[AnnotationKey]),
		Overlay6:  r.overlay(AnnotationOverlay, in[AnnotationOverlay], true),
		Addresses: each(r, AnnotationAddresses, list(AnnotationAddresses), r.address),
		Ranges:    each(r, AnnotationRanges, list(AnnotationRanges), r.prefix),
		Excluded:  each(r, AnnotationExcluded, list(AnnotationExcluded), r.prefix),
		Endpoints: each(r, AnnotationEndpoints, list(AnnotationEndpoints), func(path, s string) member.Endpoint {
			w := r.endpoint(path, s)
			w.Kind = member.KindOwn
			return w
		}),
	}
	if nodename == "" {
		r.report("the node's name", "it is empty")
	}
	if s := in[AnnotationPort]; s != "" {
		n, err := strconv.ParseUint(s, 10, 16)
		if err != nil || n == 0 || s != strconv.FormatUint(n, 10) {
			r.report(AnnotationPort, "%q is no port", short(s))
		}
		f.APIServerPort = uint16(n)
	}
	if len(problems) > 0 {
		return Said{}, false, fault.Newf(fault.CodeAnnotation, "the annotations of node %q cannot be read", short(nodename)).
			Whyf("%s", strings.Join(problems[:min(len(problems), 10)], "; ")).
			Hint("correct or remove them: kubectl annotate node NAME KEY-; nothing of them counts until then")
	}
	any := slices.ContainsFunc(annotations(), func(name string) bool { return in[name] != "" })
	return Said{Source: Source{Tier: TierKubernetes, Name: source}, Facts: f}, any, nil
}

// WriteAnnotations gives every annotation of ours; an empty one is to be removed.
func WriteAnnotations(f member.Facts) map[string]string {
	out := map[string]string{
		AnnotationNodeID: f.Node, AnnotationKey: f.Key.String(), AnnotationOverlay: addrText(f.Overlay6), AnnotationPort: "",
		AnnotationAddresses: strings.Join(texts(f.Addresses), ","), AnnotationRanges: strings.Join(texts(f.Ranges), ","),
		AnnotationExcluded: strings.Join(texts(f.Excluded), ","), AnnotationEndpoints: "",
	}
	if f.APIServerPort != 0 {
		out[AnnotationPort] = strconv.Itoa(int(f.APIServerPort))
	}
	var where []netip.AddrPort
	for _, w := range f.Endpoints {
		where = append(where, w.Addr)
	}
	out[AnnotationEndpoints] = strings.Join(texts(where), ",")
	return out
}

func annotations() []string {
	return []string{AnnotationNodeID, AnnotationAddresses, AnnotationPort, AnnotationOverlay, AnnotationKey,
		AnnotationRanges, AnnotationEndpoints, AnnotationExcluded}
}
