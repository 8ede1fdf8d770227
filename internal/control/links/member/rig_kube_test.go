// SPDX-License-Identifier: Apache-2.0

//go:build kube

package member

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/control/controlconf"
	"github.com/tombolo-io/tombolo/internal/control/manager"
	"github.com/tombolo-io/tombolo/internal/manifest"
)

const namespace = "tombolo-system"

// api is a real kube-apiserver; several have one etcd.
type api struct {
	name   string
	plane  *envtest.ControlPlane
	config *rest.Config // of an administrator
	way    *way         // for controllers of other clusters
	ahead  atomic.Int64 // by how much the clock of its controller is, in ns
	client.Client
}

func binaries(t *testing.T) string {
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
	return filepath.Dir(found[len(found)-1])
}

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, fn := range []func(*runtime.Scheme) error{objects.AddToScheme, corev1.AddToScheme} {
		if err := fn(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// start runs an etcd, and a kube-apiserver for each name, whose services have the ranges 10.101.0.0/16 and so on.
func start(t *testing.T, names ...string) []*api {
	t.Helper()
	bin := binaries(t)
	etcd := &envtest.Etcd{Path: filepath.Join(bin, "etcd")}
	if err := etcd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = etcd.Stop() })
	out := make([]*api, len(names))
	failed := make([]error, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		a := &envtest.APIServer{Path: filepath.Join(bin, "kube-apiserver"), EtcdURL: etcd.URL, CertDir: t.TempDir(),
			StartTimeout: time.Minute, StopTimeout: time.Minute}
		a.Configure().Set("etcd-prefix", "/"+name).Set("service-cluster-ip-range", fmt.Sprintf("10.10%d.0.0/16", i))
		out[i] = &api{name: name, plane: &envtest.ControlPlane{APIServer: a}}
		all.Go(func() {
			if failed[i] = a.Start(); failed[i] == nil {
				failed[i] = out[i].admit(t)
			}
		})
	}
	all.Wait()
	if err := errors.Join(failed...); err != nil {
		t.Fatal(err)
	}
	for _, x := range out {
		t.Cleanup(func() { _ = x.plane.APIServer.Stop() })
		at := x.plane.APIServer.SecureServing.ListenAddr
		x.way = &way{to: net.JoinHostPort(at.Address, at.Port)}
		x.way.open(t)
		t.Cleanup(x.way.cut)
	}
	return out
}

// admit makes a client of an administrator, and applies the kinds and the rights of the manifests.
func (x *api) admit(t *testing.T) error {
	user, err := x.plane.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, &rest.Config{QPS: -1})
	if err != nil {
		return err
	}
	x.config = user.Config()
	if x.Client, err = client.New(x.config, client.Options{Scheme: scheme(t)}); err != nil {
		return err
	}
	o := manifest.ControllerDefaults()
	o.Image, o.Linked = "registry.example/tombolo:v1", true
	text, err := manifest.Controller(o)
	if err != nil {
		return err
	}
	members, err := manifest.Members(manifest.MembersOptions{Kubelets: true})
	if err != nil {
		return err
	}
	needed := []string{"clusters.tombolo.dev", "clusternodes.tombolo.dev", "nodeconfigs.tombolo.dev",
		"members.tombolo.dev"}
	for doc := range bytes.SplitSeq(slices.Concat(text, []byte("---\n"), members), []byte("---\n")) {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(doc, &u.Object); err != nil {
			return err
		}
		if kind := u.GetKind(); strings.Contains(kind, "Role") || kind == "Namespace" ||
			kind == "CustomResourceDefinition" && slices.Contains(needed, u.GetName()) {
			if err := x.Create(t.Context(), u); err != nil {
				return fmt.Errorf("%s %s: %w", kind, u.GetName(), err)
			}
		}
	}
	for range 1000 {
		if err = x.serves(t); err == nil {
			break
		}
		<-time.After(20 * time.Millisecond)
	}
	return err
}

// serves asks for the kinds.
func (x *api) serves(t *testing.T) error {
	members := &unstructured.UnstructuredList{}
	members.SetGroupVersionKind(objects.GroupVersion().WithKind("MemberList"))
	for _, l := range []client.ObjectList{&objects.ClusterList{}, &objects.ClusterNodeList{}, &objects.NodeConfigList{},
		members} {
		if err := x.List(t.Context(), l); err != nil {
			return err
		}
	}
	return nil
}

