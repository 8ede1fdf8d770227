// SPDX-License-Identifier: Apache-2.0

//go:build kube

package kube_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/manifest"
	programmesh "github.com/tombolo-io/tombolo/internal/mesh"
	"github.com/tombolo-io/tombolo/test/kube/rig"
)

// fromPod asks for the health of a machine from the network of a pod.
const fromPod = `for net in /run/netns/*; do
	nsenter --net=$net ip -4 addr | grep -qF ' %s/' || continue
	printf 'GET /livez HTTP/1.0\r\n\r\n' | nsenter --net=$net socat -t 5 - TCP:%s:8448,connect-timeout=2
done`

const meshSpace = "mesh" // the namespace of the DaemonSet

// meshPod: a node runs the mesh from what `tombolo mesh manifest` prints, without a privileged container; its pods and
// a machine elsewhere reach each other through it. A replaced pod is the same member, and a deleted DaemonSet leaves
// nothing in the kernel, also where it kept something before.
func (x *cluster) meshPod(t *testing.T) {
	x.useEgress(t, rig.GRPCUDS)
	w := &members{x.Cluster}
	w.apply(t, manifest.MembersDefaults())
	w.await(t)
	ctx := x.within(t, 6*time.Minute)
	own := w.Assigned(t, rig.NodeName)
	secret, err := x.ClusterSecret(ctx)
	if err != nil {
		t.Fatal(err)
	}
	apply := func(more ...string) {
		t.Helper()
		out, err := x.Tombolo(ctx, append([]string{"mesh", "manifest", "--image", "tombolo.local/tombolo:dev",
			"--image-pull-policy", "Never", "--namespace", meshSpace, "--secret-file", secret, "--pod-ranges",
			"--node-selector", "kubernetes.io/hostname=" + rig.NodeName}, more...)...)
		if err != nil {
			t.Fatal(err)
		}
		x.apply(t, out)
	}
	apply()
	defer func() {
		if t.Failed() {
			out, _ := x.Kubectl(ctx, "-n", meshSpace, "describe", "daemonsets,pods")
			log, _ := x.Kubectl(ctx, "-n", meshSpace, "logs", "ds/tombolo-mesh", "--tail=50")
			status, _ := x.Kubectl(ctx, "-n", meshSpace, "exec", "ds/tombolo-mesh", "--", "tombolo", "mesh", "status")
			t.Logf("%s\n%s\n%s\n%s", out, log, status, x.inKernel(ctx))
		}
	}()
	x.rolledOut(ctx, t)

	w.AddNode(t, "kx")
	defer w.DeleteNode(t, "kx")
	kubeconfig, err := w.NodeKubeconfig("kx")
	if err != nil {
		t.Fatal(err)
	}
	m := w.machine(t, "kx", 0, kubeconfig)
	far := w.Assigned(t, "kx")
	runtest.Eventually(t, "the machine is a peer of the node", func() bool {
		s, err := m.Status(ctx)
		return err == nil && len(s.Announced) == 1 && len(s.Peers) == 1 && len(s.Peers[0].Ranges) > 0
	})
	pod, err := m.Pods(ctx, netip.MustParsePrefix(far[0]))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"src_valid_mark", "rp_filter"} {
		value, err := x.OnNode(ctx, "cat", "/proc/sys/net/ipv4/conf/tombolo0/"+path)
		if want := map[string]string{"src_valid_mark": "1", "rp_filter": "0"}[path]; err != nil || strings.TrimSpace(value) != want {
			t.Errorf("%s of the link: %q, %v", path, value, err)
		}
	}
	mode, err := x.OnNode(ctx, "stat", "-c", "%a", manifest.StateRoot+"/mesh")
	if err != nil || strings.TrimSpace(mode) != "700" {
		t.Errorf("the state directory of the node: %q, %v", mode, err)
	}
	backend := strings.TrimSpace(x.kubectl(t, "get", "pod", "backend", "-o", "jsonpath={.status.podIP}"))
	if of := netip.MustParsePrefix(own[0]); !of.Contains(netip.MustParseAddr(backend)) {
		t.Fatalf("%s is not of %s", backend, of)
	}
	echo := "http://" + backend + ":8080/echo?word=mesh"
	var why error
	defer func() { // Eventually ends the test
		if t.Failed() {
			t.Log(why)
		}
	}()
	flows := func(when string) {
		t.Helper()
		runtest.Eventually(t, when+": the machine reaches a pod", func() bool {
			var got string
			got, why = m.Gets(ctx, echo)
			return why == nil && got == x.Name+" echoes mesh\n"
		})
		runtest.Eventually(t, when+": a pod reaches the machine's", func() bool {
			var got string
			got, why = x.OnNode(ctx, "sh", "-c", fmt.Sprintf(fromPod, backend, pod))
			return why == nil && strings.Contains(got, "200 OK")
		})
	}
	flows("at first")
	if got := x.inKernel(ctx); strings.Count(got, "tombolo") < 3 || !strings.Contains(got, "180") { // else the end finds nothing either
		t.Errorf("the kernel of the node has %q", got)
	}
	before := x.meshStatus(ctx, t)
	if len(before.Peers) != 1 || before.Peers[0].State != "direct" || before.Peers[0].Received == 0 || !before.InForce {
		t.Errorf("the node's peers: %+v", before.Peers)
	}

	for what, more := range [][]string{{"--keep"}, nil} { // new pods, for what a running one does not take over
		apply(more...)
		away := x.watch(ctx, m, echo)
		x.rolledOut(ctx, t)
		flows(fmt.Sprintf("of pod %d", what+2))
		t.Logf("while its pod was replaced, the node was away for %.1fs", away().Seconds())
	}
	if after := x.meshStatus(ctx, t); after.PublicKey != before.PublicKey || after.ID != before.ID || !after.Since.After(before.Since) {
		t.Errorf("another member: %+v, and %+v before", after, before)
	}

	x.kubectl(t, "-n", meshSpace, "delete", "daemonset/tombolo-mesh", "--cascade=foreground")
	if got := x.inKernel(ctx); got != "" {
		t.Errorf("left on the node: %s", got)
	}
	x.kubectl(t, "delete", "namespace", meshSpace)
	x.kubectl(t, "delete", "clusterrole/mesh-tombolo-mesh", "clusterrolebinding/mesh-tombolo-mesh")
}

