// SPDX-License-Identifier: Apache-2.0

//go:build kube

package kube_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/kube"
	"github.com/tombolo-io/tombolo/internal/base/kube/kubetest"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/manifest"
	"github.com/tombolo-io/tombolo/test/kube/rig"
)

// TestMembers has nodes find each other at a real kube-apiserver: the kind, the roles and the policy that
// `tombolo discovery manifest` prints, with kubelets' certificates and with service accounts' tokens.
func TestMembers(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	r, err := rig.New(t.Context(), rig.Options{Minor: os.Getenv("TOMBOLO_KUBE_VERSION"), Progress: func(line string) {
		t.Logf("%6.1fs  %s", time.Since(begin).Seconds(), line)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("take the rig down: %v", err)
		}
	})
	c, err := r.StartControlPlane(t.Context(), "m1")
	if err != nil {
		t.Fatal(err)
	}
	w := &members{c}
	w.apply(t, manifest.MembersOptions{Kubelets: true, ServiceAccounts: []string{"default/mesh"}})
	w.await(t)
	kubetest.Contract(t, w)
	t.Run("service accounts", w.accounts)
	t.Run("policy", w.policy)
	t.Run("annotations", w.annotations)
	t.Run("the schema refuses", w.schema)
	t.Run("linked clusters", w.linkedClusters)
	t.Run("node configs", w.nodeConfigs)
	t.Run("manifests", w.manifests)
	t.Run("route manifests", w.routeManifests)
	t.Run("VPN manifests", w.vpnManifests)
	t.Run("mesh manifests", w.meshManifests)
	t.Run("restart", w.restart)
	t.Run("announce", w.announce)
	t.Run("mesh", func(t *testing.T) { mesh(t, r) })
	t.Logf("%.1fs in all", time.Since(begin).Seconds())
}

// members is a kube-apiserver with the kind Member.
type members struct{ *rig.Cluster }

