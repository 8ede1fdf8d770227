// SPDX-License-Identifier: Apache-2.0

//go:build kube

// Package kube_test proves Tombolo on real Kubernetes: a kube-apiserver that can dial nothing of its cluster
// reaches it through a hub and an agent that runs as a pod. It needs root; see README.md beside it.
package kube_test

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/test/kube/rig"
)

// modes are the ways kube-apiserver speaks to the hub.
func modes() []rig.Mode { return []rig.Mode{rig.GRPCUDS, rig.ConnectUDS, rig.ConnectTLS} }

// quickly is how long a command may take to fail when no agent is there. The point is that it does not hang
// until kubectl's or kube-apiserver's own timeouts of 30 s and more.
const quickly = 20 * time.Second

// TestKube brings one rig up and runs everything on it in order: bringing it up once is what keeps the whole
// short. kube-apiserver alone is restarted between modes. It runs beside TestMembers: both wait most of the time.
func TestKube(t *testing.T) {
	t.Parallel()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	t.Cleanup(stop)
	begin := time.Now()
	r, err := rig.New(ctx, rig.Options{Minor: os.Getenv("TOMBOLO_KUBE_VERSION"), Progress: func(line string) {
		t.Logf("%6.1fs  %s", time.Since(begin).Seconds(), line)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil { // also after a failure above its regular place at the end
			t.Errorf("take the rig down: %v", err)
		}
	})
	h, err := r.StartHub(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c, err := r.StartCluster(ctx, "c1", rig.Direct)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.DeployWorkload(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Register(ctx); err != nil {
		t.Fatal(err)
	}
	x := &cluster{Cluster: c, rig: r, hub: h, ctx: ctx}
	t.Run("partition", x.partition)
	for _, mode := range modes() {
		t.Run("no agent/"+string(mode), func(t *testing.T) { x.noAgent(t, mode) })
	}
	if err := c.DeployAgent(ctx); err != nil {
		x.explain(t)
		t.Fatal(err)
	}
	for _, mode := range modes() {
		t.Run("matrix/"+string(mode), func(t *testing.T) { x.matrix(t, mode) })
	}
	t.Run("routed pod", x.routedPod)
	t.Run("mesh pod", x.meshPod)
	t.Run("killed agent", x.killedAgent)
	t.Run("two clusters", x.twoClusters)
	t.Run("edge", x.edge)
	t.Run("tenants are objects", x.edgeObjects)
	if err := c.StartVPN(ctx); err != nil {
		x.explain(t)
		t.Fatal(err)
	}
	t.Run("matrix/"+string(rig.VPN), func(t *testing.T) { x.matrix(t, rig.VPN) })
	t.Run("nothing left", x.nothingLeft)
}

// cluster is a cluster under test. It carries the context of the whole run, which ends with Ctrl-C.
type cluster struct {
	*rig.Cluster
	rig   *rig.Rig
	hub   *rig.Hub
	ctx   context.Context
	other *cluster // once there are two
}

// within is the context for one command.
func (x *cluster) within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(x.ctx, d)
	t.Cleanup(cancel)
	return ctx
}

// explain logs what those involved wrote last, once a test has failed.
func (x *cluster) explain(t *testing.T) {
	if x.ctx.Err() != nil {
		t.Log("interrupted")
		return
	}
	t.Logf("--- end of the hub's log\n%s", x.rig.HubLog())
	t.Logf("--- end of the agent's log\n%s", x.AgentLog())
	for _, process := range []string{"kube-apiserver", "kubelet", "containerd"} {
		t.Logf("--- end of the log of %s of %s\n%s", process, x.Name, x.Log(process))
	}
}

// useEgress restarts kube-apiserver in a mode and makes failures of the test explain themselves.
func (x *cluster) useEgress(t *testing.T, mode rig.Mode) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			x.explain(t)
		}
	})
	if err := x.UseEgress(x.ctx, mode); err != nil {
		t.Fatal(err)
	}
}
