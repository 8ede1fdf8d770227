// SPDX-License-Identifier: Apache-2.0

//go:build kube

package kube_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/manifest"
	"github.com/tombolo-io/tombolo/test/kube/rig"
)

// mesh: two machines that have nothing but kube-apiserver are one network, with the ranges that
// kube-controller-manager assigns their Nodes: one with its kubelet's certificate, whose Node comes later, and
// one with a pod's token, which may not watch its Node.
func mesh(t *testing.T, r *rig.Rig) {
	begin := time.Now()
	step := func(what string) { t.Logf("%6.1fs  %s", time.Since(begin).Seconds(), what) }
	c, err := r.StartControlPlane(t.Context(), "m2") // of its own: all members of a mesh are peers
	if err != nil {
		t.Fatal(err)
	}
	w := &members{c}
	w.apply(t, manifest.MembersOptions{Kubelets: true, ServiceAccounts: []string{"default/mesh"}})
	w.await(t)
	if _, err := w.Kubectl(t.Context(), "create", "serviceaccount", "mesh"); err != nil {
		t.Fatal(err)
	}
	step("a control plane with the kind Member")
	kubeconfig, err := w.NodeKubeconfig("kx")
	if err != nil {
		t.Fatal(err)
	}
	x := w.machine(t, "kx", 0, kubeconfig)
	runtest.Eventually(t, "kx misses its Node", func() bool {
		s, err := x.Status(t.Context())
		return err == nil && len(s.Warnings) == 1 && len(s.Announced) == 0
	})
	step("kx misses its Node")
	w.AddNode(t, "ky")
	token, err := w.Kubectl(t.Context(), "create", "token", "mesh", "--bound-object-kind", "Node", "--bound-object-name", "ky")
	if err != nil {
		t.Fatal(err)
	}
	if kubeconfig, err = w.TokenKubeconfig("mesh-on-ky", token); err != nil {
		t.Fatal(err)
	}
	y := w.machine(t, "ky", 1, kubeconfig)
	w.AddNode(t, "kx")
	rangeX, rangeY := w.announces(t, x, y, "kx"), w.announces(t, y, x, "ky")
	step("both announce their ranges")
	pods := map[*rig.Machine]netip.Addr{}
	for m, of := range map[*rig.Machine]netip.Prefix{x: rangeX, y: rangeY} {
		if pods[m], err = m.Pods(t.Context(), of); err != nil {
			t.Fatal(err)
		}
	}
	flows := func(when string) {
		t.Helper()
		for from, to := range map[*rig.Machine]*rig.Machine{x: y, y: x} {
			var why error
			defer func() { // Eventually ends the test
				if t.Failed() {
					t.Log(why)
				}
			}()
			runtest.Eventually(t, fmt.Sprintf("%s: %s reaches %s", when, from.Address, pods[to]), func() bool { why = from.Asks(t.Context(), pods[to]); return why == nil })
		}
	}
	flows("at first")
	for m, other := range map[*rig.Machine]*rig.Machine{x: y, y: x} {
		runtest.Eventually(t, "a direct way", func() bool {
			s, err := m.Status(t.Context())
			return err == nil && len(s.Peers) == 1 && s.Peers[0].State == "direct" && s.Peers[0].Path == other.Address+":51820" && s.Peers[0].Received > 0
		})
	}
	step("a direct way, and pods are reached")
	if err := w.UseEgress(t.Context(), rig.Direct); err != nil { // kube-apiserver goes, and comes back
		t.Fatal(err)
	}
	flows("after kube-apiserver was away")
	step("kube-apiserver was away")
	w.DeleteNode(t, "kx")
	runtest.Eventually(t, "kx announces nothing without its Node", func() bool {
		s, err := x.Status(t.Context())
		return err == nil && len(s.Announced) == 0
	})
	step("kx announces nothing without its Node")
	w.AddNode(t, "kx")
	w.announces(t, x, y, "kx")
	step("kx has another Node")
}

// machine is one that runs until the end of the test.
func (w *members) machine(t *testing.T, node string, n int, kubeconfig string) *rig.Machine {
	t.Helper()
	m, err := w.StartMachine(t.Context(), node, n, "kubeconfig: "+kubeconfig+", node: "+node)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s:\n%s", node, m.Tail())
		}
	})
	return m
}

// announces waits until a machine announces the range that its Node has, and another one has it as
// its peer's.
func (w *members) announces(t *testing.T, m, by *rig.Machine, node string) netip.Prefix {
	t.Helper()
	ranges := w.Assigned(t, node)
	of, err := netip.ParsePrefix(ranges[0])
	if err != nil || len(ranges) != 1 {
		t.Fatalf("the ranges of %s: %v", node, ranges)
	}
	runtest.Eventually(t, node+" announces "+of.String(), func() bool {
		s, err := m.Status(t.Context())
		return err == nil && len(s.Announced) == 1 && s.Announced[0].Range == of && slices.Equal(s.Announced[0].Sources, []string{"kubernetes"}) && len(s.Warnings) == 0
	})
	runtest.Eventually(t, "the other one knows it", func() bool {
		s, err := by.Status(t.Context())
		return err == nil && len(s.Peers) == 1 && slices.Contains(s.Peers[0].Ranges, of)
	})
	return of
}