func (w *members) apply(t testing.TB, o manifest.MembersOptions) {
	t.Helper()
	text, err := manifest.Members(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Apply(t.Context(), bytes.NewReader(text)); err != nil {
		t.Fatal(err)
	}
}

// await waits until kind and policy are in force: kube-apiserver takes them up by and by. What is refused is
// refused by the policy, whose words say so.
func (w *members) await(t testing.TB) {
	t.Helper()
	if _, err := w.Kubectl(t.Context(), "wait", "--for=condition=Established", "crd/members.tombolo.dev", "--timeout=30s"); err != nil {
		t.Fatal(err)
	}
	uid := w.AddNode(t, "probe")
	probe := w.Client(t, "probe")
	runtest.Eventually(t, "the policy", func() bool {
		err := probe.PutMember(t.Context(), "another", uid, kubetest.Facts(8), time.Minute)
		return err != nil && strings.Contains(err.Error(), "a node writes the Member of its own name only: system:node:probe on node probe may not write another")
	})
	if text, err := w.Kubectl(t.Context(), "get", "validatingadmissionpolicy", "members.tombolo.dev", "-o", "jsonpath={.status.typeChecking.expressionWarnings}"); err != nil || text != "" {
		t.Errorf("the policy's expressions: %s %v", text, err)
	}
	if _, err := w.Kubectl(t.Context(), "delete", "members.tombolo.dev", "another", "--ignore-not-found"); err != nil {
		t.Fatal(err)
	}
	w.DeleteNode(t, "probe")
}

func (w *members) AddNode(t testing.TB, name string) string {
	t.Helper()
	if err := w.Apply(t.Context(), strings.NewReader("apiVersion: v1\nkind: Node\nmetadata: {name: "+name+"}\n")); err != nil {
		t.Fatal(err)
	}
	uid, err := w.Kubectl(t.Context(), "get", "node", name, "-o", "jsonpath={.metadata.uid}")
	if err != nil {
		t.Fatal(err)
	}
	return uid
}

func (w *members) DeleteNode(t testing.TB, name string) {
	t.Helper()
	if _, err := w.Kubectl(t.Context(), "delete", "node", name); err != nil {
		t.Fatal(err)
	}
}

// Assigned waits for what kube-controller-manager assigns to each Node.
func (w *members) Assigned(t testing.TB, node string) (ranges []string) {
	t.Helper()
	runtest.Eventually(t, "the ranges of pods of "+node, func() bool {
		text, err := w.Kubectl(t.Context(), "get", "node", node, "-o", "jsonpath={.spec.podCIDRs[*]}")
		ranges = strings.Fields(text)
		return err == nil && len(ranges) > 0
	})
	return ranges
}

func (w *members) Client(t testing.TB, node string) *kube.Client {
	t.Helper()
	path, err := w.NodeKubeconfig(node)
	if err != nil {
		t.Fatal(err)
	}
	return w.client(t, path)
}

func (w *members) client(t testing.TB, kubeconfig string) *kube.Client {
	t.Helper()
	a, err := kube.Load(kubeconfig, os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	client := kube.NewClient(a, func(ctx context.Context, _, address string) (net.Conn, error) { return w.Dial(ctx, address) })
	t.Cleanup(client.Close)
	return client
}

// token is the client of a pod of the service account, on a node or on none.
func (w *members) token(t testing.TB, account, node string) *kube.Client {
	t.Helper()
	args := []string{"create", "token", account}
	if node != "" {
		args = append(args, "--bound-object-kind", "Node", "--bound-object-name", node)
	}
	token, err := w.Kubectl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	path, err := w.TokenKubeconfig(account+"-on-"+node, token)
	if err != nil {
		t.Fatal(err)
	}
	return w.client(t, path)
}

// accounts: a pod of the DaemonSet is held to its node; one that is bound to none, and one of another
// account, write nothing; an administrator writes all.
func (w *members) accounts(t *testing.T) {
	uid := w.AddNode(t, "kd")
	defer w.DeleteNode(t, "kd")
	for _, account := range []string{"mesh", "other"} {
		if _, err := w.Kubectl(t.Context(), "create", "serviceaccount", account); err != nil {
			t.Fatal(err)
		}
	}
	own := w.token(t, "mesh", "kd")
	if err := own.PutMember(t.Context(), "kd", uid, kubetest.Facts(4), time.Minute); err != nil {
		t.Errorf("the own object: %v", err)
	}
	for what, err := range map[string]error{
		"another's":                           own.PutMember(t.Context(), "ke", uid, kubetest.Facts(5), time.Minute),
		"by a token that is bound to no node": w.token(t, "mesh", "").PutMember(t.Context(), "kd", uid, kubetest.Facts(5), time.Minute),
		"by another account on that node":     w.token(t, "other", "kd").PutMember(t.Context(), "kd", uid, kubetest.Facts(5), time.Minute),
	} {
		if !fault.Has(err, fault.CodeKubeDenied) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if text, err := w.Kubectl(t.Context(), "get", "members.tombolo.dev", "kd", "-o", "jsonpath={.spec.hostname} {.metadata.ownerReferences[0].uid}"); err != nil || text != "host "+uid {
		t.Errorf("the object: %q, %v", text, err)
	}
	if _, err := w.Kubectl(t.Context(), "label", "members.tombolo.dev", "kd", "by=admin"); err != nil {
		t.Errorf("an administrator: %v", err)
	}
	reader := kubetest.Start(t, own, kube.Options{Node: "kd", Self: func() member.Facts { return kubetest.Facts(6) }})
	runtest.Eventually(t, "the pod's own announcement", func() bool { return reader.Knows("kd", 6) })
	if text, err := w.Kubectl(t.Context(), "get", "members.tombolo.dev"); err != nil || !strings.Contains(text, "OVERLAY") || !strings.Contains(text, "fd00::6") {
		t.Errorf("columns: %s %v", text, err)
	}
}

// policy: a member sees whether nodes are held to the Member of their own name.
func (w *members) policy(t *testing.T) {
	w.AddNode(t, "kp")
	defer w.DeleteNode(t, "kp")
	sees := func(client *kube.Client, says string) {
		t.Helper()
		r := kubetest.Start(t, client, kube.Options{})
		runtest.Eventually(t, "the look at the policy: "+says, func() bool {
			err := r.Part("members").Warning
			return says == "" && !r.Part("members").Contact.IsZero() && err == nil || says != "" && err != nil && strings.Contains(err.Error(), says)
		})
		r.Stop()
	}
	sees(w.Client(t, "kp"), "")
	sees(w.token(t, "mesh", "kp"), "")
	for _, kind := range []string{"validatingadmissionpolicybinding", "validatingadmissionpolicy"} {
		if _, err := w.Kubectl(t.Context(), "delete", kind, "members.tombolo.dev"); err != nil {
			t.Fatal(err)
		}
		sees(w.Client(t, "kp"), "every node may write the Member of others")
	}
	if _, err := w.Kubectl(t.Context(), "delete", "clusterrole", "tombolo-member"); err != nil {
		t.Fatal(err)
	}
	w.may(t, "kp", "no")
	sees(w.Client(t, "kp"), "it is not known whether nodes may write")
	w.apply(t, manifest.MembersOptions{Kubelets: true, ServiceAccounts: []string{"default/mesh"}})
	w.await(t)
	w.may(t, "kp", "yes")
	sees(w.Client(t, "kp"), "")
}

// may waits until a node may read the policy, or may not: kube-apiserver learns of changed roles a moment later.
func (w *members) may(t *testing.T, node, want string) {
	t.Helper()
	runtest.Eventually(t, "may "+node+" read the policy: "+want, func() bool {
		// It ends with 1 for a "no"; warnings, and why, may stand beside it.
		out, _ := w.Kubectl(t.Context(), "auth", "can-i", "get", "validatingadmissionpolicies/members.tombolo.dev",
			"--as=system:node:"+node, "--as-group=system:nodes")
		return slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool { return strings.HasPrefix(line, want) })
	})
}

// annotations are read once the permission is there, and written by the node's own kubelet.
func (w *members) annotations(t *testing.T) {
	for _, name := range []string{"kf", "kg"} {
		w.AddNode(t, name)
		defer w.DeleteNode(t, name)
	}
	if _, err := w.Kubectl(t.Context(), "annotate", "node", "kg", "networking.talos.dev/kubespan-public-key="+kubetest.Facts(7).Key.String(),
		"networking.talos.dev/kubespan-endpoints=192.0.2.7:51820"); err != nil {
		t.Fatal(err)
	}
	w.apply(t, manifest.MembersOptions{Kubelets: true, NodeAnnotations: true})
	f := kubetest.Start(t, w.Client(t, "kf"), kube.Options{Node: "kf", Self: func() member.Facts { return kubetest.Facts(6) },
		NodeAnnotations: true, WriteAnnotations: true})
	for name, n := range map[string]byte{"kf": 6, "kg": 7} {
		runtest.Eventually(t, "the annotations of "+name, func() bool {
			s, ok := f.Find("annotations", name)
			return ok && s.Facts.Key == kubetest.Facts(n).Key && len(s.Facts.Endpoints) == 1
		})
	}
	if err := f.Part("announcement").Err; err != nil {
		t.Error(err)
	}
}

// schema: what no node may say is refused by kube-apiserver itself.
func (w *members) schema(t *testing.T) {
	for name, spec := range map[string]string{
		"a key of another length":     `{publicKey: abc}`,
		"an IPv4 address as overlay6": `{overlay6: 10.0.0.1}`,
		"an IPv6 address as overlay4": `{overlay4: "fd00::1"}`,
		"a name as address":           `{addresses: [localhost]}`,
		"a range with host bits":      `{ranges: [10.0.0.1/8]}`,
		"a range that is none":        `{excluded: [x]}`,
		"a lease without end":         `{renewTime: "2026-01-01T00:00:00Z"}`,
		"a lease of a day":            `{renewTime: "2026-01-01T00:00:00Z", leaseSeconds: 86400}`,
		"a time that is none":         `{renewTime: now, leaseSeconds: 60}`,
		"a role that is none":         `{role: king}`,
		"port 0":                      `{apiServerPort: 0}`,
		"65 endpoints":                `{endpoints: [` + strings.Repeat("192.0.2.1:1, ", 65) + `]}`,
	} {
		err := w.Apply(t.Context(), strings.NewReader("apiVersion: tombolo.dev/v1alpha1\nkind: Member\nmetadata: {name: bad}\nspec: "+spec+"\n"))
		if err == nil || !strings.Contains(err.Error(), "invalid") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// restart: kube-apiserver goes and comes back: nobody is lost meanwhile, and news come through again.
func (w *members) restart(t *testing.T) {
	for _, name := range []string{"kh", "ki"} {
		w.AddNode(t, name)
	}
	var facts atomic.Uint32
	facts.Store(11)
	changed := make(chan struct{}, 1)
	h := kubetest.Start(t, w.Client(t, "kh"), kube.Options{Node: "kh", Self: func() member.Facts { return kubetest.Facts(10) }})
	kubetest.Start(t, w.Client(t, "ki"), kube.Options{Node: "ki", Changed: changed,
		Self: func() member.Facts { return kubetest.Facts(byte(facts.Load())) }})
	runtest.Eventually(t, "both", func() bool { return h.Knows("kh", 10) && h.Knows("ki", 11) })
	if err := w.UseEgress(t.Context(), rig.Direct); err != nil {
		t.Fatal(err)
	}
	if !h.Knows("kh", 10) || !h.Knows("ki", 11) {
		t.Error("a member is lost with kube-apiserver")
	}
	facts.Store(12)
	changed <- struct{}{}
	runtest.Eventually(t, "ki's news", func() bool { return h.Knows("kh", 10) && h.Knows("ki", 12) })
}

// announce: two programs with kubelets' credentials meet through kube-apiserver alone; one with a pod's
// token, which reads no annotations, joins them; kube-apiserver may go meanwhile; what a node wrote is gone when it leaves.
func (w *members) announce(t *testing.T) {
	started := map[string]*rig.Member{}
	start := func(node, kubeconfig, kubernetes, announce string, port int) {
		w.AddNode(t, node)
		m, err := w.StartMember(t.Context(), node, "kubeconfig: "+kubeconfig+", node: "+node+kubernetes, announce, port)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("%s:\n%s", node, m.Tail())
			}
		})
		started[node] = m
	}
	for i, node := range []string{"kp", "kq"} {
		kubeconfig, err := w.NodeKubeconfig(node)
		if err != nil {
			t.Fatal(err)
		}
		start(node, kubeconfig, ", read: [members, annotations], write: [members, annotations]", "role: worker, publicKey: "+kubetest.Facts(byte(20+i)).Key.String(), 8448+i)
	}
	w.AddNode(t, "kr")
	token, err := w.Kubectl(t.Context(), "create", "token", "mesh", "--bound-object-kind", "Node", "--bound-object-name", "kr")
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := w.TokenKubeconfig("announce-on-kr", token)
	if err != nil {
		t.Fatal(err)
	}
	w.apply(t, manifest.MembersOptions{Kubelets: true, ServiceAccounts: []string{"default/mesh"}, NodeAnnotations: true})
	start("kr", kubeconfig, "", "role: worker, overlay6: 'fd00::22', publicKey: "+kubetest.Facts(22).Key.String(), 8450)
	sees := func(by, who, what string, has bool) {
		t.Helper()
		var text string
		defer func() {
			if t.Failed() {
				t.Logf("%s sees of %s:\n%s", by, who, text)
			}
		}()
		runtest.Eventually(t, by+" sees of "+who+": "+what, func() bool {
			var err error
			text, err = started[by].Members(t.Context(), who)
			return (err == nil && strings.Contains(strings.Join(strings.Fields(text), " "), what)) == has
		})
	}
	for _, pair := range [][2]string{{"kp", "kq"}, {"kq", "kp"}} { // each fact with both sources
		sees(pair[0], pair[1], kubetest.Facts(map[string]byte{"kp": 20, "kq": 21}[pair[1]]).Key.String()+" kubernetes/annotations, kubernetes/members", true)
		sees(pair[0], pair[1], "machine-"+pair[1], true)
	}
	sees("kp", "kr", "fd00::22", true)
	sees("kr", "kq", "kubernetes/members", true)
	metric := func(node string, port int, line string) {
		t.Helper()
		runtest.Eventually(t, node+" measures "+line, func() bool {
			text, err := w.metrics(t.Context(), port)
			return err == nil && strings.Contains(text, "\n"+line+"\n")
		})
	}
	metric("kp", 8448, `tombolo_discovery_client_kubernetes_answers{part="announcement"} 1`)
	if err := w.UseEgress(t.Context(), rig.Direct); err != nil { // kube-apiserver goes, and comes back
		t.Fatal(err)
	}
	metric("kp", 8448, `tombolo_discovery_client_kubernetes_answers{part="members"} 1`)
	// What is deleted before kp has read all again stays until its lease ends: so nobody leaves before kp knows who is new.
	w.AddNode(t, "ks")
	kubetest.Start(t, w.Client(t, "ks"), kube.Options{Node: "ks", Self: func() member.Facts { return kubetest.Facts(23) }})
	sees("kp", "ks", kubetest.Facts(23).Key.String(), true)
	started["kq"].Stop(20 * time.Second)
	runtest.Eventually(t, "the end of kq", func() bool {
		text, err := w.Kubectl(t.Context(), "get", "members.tombolo.dev", "kq", "--ignore-not-found")
		annotations, err2 := w.Kubectl(t.Context(), "get", "node", "kq", "-o", "jsonpath={.metadata.annotations}")
		return err == nil && err2 == nil && text == "" && !strings.Contains(annotations, "talos.dev")
	})
	sees("kp", "kq", "machine-kq", false)
	sees("kp", "kr", "fd00::22", true)
}

// metrics are those at a health port on the control plane's loopback.
func (w *members) metrics(ctx context.Context, port int) (string, error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, address string) (net.Conn, error) { return w.Dial(ctx, address) }}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/metrics", port), nil)
	if err != nil {
		return "", err
	}
	answer, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}
