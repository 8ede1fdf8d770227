// SPDX-License-Identifier: Apache-2.0

//go:build kube

package host_test

import (
	"fmt"
	"strings"
	"testing"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
)

const cluster = `{apiVersion: tombolo.dev/v1alpha1, kind: Cluster, metadata: {name: %s}, spec: {%s}}
---
`

// TestThreeClustersOfAHost: members say what their clusters have, and the host's controller accepts or refuses it.
func TestThreeClustersOfAHost(t *testing.T) {
	x := start(t)
	t.Run("order", x.order)
	t.Run("attacks", x.attacks)
	t.Run("a version", x.versions)
	t.Run("many nodes", x.many)
	x.kube(t, "", "delete", "clusters", "a", "ab")
	x.apply(t, "", fmt.Sprintf(cluster, "c1", "")+fmt.Sprintf(cluster, "c2", "")+
		fmt.Sprintf(cluster, "c3", "globalCIDRsMap: {10.1.0.0/16: 240.3.0.0/16}"))
	x.judged(t, "c1", objects.ReasonUnlearned, "not known yet")
	x.learns(t, "c1", "10.1.0.0/16")
	x.judged(t, "c1", objects.ReasonDistinct, "no range of cluster c1")
	x.learns(t, "c2", "10.1.0.0/16")
	x.judged(t, "c2", objects.ReasonOverlap, "pods 10.1.0.0/16 of cluster c2 and pods 10.1.0.0/16 of cluster c1 overlap")
	x.learns(t, "c3", "10.1.0.0/16")
	x.judged(t, "c3", objects.ReasonOverlap, "map the range of cluster c1 too")

	// Those that are mapped both are linked. What is mapped is the winner's still.
	x.apply(t, "", fmt.Sprintf(cluster, "c1", "globalCIDRsMap: {10.1.0.0/16: 240.1.0.0/16}"))
	if c := x.judged(t, "c3", objects.ReasonDistinct, "c3"); len(c.Status.Mapped) != 1 || c.Status.Mapped[0].As != "240.3.0.0/16" {
		t.Errorf("%+v", c.Status)
	}
	c := x.judged(t, "c1", objects.ReasonDistinct, "c1")
	if fmt.Sprint(c.Status.Accepted) != "[10.1.0.0/16 240.1.0.0/16]" || c.Status.Mapped[0].As != "240.1.0.0/16" {
		t.Errorf("%+v", c.Status)
	}
	x.judged(t, "c2", objects.ReasonOverlap, "map the range of cluster c2 too")

	// A change is judged again: first it fits, then it is another one's, then a node claims what is another one's.
	x.learns(t, "c2", "10.2.0.0/16")
	x.judged(t, "c2", objects.ReasonDistinct, "c2")
	x.learns(t, "c2", "240.3.0.0/17")
	x.judged(t, "c2", objects.ReasonOverlap, "pods 240.3.0.0/17 of cluster c2 and 240.3.0.0/16 (mapped from 10.1.0.0/16) of cluster c3")
	x.learns(t, "c2", "10.2.0.0/16")
	x.judged(t, "c2", objects.ReasonDistinct, "c2")
	x.apply(t, "c1", nodeOf("c1", "n1", "podCIDRs: [10.2.3.0/24]"))
	x.judged(t, "c1", objects.ReasonOverlap, "cluster c2 was accepted for that before")
	x.kube(t, "c1", "delete", "clusternode", "c1.n1")
	x.judged(t, "c1", objects.ReasonDistinct, "c1")

	// The winner stays, whatever the other one is called, until it goes.
	x.apply(t, "", fmt.Sprintf(cluster, "c0", ""))
	x.learns(t, "c0", "240.1.0.0/16")
	x.judged(t, "c0", objects.ReasonOverlap, "cluster c1 was accepted")
	x.judged(t, "c1", objects.ReasonDistinct, "c1")
	x.kube(t, "", "delete", "cluster", "c1")
	x.judged(t, "c0", objects.ReasonDistinct, "c0")
	if events := x.kube(t, "", "get", "events", "-n", "default"); !strings.Contains(events, "RangesRefused") ||
		!strings.Contains(events, "RangesAccepted") {
		t.Errorf("events: %s", events)
	}
}