// inKernel is what the mesh has in the kernel of the node.
func (x *cluster) inKernel(ctx context.Context) string {
	out, _ := x.OnNode(ctx, "sh", "-c", "ip link show tombolo0; nft list table inet tombolo_mesh; ip rule | grep -w 180; "+
		"ip route show table all | grep -w 'proto 180'") // it fails where there is nothing
	return out
}

// rolledOut waits until the pods of the DaemonSet are ready, and new.
func (x *cluster) rolledOut(ctx context.Context, t *testing.T) {
	t.Helper()
	if out, err := x.Kubectl(ctx, "-n", meshSpace, "rollout", "status", "daemonset/tombolo-mesh", "--timeout=150s"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// meshStatus is what the node says in its pod.
func (x *cluster) meshStatus(ctx context.Context, t *testing.T) (s programmesh.Status) {
	t.Helper()
	out, err := x.Kubectl(ctx, "-n", meshSpace, "exec", "ds/tombolo-mesh", "--", "tombolo", "mesh", "status", "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// watch asks at a URL without a pause, until the function that it returns is called, and then until there is an answer:
// that says for how long at most there was none.
func (x *cluster) watch(ctx context.Context, m *rig.Machine, url string) func() time.Duration {
	enough, longest := make(chan struct{}), make(chan time.Duration, 1)
	go func() {
		var most time.Duration
		for last := time.Now(); ctx.Err() == nil; {
			if _, err := m.Gets(ctx, url); err != nil {
				continue
			}
			most, last = max(most, time.Since(last)), time.Now()
			select {
			case <-enough:
				longest <- most
				return
			default:
			}
		}
		longest <- most
	}()
	return func() time.Duration { close(enough); return <-longest }
}
