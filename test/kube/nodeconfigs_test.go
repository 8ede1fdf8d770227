// SPDX-License-Identifier: Apache-2.0

//go:build kube

package kube_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/kube"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/link/nodeconfig"
	"github.com/tombolo-io/tombolo/internal/link/report"
	"github.com/tombolo-io/tombolo/internal/manifest"
)

// nodeConfigs: a node writes the NodeConfig of its own name and no other one, whatever the cluster is called, and keeps
// it as it says.
func (w *members) nodeConfigs(t *testing.T) {
	w.apply(t, manifest.MembersOptions{Kubelets: true, ServiceAccounts: []string{"default/mesh"}})
	for _, name := range []string{"kn", "kn.example.org", "example.org"} {
		w.AddNode(t, name)
		defer w.DeleteNode(t, name)
	}
	dotted := w.Client(t, "kn.example.org")
	runtest.Eventually(t, "the policy for NodeConfigs", func() bool {
		_, err := dotted.PutNodeConfig(t.Context(), "c1.kn", "kn.example.org", v1alpha1.NodeConfigSpec{})
		return err != nil && strings.Contains(err.Error(), "a node writes the NodeConfig of its own name only")
	})
	plain, account, unbound := w.Client(t, "kn"), w.token(t, "mesh", "kn"), w.token(t, "mesh", "")
	for _, c := range []struct {
		what   string
		by     *kube.Client
		object string
		node   string
		may    bool
	}{
		{"its own", plain, "c1.kn", "kn", true},
		{"a pod's own", account, "c1.kn", "kn", true},
		{"with a dot", dotted, "c1.kn.example.org", "kn.example.org", true},
		{"another's", plain, "c1.kn.example.org", "kn", false},
		{"a pod's of another", account, "c1.example.org", "kn", false},
		{"a longer name", w.Client(t, "example.org"), "c1.kn.example.org", "example.org", false},
		{"no cluster", plain, "kn", "kn", false},
		{"an unbound pod", unbound, "c1.kn", "kn", false},
	} {
		at, err := c.by.PutNodeConfig(t.Context(), c.object, c.node, v1alpha1.NodeConfigSpec{})
		status := c.by.PutNodeConfigStatus(t.Context(), c.object, report.Status{AppliedGeneration: at.Generation})
		for _, err := range []error{err, status} {
			if may := err == nil; may != c.may || !may && !fault.Has(err, fault.CodeKubeDenied) && !fault.Has(err, fault.CodeNotFound) {
				t.Errorf("%s: %v", c.what, err)
			}
		}
	}
	if err := plain.DeleteNodeConfig(t.Context(), "c1.kn.example.org"); !fault.Has(err, fault.CodeKubeDenied) {
		t.Errorf("another's is removed: %v", err)
	}
	if err := dotted.DeleteNodeConfig(t.Context(), "c1.kn.example.org"); err != nil {
		t.Errorf("its own is not: %v", err)
	}
	if _, err := w.Kubectl(t.Context(), "label", "nodeconfigs.tombolo.dev", "c1.kn", "by=admin"); err != nil {
		t.Errorf("an administrator: %v", err)
	}
	w.nodeConfigIsKept(t, plain)
}

// nodeConfigIsKept has the writer of a node at a real API server: what it writes is shown, and what somebody removed or
// changed is put back.
func (w *members) nodeConfigIsKept(t *testing.T, by *kube.Client) {
	var mu sync.Mutex
	f := report.Facts{Linked: true, InForce: true, Link: "tombolo0", Table: 180,
		Peers: []report.Peer{{Name: "c2.n1", Key: member.Key{1}, State: report.Up, Reason: "at 198.51.100.2:51820"}}}
	x := nodeconfig.New(nodeconfig.Options{Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Cluster: "c1", Node: "kn",
		Client: func() *kube.Client { return by }, Facts: func() *report.Facts { mu.Lock(); defer mu.Unlock(); out := f; return &out }})
	g := run.NewGroup(context.Background())
	g.Go("writer", func(ctx context.Context) error { return x.Run(ctx, nil) })
	shows := func(what, columns, tunnels string) {
		t.Helper()
		runtest.Eventually(t, what, func() bool {
			line, err := w.Kubectl(t.Context(), "get", "tnc", "c1.kn", "--no-headers")
			states, err2 := w.Kubectl(t.Context(), "get", "tnc", "c1.kn", "-o", "jsonpath={.status.tunnels[*].state}")
			return err == nil && err2 == nil && strings.HasPrefix(strings.Join(strings.Fields(line), " "), columns) && states == tunnels
		})
	}
	shows("the NodeConfig", "c1.kn 2 0", "up") // the first generation was an empty plan
	if _, err := w.Kubectl(t.Context(), "delete", "tnc", "c1.kn"); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	f.InForce, f.Why, f.Peers = false, "the kernel cannot be read", []report.Peer{{Name: "c2.n1", State: report.Down}}
	mu.Unlock()
	shows("and another one in its place", "c1.kn", "down")
	owner, err := w.Kubectl(t.Context(), "get", "tnc", "c1.kn", "-o", "jsonpath={.metadata.ownerReferences[0].name} {.status.differs}")
	if err != nil || owner != "kn 1" {
		t.Errorf("its owner, and how it differs: %q, %v", owner, err)
	}
	g.Stop()
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	leave, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := x.Leave(leave); err != nil {
		t.Error(err)
	}
	if text, err := w.Kubectl(t.Context(), "get", "tnc", "c1.kn", "--ignore-not-found"); err != nil || text != "" {
		t.Errorf("after the node has left: %q, %v", text, err)
	}
}