const hostRights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: member}
rules:
- {apiGroups: [tombolo.dev], resources: [clusters], verbs: [get, list, watch]}
- {apiGroups: [tombolo.dev], resources: [clusternodes], verbs: [get, list, watch, create, patch, delete]}
- {apiGroups: [tombolo.dev], resources: [nodeconfigs], verbs: [create, patch, delete]}
- {apiGroups: [tombolo.dev], resources: [clusters/status, clusternodes/status, nodeconfigs/status], verbs: [patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: member}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: member}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: members}]
`

func (x *api) create(t *testing.T, text string) {
	t.Helper()
	for doc := range strings.SplitSeq(text, "---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
			t.Fatal(err)
		}
		if err := x.Create(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
}

// way is a way to an API server that can be cut.
type way struct {
	to, address string

	mu    sync.Mutex
	ln    net.Listener
	conns []net.Conn
}

func (w *way) open(t *testing.T) {
	t.Helper()
	ln, err := net.Listen("tcp", cmp.Or(w.address, "127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	w.ln, w.address = ln, ln.Addr().String()
	w.mu.Unlock()
	go func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", w.to)
			if err != nil {
				near.Close()
				continue
			}
			w.mu.Lock()
			w.conns = append(w.conns, near, far)
			w.mu.Unlock()
			for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
				go func() {
					_, _ = io.Copy(pair[0], pair[1])
					pair[0].Close()
				}()
			}
		}
	}()
}

// cut ends all connections, and refuses new ones.
func (w *way) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ln.Close()
	for _, c := range w.conns {
		c.Close()
	}
	w.conns = nil
}

// credentials writes a kubeconfig of a member's controller.
func (x *api) credentials(t *testing.T, name string) string {
	t.Helper()
	user, err := x.plane.AddUser(envtest.User{Name: name, Groups: []string{"members"}}, &rest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := user.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	at := x.plane.APIServer.SecureServing.ListenAddr
	text = bytes.Replace(text, []byte(net.JoinHostPort(at.Address, at.Port)), []byte(x.way.address), 1)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// control runs the feature with the rights of the manifest until the test ends.
func (x *api) control(t *testing.T, cfg controlconf.Links, out *logged) {
	t.Helper()
	config := rest.CopyConfig(x.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + namespace + ":tombolo-controller",
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}}
	log := slog.New(slog.NewTextHandler(out, nil))
	m, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme(t), Logger: logr.Discard(),
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0"})
	if err != nil {
		t.Fatal(err)
	}
	now := func() time.Time { return time.Now().Add(time.Duration(x.ahead.Load())) }
	for _, f := range features(&cfg, now) {
		if err := f.Add(t.Context(), manager.Host{Manager: m, Log: log, Namespace: namespace, Name: "tombolo-controller",
			Version: "v1.2.0"}); err != nil {
			t.Fatal(err)
		}
	}
	ctrl.SetLogger(logr.Discard())
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// logged is what controllers say.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func eventually(t *testing.T, what string, check func() (missing string)) time.Duration {
	t.Helper()
	begin := time.Now()
	for {
		missing := check()
		took := time.Since(begin)
		if missing == "" {
			return took
		}
		if took > 40*time.Second {
			t.Fatalf("%s: not after %v: %s", what, took.Round(time.Millisecond), missing)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// node adds a Node that is ready, and its Member. The last byte of its key and addresses is n.
func (x *api) node(t *testing.T, name, pods, public string, n byte) {
	t.Helper()
	o := &corev1.Node{}
	o.Name, o.Spec.PodCIDR, o.Spec.PodCIDRs = name, pods, []string{pods}
	if err := x.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	o.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.168.0.%d", n)}}
	o.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if err := x.Status().Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	key := base64.StdEncoding.EncodeToString(append(bytes.Repeat([]byte{7}, 31), n<<2))
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"publicKey": key, "nodename": name,
		"addresses": []any{fmt.Sprintf("192.168.0.%d", n)}, "endpoints": []any{public + ":51820"}}}}
	u.SetGroupVersionKind(objects.GroupVersion().WithKind(kindMember))
	u.SetName(name)
	if err := x.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
}

// ready says whether a Node is.
func (x *api) ready(t *testing.T, name string, is bool) {
	t.Helper()
	var o corev1.Node
	if err := x.Get(t.Context(), client.ObjectKey{Name: name}, &o); err != nil {
		t.Fatal(err)
	}
	o.Status.Conditions[0].Status = corev1.ConditionUnknown
	if is {
		o.Status.Conditions[0].Status = corev1.ConditionTrue
	}
	if err := x.Status().Update(t.Context(), &o); err != nil {
		t.Fatal(err)
	}
}

func (x *api) remove(t *testing.T, o client.Object, name string) {
	t.Helper()
	o.SetName(name)
	if err := x.Delete(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// versions are those of all objects of linked clusters.
func (x *api) versions(t *testing.T) (out []string) {
	t.Helper()
	all, err := readLinked(t.Context(), x)
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range all.clusters {
		out = append(out, name+" "+o.ResourceVersion)
	}
	for name, o := range all.nodes {
		out = append(out, name+" "+o.ResourceVersion)
	}
	slices.Sort(out)
	return out
}

// states says how a cluster has nodes: "a.a1 Ready gateway" and so on.
func (x *api) states(t *testing.T) string {
	t.Helper()
	all, err := readLinked(t.Context(), x)
	if err != nil && !apierrors.IsNotFound(err) {
		return err.Error()
	}
	var out []string
	for name, o := range all.nodes {
		out = append(out, strings.TrimSpace(strings.Join(append([]string{name, o.Status.NodeStatus}, o.Spec.Roles...), " ")))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
