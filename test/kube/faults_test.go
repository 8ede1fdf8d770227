// SPDX-License-Identifier: Apache-2.0

//go:build kube

package kube_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/test/kube/rig"
)

// partition proves that the rig is honest: the control plane cannot dial the node, a kube-apiserver without a
// tunnel cannot read logs, and nothing but the firewall is the reason.
func (x *cluster) partition(t *testing.T) {
	node := net.JoinHostPort(rig.NodeAddress, "10250")
	before := x.drops(t)
	if conn, err := x.Dial(x.within(t, 2*time.Second), node); err == nil {
		conn.Close()
		t.Fatal("the control plane can dial the node: the partition has a hole")
	}
	dialled := x.drops(t)
	if dialled <= before {
		t.Errorf("a direct dial did not reach the firewall: counter %d before, %d after", before, dialled)
	}
	if out, err := x.Kubectl(x.within(t, 5*time.Second), "logs", "writer", "--tail=1"); err == nil {
		t.Errorf("kubectl logs worked without a tunnel: %q", out)
	}
	if after := x.drops(t); after <= dialled {
		t.Errorf("kube-apiserver's direct dial did not reach the firewall: counter %d before, %d after", dialled, after)
	}
	if err := x.Partition(x.ctx, false); err != nil {
		t.Fatal(err)
	}
	if conn, err := x.Dial(x.within(t, 10*time.Second), node); err != nil {
		t.Errorf("with the firewall open the node cannot be dialled either: %v", err)
	} else {
		conn.Close()
	}
	x.logs(t)
	if err := x.Partition(x.ctx, true); err != nil {
		t.Fatal(err)
	}
}

func (x *cluster) drops(t *testing.T) uint64 {
	t.Helper()
	n, err := x.FirewallDrops(x.ctx)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// noAgent runs the commands of the matrix before any agent exists: each fails soon and names the cause.
func (x *cluster) noAgent(t *testing.T, mode rig.Mode) {
	x.useEgress(t, mode)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	object := fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: early-%s, labels: {webhook: 'yes'}}}", mode)
	for _, args := range [][]string{
		{"logs", "writer"},
		// From 1.36 on kubectl asks again for this long when it follows, printing each reason at once.
		{"logs", "-f", "writer", "--pod-running-timeout=3s"},
		{"exec", "-i", "shell", "--", "cat"}, {"attach", "-i", "shell"},
		{"cp", file, "shell:/tmp/file"}, {"cp", "shell:/etc/passwd", file},
		{"port-forward", "pod/backend", ":8080"},
		{"get", "--raw", "/api/v1/namespaces/default/pods/backend:8080/proxy/echo"},
		{"get", "--raw", "/api/v1/namespaces/default/services/backend:http/proxy/echo"},
		{"get", "--raw", "/api/v1/nodes/node1/proxy/healthz"},
		{"create", "-f", "-"}, // what the webhook should judge
	} {
		begin := time.Now()
		out, err := x.KubectlInput(x.within(t, 2*quickly), strings.NewReader(object), args...)
		took := time.Since(begin)
		name := "kubectl " + strings.Join(args, " ")
		switch {
		case err == nil:
			t.Errorf("%s succeeded without an agent: %.200q", name, out)
		case !strings.Contains(err.Error(), "no_agent"):
			t.Errorf("%s does not name the cause no_agent: %v", name, err)
		case took > quickly:
			t.Errorf("%s took %s to fail", name, took)
		}
	}
}

// killedAgent kills the agent while a log is followed. The follower ends rather than hangs, and the next
// command works soon after the agent's restart.
func (x *cluster) killedAgent(t *testing.T) {
	x.useEgress(t, rig.GRPCUDS)
	ctx := x.within(t, 2*time.Minute)
	out := newLines()
	session, err := x.StartKubectl(ctx, nil, out, "logs", "-f", "writer", "--tail=1")
	if err != nil {
		t.Fatal(err)
	}
	defer session.Stop(0)
	for range 5 { // it really follows
		out.number(t, session)
	}
	restarted, err := x.KillAgent(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for {
		_, err := x.Kubectl(ctx, "logs", "writer", "--tail=1")
		took := time.Since(restarted)
		if err == nil {
			t.Attr("figure", fmt.Sprintf("kubectl logs works %.2f s after the restart of a killed agent", took.Seconds()))
			break
		}
		if took > 30*time.Second {
			t.Fatalf("kubectl logs still fails %s after the restart of the agent: %v", took, err)
		}
	}
	select {
	case <-session.Done():
	case <-time.After(quickly):
		t.Errorf("kubectl logs -f hangs %s after its agent died", quickly)
	}
}

// twoClusters runs a second cluster with the same node, pod and service ranges on the same hub, at once, and
// asks both for the same addresses.
func (x *cluster) twoClusters(t *testing.T) {
	x.useEgress(t, rig.ConnectTLS)
	c2, err := x.rig.StartCluster(x.ctx, "c2", rig.GRPCUDS)
	if err != nil {
		t.Fatal(err)
	}
	y := &cluster{Cluster: c2, rig: x.rig, ctx: x.ctx}
	x.other = y
	t.Cleanup(func() {
		if t.Failed() {
			y.explain(t)
		}
	})
	for _, step := range []func(context.Context) error{y.DeployWorkload, y.Register, y.DeployAgent} {
		if err := step(x.ctx); err != nil {
			t.Fatal(err)
		}
	}
	var where []string
	for _, c := range []*cluster{x, y} {
		out, err := c.Kubectl(c.ctx, "get", "service", "kubernetes", "-o", "jsonpath={.spec.clusterIP}")
		if err != nil {
			t.Fatal(err)
		}
		node, err := c.Kubectl(c.ctx, "get", "node", "node1", "-o", "jsonpath={.status.addresses[0].address} {.spec.podCIDR}")
		if err != nil {
			t.Fatal(err)
		}
		where = append(where, out+" "+node)
	}
	if where[0] != where[1] {
		t.Fatalf("the clusters do not have the same ranges: %q", where)
	}
	t.Run("at once", func(t *testing.T) {
		for _, c := range []*cluster{x, y} {
			t.Run(c.Name, func(t *testing.T) {
				t.Parallel()
				for i := range 5 {
					word := fmt.Sprintf("both-%d", i)
					c.proxy(t, word)
					c.webhook(t, word)
				}
				c.logs(t)
				c.exec(t)
				c.portForward(t)
				c.aggregatedAPI(t)
			})
		}
	})
}
