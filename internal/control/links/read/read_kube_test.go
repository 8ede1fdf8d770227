// SPDX-License-Identifier: Apache-2.0

//go:build kube

package read

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/link/learn"
)

const ranges = "10.96.0.0/16,fd00:10:96::/112"

// start runs etcd and kube-apiserver, which the suite has built, with more flags.
func start(t *testing.T, flags map[string]string) (*envtest.Environment, client.Client) {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	minor := cmp.Or(os.Getenv("TOMBOLO_KUBE_VERSION"), "1.35")
	found, err := filepath.Glob(filepath.Join(cache, "tombolo", "kube", "v"+minor+".*", "complete"))
	if err != nil || len(found) == 0 {
		t.Fatalf("Kubernetes %s is not built: go run ./test/kube/tools/build %s (%v)", minor, minor, err)
	}
	env := &envtest.Environment{BinaryAssetsDirectory: filepath.Dir(found[len(found)-1])}
	for flag, value := range flags {
		env.ControlPlane.GetAPIServer().Configure().Set(flag, value)
	}
	config, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	return env, clientOf(t, config)
}

func clientOf(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// userClient is the client of a user who has the rights that are bound to the name.
func userClient(t *testing.T, env *envtest.Environment, name string) client.Client {
	t.Helper()
	user, err := env.AddUser(envtest.User{Name: name, Groups: []string{"system:authenticated"}},
		&rest.Config{QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return clientOf(t, user.Config())
}

// permit gives the user reader what it has to be allowed to do, and waits until that is in force.
func permit(t *testing.T, admin client.Client) {
	t.Helper()
	rights, err := os.ReadFile(filepath.Join("testdata", "rights.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	apply(t, admin, strings.SplitN(string(rights), "\n", 2)[1])
	for _, one := range []map[string]any{ // of each role
		{"verb": "list", "resource": "nodes"}, {"verb": "list", "resource": "pods", "namespace": "kube-system"},
		{"verb": "create", "resource": "services", "namespace": "default"},
	} {
		runtest.Eventually(t, fmt.Sprintf("a right is in force: %v", one), func() bool {
			u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "authorization.k8s.io/v1",
				"kind": "SubjectAccessReview", "spec": map[string]any{"user": "reader", "resourceAttributes": maps.Clone(one)}}}
			if err := admin.Create(t.Context(), u); err != nil {
				t.Fatal(err)
			}
			allowed, _, err := unstructured.NestedBool(u.Object, "status", "allowed")
			return allowed && err == nil
		})
	}
}

// apply creates objects, with their status.
func apply(t *testing.T, c client.Client, text string) {
	t.Helper()
	for doc := range strings.SplitSeq(text, "\n---\n") {
		o := map[string]any{}
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatalf("%s: %v", doc, err)
		}
		u := &unstructured.Unstructured{Object: o}
		status, has := o["status"]
		if err := c.Create(t.Context(), u); err != nil {
			t.Fatalf("%s: %v", doc, err)
		}
		if has {
			u.Object["status"] = status
			if err := c.Status().Update(t.Context(), u); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func drop(t *testing.T, c client.Client, version, kind, name string) {
	t.Helper()
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(version)
	u.SetKind(kind)
	u.SetName(name)
	if err := c.Delete(t.Context(), u); err != nil {
		t.Fatal(err)
	}
}

func definitions(t *testing.T, env *envtest.Environment, file string) {
	t.Helper()
	_, err := envtest.InstallCRDs(env.Config, envtest.CRDInstallOptions{Paths: []string{filepath.Join("testdata", file)}})
	if err != nil {
		t.Fatal(err)
	}
}

// learned is all that is learned of a cluster, as lines.
func learned(t *testing.T, from Cluster, spec learn.Spec) string {
	t.Helper()
	f, err := Facts(t.Context(), from, spec, "default")
	if err != nil {
		t.Fatal(err)
	}
	return described(learn.From(f, spec))
}

func described(r learn.Result) string {
	out := string(r.CNI) + "\n"
	for _, l := range r.Ranges.Pods {
		out += fmt.Sprintf("pods %s %s\n", l.Prefix, l.From)
	}
	for _, l := range r.Ranges.Services {
		out += fmt.Sprintf("services %s %s\n", l.Prefix, l.From)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Nodes)) {
		out += fmt.Sprintf("%s %v\n", name, r.Nodes[name])
	}
	for _, p := range r.Problems {
		out += fmt.Sprintf("%s: %s\n", p.Reason, p.What)
	}
	return out
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n%swant:\n%s", what, got, want)
	}
}

const (
	nodes = `{apiVersion: v1, kind: Node, metadata: {name: a}, spec: {podCIDRs: [10.244.0.0/24], podCIDR: 10.244.0.0/24},
  status: {conditions: [{type: Ready, status: "True"}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: b}, spec: {podCIDRs: [10.244.1.0/24], podCIDR: 10.244.1.0/24},
  status: {conditions: [{type: Ready, status: "True"}]}}`
	calico = `{apiVersion: crd.projectcalico.org/v1, kind: IPPool, metadata: {name: default-ipv4-ippool},
  spec: {cidr: 192.168.0.0/16, ipipMode: Always, natOutgoing: true, blockSize: 26, nodeSelector: all()}}
---
{apiVersion: crd.projectcalico.org/v1, kind: IPPool, metadata: {name: of-others, labels: {app.kubernetes.io/managed-by: tombolo}},
  spec: {cidr: 10.7.0.0/16, disabled: true}}
---
{apiVersion: crd.projectcalico.org/v1, kind: IPPool, metadata: {name: broken}, spec: {cidr: 7}}
---
{apiVersion: crd.projectcalico.org/v1, kind: BlockAffinity, metadata: {name: a-192-168-0-0-26},
  spec: {node: a, cidr: 192.168.0.0/26, state: confirmed, deleted: "false"}}
---
{apiVersion: crd.projectcalico.org/v1, kind: BlockAffinity, metadata: {name: b-192-168-3-0-26},
  spec: {node: b, cidr: 192.168.3.0/26, state: confirmed, deleted: "false"}}`
	cilium = `{apiVersion: v1, kind: ConfigMap, metadata: {name: cilium-config, namespace: kube-system},
  data: {ipam: cluster-pool, enable-ipv4: "true", enable-ipv6: "true", cluster-pool-ipv4-cidr: 10.0.0.0/16,
    cluster-pool-ipv6-cidr: "fd00:1::/48"}}
---
{apiVersion: cilium.io/v2, kind: CiliumNode, metadata: {name: a}, spec: {ipam: {podCIDRs: [10.0.0.0/24, "fd00:1::/64"]}}}
---
{apiVersion: cilium.io/v2, kind: CiliumNode, metadata: {name: b}, spec: {ipam: {podCIDRs: [10.0.1.0/24]}}}`
	service = `services 10.96.0.0/16 ServiceCIDR kubernetes
services fd00:10:96::/112 ServiceCIDR kubernetes
`
	byCalico = `calico
pods 192.168.0.0/16 Calico IPPool default-ipv4-ippool
` + service + `a [192.168.0.0/26]
b [192.168.3.0/26]
ObjectUnreadable: IPPool broken cannot be decoded: json: cannot unmarshal number into Go struct field .spec.cidr of type string
`
)

// A real API server, before and after it has the kinds of Calico and of Cilium.
func TestCluster(t *testing.T) {
	t.Parallel()
	env, admin := start(t, map[string]string{"service-cluster-ip-range": ranges})
	apply(t, admin, nodes)
	user, nobody := silent{userClient(t, env, "reader"), t}, silent{userClient(t, env, "nobody"), t}
	permit(t, admin)

	expect(t, "no CNI that is known", learned(t, user, learn.Spec{}), `unknown
pods 10.244.0.0/23 Node.spec.podCIDRs of all nodes
`+service+`a [10.244.0.0/24]
b [10.244.1.0/24]
CNIUnknown: the CNI cannot be told: there are no objects of one that is known
`)
	definitions(t, env, "calico.crds.yaml")
	apply(t, admin, calico)
	expect(t, "Calico", learned(t, user, learn.Spec{}), byCalico)
	expect(t, "Calico, and the user", learned(t, user, learn.Spec{CNI: "calico", PodRanges: []string{"192.168.0.0/20"}}),
		strings.Replace(byCalico, "192.168.0.0/16 Calico IPPool default-ipv4-ippool", "192.168.0.0/20 spec.clusterPodCIDRs", 1))

	definitions(t, env, "cilium.crds.yaml")
	apply(t, admin, cilium)
	if got := learned(t, user, learn.Spec{}); !strings.Contains(got, "CNIAmbiguous: ") || strings.Contains(got, "\npods ") {
		t.Errorf("Calico and Cilium:\n%s", got)
	}
	for _, name := range []string{"a-192-168-0-0-26", "b-192-168-3-0-26"} {
		drop(t, admin, "crd.projectcalico.org/v1", "BlockAffinity", name)
	}
	want := `cilium
pods 10.0.0.0/16 Cilium's ConfigMap kube-system/cilium-config
pods fd00:1::/48 Cilium's ConfigMap kube-system/cilium-config
` + service + `a [10.0.0.0/24 fd00:1::/64]
b [10.0.1.0/24]
`
	expect(t, "Cilium", learned(t, user, learn.Spec{CNI: "cilium"}), want)
	apply(t, admin, `{apiVersion: networking.k8s.io/v1, kind: ServiceCIDR, metadata: {name: more}, spec: {cidrs: [10.97.0.0/24]}}`)
	more := strings.Replace(want, "services fd00", "services 10.97.0.0/24 ServiceCIDR more\nservices fd00", 1)
	expect(t, "Cilium, and more services", learned(t, user, learn.Spec{CNI: "cilium"}), more)

	got := learned(t, nobody, learn.Spec{CNI: "cilium"})
	for _, right := range []string{"list nodes", "list servicecidrs.networking.k8s.io", "list pods in the namespace kube-system",
		"list ciliumnodes.cilium.io", "get configmaps cilium-config in the namespace kube-system"} {
		if !strings.Contains(got, "RightMissing: the reader may not "+right+"\n") {
			t.Errorf("%q is not said to be missing:\n%s", right, got)
		}
	}
	if strings.Contains(got, "\npods ") || strings.Contains(got, "\nservices ") || strings.Contains(got, "list ippools") {
		t.Errorf("without rights, it learned:\n%s", got)
	}

	// The refusal of this version does not name a range.
	err := admin.Create(t.Context(), invalid("default", "IPv4", "0.0.0.0"))
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		t.Fatalf("a Service with the address 0.0.0.0: %v", err)
	}
	answers := []string{status.Status().Message}
	got = described(learn.From(learn.Facts{Answers: answers}, learn.Spec{ExternalAPIServer: true}))
	if !strings.Contains(got, "the answer to an invalid Service does not name them\n") {
		t.Errorf("%q:\n%s", answers, got)
	}
	onlyKubernetes(t, admin)
}

// silent is a cluster whose API server must not be asked with a Service.
type silent struct {
	client.Client
	t *testing.T
}

func (s silent) Create(context.Context, client.Object, ...client.CreateOption) error {
	s.t.Error("it was asked with a Service")
	return nil
}

// onlyKubernetes requires that no Service was created.
func onlyKubernetes(t *testing.T, c client.Client) {
	t.Helper()
	all := &unstructured.UnstructuredList{}
	all.SetAPIVersion("v1")
	all.SetKind("Service")
	if err := c.List(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	for _, u := range all.Items {
		if u.GetName() != "kubernetes" {
			t.Errorf("there is the Service %s", u.GetName())
		}
	}
}

// An API server that works as those before 1.33: it has no ServiceCIDR, and its refusals name the range.
func TestOlderCluster(t *testing.T) {
	t.Parallel()
	env, admin := start(t, map[string]string{"service-cluster-ip-range": ranges, "emulated-version": "1.33",
		"feature-gates": "MultiCIDRServiceAllocator=false", "runtime-config": "networking.k8s.io/v1/servicecidrs=false"})
	apply(t, admin, nodes)
	apply(t, admin, `{apiVersion: v1, kind: ConfigMap, metadata: {name: kube-flannel-cfg, namespace: kube-system},
  data: {net-conf.json: '{"Network": "10.244.0.0/16", "Backend": {"Type": "vxlan"}}'}}`)
	permit(t, admin)
	user := userClient(t, env, "reader")
	const flannel = `flannel
pods 10.244.0.0/16 Flannel's ConfigMap kube-system/kube-flannel-cfg
`
	const byNode = `a [10.244.0.0/24]
b [10.244.1.0/24]
`
	answered := flannel + `services 10.96.0.0/16 answer to an invalid Service
services fd00:10:96::/112 answer to an invalid Service
` + byNode
	expect(t, "no pod of the API server", learned(t, user, learn.Spec{}), answered)
	apply(t, admin, `apiVersion: v1
kind: Pod
metadata: {name: kube-apiserver-m1, namespace: kube-system, labels: {component: kube-apiserver, tier: control-plane}}
spec: {containers: [{name: kube-apiserver, image: kube-apiserver, command: [kube-apiserver, --v=2,
  --service-cluster-ip-range=10.96.0.0/16]}]}`)
	expect(t, "flags", learned(t, user, learn.Spec{}), flannel+
		"services 10.96.0.0/16 flag --service-cluster-ip-range of kube-apiserver-m1\n"+byNode)
	expect(t, "another API server", learned(t, user, learn.Spec{ExternalAPIServer: true}), answered)
	got := learned(t, userClient(t, env, "nobody"), learn.Spec{ExternalAPIServer: true})
	if !strings.Contains(got, "RightMissing: the reader may not create services in the namespace default\n") {
		t.Errorf("without rights:\n%s", got)
	}
	onlyKubernetes(t, admin)
}