func nodeOf(cluster, node, spec string) string {
	return fmt.Sprintf(`{apiVersion: tombolo.dev/v1alpha1, kind: ClusterNode, metadata: {name: %[1]s.%[2]s},
  spec: {clusterName: %[1]s, nodeName: %[2]s, %[3]s}}
---
`, cluster, node, spec)
}

func configOf(name string) string {
	return "{apiVersion: tombolo.dev/v1alpha1, kind: NodeConfig, metadata: {name: " + name + "}, spec: {}}\n"
}

// owned is the configuration of a node, which the ClusterNode of a name owns.
func owned(name, by string) string {
	return strings.Replace(configOf(name), "},", ", ownerReferences: [{apiVersion: tombolo.dev/v1alpha1, kind: ClusterNode, "+
		"name: "+by+", uid: 1b4e28ba-2fa1-11d2-883f-0016d3cca427}]},", 1)
}

// attacks: a member writes what is of its own cluster, and nothing else, with whatever it was given.
func (x *world) attacks(t *testing.T) {
	x.apply(t, "", fmt.Sprintf(cluster, "a", "globalCIDRsMap: {10.8.0.0/16: 240.8.0.0/16}")+fmt.Sprintf(cluster, "ab", "")+
		nodeOf("ab", "n1", "")+configOf("ab.n1"))
	x.learns(t, "a", "10.8.0.0/16")
	x.judged(t, "a", objects.ReasonDistinct, "a")
	x.learns(t, "ab", "240.8.0.0/16")
	x.judged(t, "ab", objects.ReasonOverlap, "cluster a")
	patch := func(args ...string) []string { return append([]string{"patch", "--type=merge"}, args...) }
	status := func(args ...string) []string { return append(patch("--subresource=status"), args...) }
	for _, c := range []struct {
		name, as, stdin string
		args            []string
		refused         string // empty: allowed
	}{
		{"its own node", "ab", nodeOf("ab", "n2", ""), nil, ""},
		{"its own configuration", "ab", owned("ab.n2", "ab.n2"), nil, ""},
		{"its node's status", "ab", "", status("clusternode", "ab.n2", "-p", `{"status":{"nodeStatus":"Ready"}}`), ""},
		{"its configuration's status", "ab", strings.Replace(configOf("ab.n2"), "spec: {}", "status: {differs: 1}", 1),
			[]string{"apply", "--server-side", "--subresource=status", "-f", "-"}, ""},
		{"its own readiness", "ab", "", status("cluster", "ab", "-p", `{"status":{"gateways":["n1"]}}`), ""},
		{"reading nodes", "ab", "", []string{"get", "clusternodes"}, ""},
		{"reading the policy", "ab", "", []string{"get", "validatingadmissionpolicy", "links.tombolo.dev"}, ""},
		{"deleting its node", "ab", "", []string{"delete", "clusternode", "ab.n2"}, ""},
		{"deleting its configuration", "ab", "", []string{"delete", "--wait=false", "nodeconfig", "ab.n2"}, ""},

		{"a configuration that nobody owns", "ab", configOf("ab.n9"), nil, "is owned by the ClusterNode"},
		{"a configuration of another node", "ab", owned("ab.n9", "ab.n1"), nil, "is owned by the ClusterNode"},
		{"a node that cannot go", "ab", "", patch("clusternode", "ab.n1", "-p", `{"metadata":{"finalizers":["x.y/z"]}}`), "no finalizers"},
		{"a large node", "ab", "", patch("clusternode", "ab.n1", "-p", `{"metadata":{"annotations":{"x":"`+
			strings.Repeat("x", 257)+`"}}}`), "8 annotations of 256"},
		{"a node that was there before", "ab", "", patch("clusternode", "ab.n1", "-p",
			`{"metadata":{"annotations":{"tombolo.dev/created":"2020-01-01T00:00:00Z"}}}`), "is on copies alone"},
		{"saying that it is heard", "ab", "", status("cluster", "ab", "-p", `{"status":{"conditions":[{"type":"MemberHeard",`+
			`"status":"True","reason":"Heard","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`), "the host's controller writes"},
		{"lifting its bound", "ab", "", patch("configmap", "-n", "tombolo-links", "tombolo-link-bound", "-p", `{"data":null}`), "cannot"},
		{"another cluster's node", "a", nodeOf("ab", "n3", ""), nil, "may not write clusternodes ab.n3"},
		{"a node of another, which is there", "a", nodeOf("ab", "n1", "podCIDRs: [10.1.0.0/24]"), nil, "may not write"},
		{"a node under its own name", "a", strings.Replace(nodeOf("ab", "n3", ""), "ab.n3", "a.n3", 1), nil, "not clusterName.nodeName"},
		{"its node moved to another", "ab", "", patch("clusternode", "ab.n1", "-p", `{"spec":{"clusterName":"a"}}`), "clusterName does not change"},
		{"the status of another's node", "a", "", status("clusternode", "ab.n1", "-p", `{"status":{"nodeStatus":"NotReady"}}`),
			"may not write clusternodes/status ab.n1"},
		{"deleting another's node", "a", "", []string{"delete", "clusternode", "ab.n1"}, "may not write clusternodes ab.n1"},
		{"deleting all nodes", "a", "", []string{"delete", "--raw", "/apis/tombolo.dev/v1alpha1/clusternodes"},
			"cannot deletecollection"},
		{"deleting another's configuration", "a", "", []string{"delete", "--wait=false", "nodeconfig", "ab.n1"},
			"may not write nodeconfigs ab.n1"},
		{"another's configuration", "a", configOf("ab.n1"), nil, "may not write nodeconfigs ab.n1"},
		{"reading configurations", "a", "", []string{"get", "nodeconfigs"}, "cannot list"},
		{"reading one configuration", "a", "", []string{"get", "nodeconfig", "ab.n1"}, "cannot get"},
		{"a new cluster", "a", fmt.Sprintf(cluster, "z", ""), nil, "orbidden"},
		{"its own spec", "ab", "", patch("cluster", "ab", "-p", `{"spec":{"globalCIDRsMap":{}}}`), "orbidden"},
		{"deleting its cluster", "ab", "", []string{"delete", "cluster", "ab"}, "orbidden"},
		{"the status of another cluster", "ab", "", status("cluster", "a", "-p", `{"status":{"podCIDRs":null}}`),
			"may not write clusters/status a"},
		{"accepting itself", "ab", "", status("cluster", "ab", "-p", `{"status":{"conditions":[{"type":"RangesAccepted",`+
			`"status":"True","reason":"Distinct","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`), "the host's controller writes"},
		{"forgetting that it is refused", "ab", "", status("cluster", "ab", "-p", `{"status":{"conditions":null}}`),
			"the host's controller writes"},
		{"forgetting its status", "ab", "", status("cluster", "ab", "-p", `{"status":null}`), "the host's controller writes"},
		{"mapping", "ab", "", status("cluster", "ab", "-p", `{"status":{"mapped":[{"cidr":"10.1.0.0/16","as":"240.1.0.0/16"}]}}`),
			"the host's controller writes"},
		{"holding a range", "ab", "", status("cluster", "ab", "-p", `{"status":{"accepted":["240.8.0.0/16"]}}`),
			"the host's controller writes"},
		{"reading secrets", "a", "", []string{"get", "secrets", "-A"}, "cannot list"},
		{"a token of another", "a", "", []string{"create", "token", "-n", "tombolo-links", "ab"}, "cannot create"},
		{"the policy's end", "a", "", []string{"delete", "validatingadmissionpolicybinding", "links.tombolo.dev"}, "cannot delete"},
		{"an account without a cluster", "default", nodeOf("ab", "n4", ""), nil, "orbidden"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.refused != "" { // it changes nothing
				t.Parallel()
			}
			args := c.args
			if args == nil {
				args = []string{"apply", "--server-side", "--force-conflicts", "-f", "-"}
			}
			out, err := x.as(t, c.as, c.stdin, args...)
			if c.refused == "" && err != nil {
				t.Error(err)
			} else if c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)) {
				t.Errorf("not refused with %q: %v %s", c.refused, err, out)
			}
		})
	}
}
