// SPDX-License-Identifier: Apache-2.0

//go:build kube

package joining_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/control/manager"
	"github.com/tombolo-io/tombolo/internal/manifest"
)

const system = "tombolo-link"

// api is a real kube-apiserver.
type api struct {
	client.Client
	plane  *envtest.APIServer
	config *rest.Config
	file   string // kubeconfig of an administrator
	url    string
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

// start runs two kube-apiservers with one etcd: that of a host cluster, and that of a member.
func start(t *testing.T) (host, west *api) {
	t.Helper()
	bin := binaries(t)
	etcd := &envtest.Etcd{Path: filepath.Join(bin, "etcd")}
	if err := etcd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = etcd.Stop() })
	out := make([]*api, 2)
	failed := make([]error, 2)
	var all sync.WaitGroup
	for i, name := range []string{"host", "west"} {
		a := &envtest.APIServer{Path: filepath.Join(bin, "kube-apiserver"), EtcdURL: etcd.URL, CertDir: t.TempDir(),
			StartTimeout: time.Minute, StopTimeout: time.Minute}
		a.Configure().Set("etcd-prefix", "/"+name).Set("service-cluster-ip-range", fmt.Sprintf("10.10%d.0.0/16", i))
		out[i] = &api{plane: a, file: filepath.Join(t.TempDir(), "kubeconfig")}
		all.Go(func() {
			if failed[i] = a.Start(); failed[i] == nil {
				failed[i] = out[i].admit(a)
			}
		})
	}
	all.Wait()
	for _, x := range out {
		t.Cleanup(func() { _ = x.plane.Stop() })
	}
	if err := errors.Join(failed...); err != nil {
		t.Fatal(err)
	}
	return out[0], out[1]
}

func (x *api) admit(a *envtest.APIServer) error {
	plane := &envtest.ControlPlane{APIServer: a}
	user, err := plane.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, &rest.Config{QPS: -1})
	if err != nil {
		return err
	}
	text, err := user.KubeConfig()
	if err != nil {
		return err
	}
	x.config, x.url = user.Config(), "https://"+net.JoinHostPort(a.SecureServing.Address, a.SecureServing.Port)
	if x.Client, err = client.New(x.config, client.Options{Scheme: kinds()}); err != nil {
		return err
	}
	return os.WriteFile(x.file, text, 0o600)
}

func kinds() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{objects.AddToScheme, corev1.AddToScheme, authv1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}

// apply applies documents as a user of kubectl does.
func (x *api) apply(t *testing.T, text string) {
	t.Helper()
	for doc := range strings.SplitSeq(text, "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
			t.Fatal(err)
		}
		if len(u.Object) == 0 {
			continue
		}
		eventually(t, "apply "+u.GetKind()+" "+u.GetName(), func() string { // a kind may be a moment old
			if err := x.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u.DeepCopy()),
				client.FieldOwner("test"), client.ForceOwnership); err != nil {
				return err.Error()
			}
			return ""
		})
	}
}

// control runs a feature with the rights of a service account of the manifest, until the test or stop ends it.
func (x *api) control(t *testing.T, account string, features ...manager.Feature) (stop func()) {
	t.Helper()
	config := rest.CopyConfig(x.config)
	space := system
	if account == manifest.ControllerDefaults().Name {
		space = manifest.ControllerDefaults().Namespace
	}
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + space + ":" + account,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + space, "system:authenticated"}}
	var out logged
	ctrl.SetLogger(logr.Discard())
	m, err := ctrl.NewManager(config, ctrl.Options{Scheme: kinds(), Logger: logr.Discard(),
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0"})
	if err != nil {
		t.Error(err)
		return func() {}
	}
	for _, f := range features {
		h := manager.Host{Manager: m, Log: slog.New(slog.NewTextHandler(&out, nil)), Namespace: space,
			Metrics: prometheus.NewRegistry()}
		if err := f.Add(t.Context(), h); err != nil {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("%s: %s", account, out.String())
		}
	})
	t.Cleanup(stop)
	return stop
}

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

// tokens does what kube-controller-manager does: it gives Secrets of accounts their token.
func (x *api) tokens(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		for every := time.NewTicker(50 * time.Millisecond); ctx.Err() == nil; {
			select {
			case <-ctx.Done():
			case <-every.C:
			}
			var list corev1.SecretList
			if x.List(ctx, &list, client.InNamespace("tombolo-links")) != nil {
				continue
			}
			for _, s := range list.Items {
				if s.Type != corev1.SecretTypeServiceAccountToken || len(s.Data["token"]) > 0 {
					continue
				}
				var account corev1.ServiceAccount
				key := client.ObjectKey{Namespace: s.Namespace, Name: s.Annotations[corev1.ServiceAccountNameKey]}
				request := &authv1.TokenRequest{}
				if x.Get(ctx, key, &account) != nil || x.SubResource("token").Create(ctx, &account, request) != nil {
					continue
				}
				s.Data = map[string][]byte{"token": []byte(request.Status.Token)}
				s.Annotations[corev1.ServiceAccountUIDKey] = string(account.UID)
				_ = x.Update(ctx, &s) // a newer one is seen the next time
			}
		}
	}()
}

// all are the objects of an API server, without those that change by themselves.
func (x *api) all(t *testing.T) (out []string) {
	t.Helper()
	d, err := discovery.NewDiscoveryClientForConfig(x.config)
	if err != nil {
		t.Fatal(err)
	}
	lists, err := d.ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range l.APIResources {
			if !slices.Contains(r.Verbs, "list") || slices.Contains([]string{"Event", "Lease", "EndpointSlice", "Endpoints",
				"ComponentStatus", "APIService", "IPAddress"}, r.Kind) {
				continue
			}
			var list unstructured.UnstructuredList
			list.SetGroupVersionKind(gv.WithKind(r.Kind + "List"))
			err := x.List(t.Context(), &list)
			if (apierrors.IsNotFound(err) || meta.IsNoMatchError(err)) && !x.serves(t, gv.WithResource(r.Name)) {
				continue // it went after discovery was read
			}
			if err != nil {
				t.Fatalf("%s %s cannot be listed, so that nobody knows what is left of it: %v", l.GroupVersion, r.Kind, err)
			}
			for _, u := range list.Items {
				if u.GetKind() == "Namespace" && u.GetDeletionTimestamp() != nil {
					continue // the controller that ends it does not run here
				}
				out = append(out, r.Kind+" "+u.GetNamespace()+"/"+u.GetName())
			}
		}
	}
	slices.Sort(out)
	return out
}

// serves reports whether discovery has a resource.
func (x *api) serves(t *testing.T, r schema.GroupVersionResource) bool {
	t.Helper()
	d, err := discovery.NewDiscoveryClientForConfig(x.config)
	if err != nil {
		t.Fatal(err)
	}
	list, err := d.ServerResourcesForGroupVersion(r.GroupVersion().String())
	if apierrors.IsNotFound(err) { // the last kind of its group
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(list.APIResources, func(a metav1.APIResource) bool { return a.Name == r.Resource })
}

// tombolo runs the program as people do.
func tombolo(t *testing.T, stdin string, args ...string) (out, said string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	bin, err := filepath.Abs("../../../../bin/tombolo")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, bin, args...)
	var o, e bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &o, &e
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	t.Logf("tombolo %s\n%s%s", strings.Join(args, " "), e.String(), cut(o.String()))
	return o.String(), e.String(), cmd.ProcessState.ExitCode()
}

// proxy serves HTTP CONNECT, as between networks.
type proxy struct {
	url string
	mu  sync.Mutex
	n   int // connections
}

func startProxy(t *testing.T) *proxy {
	t.Helper()
	out := &proxy{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		far, err := net.Dial("tcp", r.Host)
		if r.Method != http.MethodConnect || err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		near, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		out.mu.Lock()
		out.n++
		out.mu.Unlock()
		fmt.Fprint(near, "HTTP/1.1 200 OK\r\n\r\n")
		var both sync.WaitGroup
		for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
			both.Go(func() {
				_, _ = io.Copy(pair[0], pair[1]) // an end that is gone ends the other one
				_, _ = near.Close(), far.Close()
			})
		}
		both.Wait()
	}))
	t.Cleanup(server.Close)
	out.url = server.URL
	return out
}

func (p *proxy) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}

func cut(s string) string { return s[:min(len(s), 600)] }

// eventually waits until a check has nothing to say.
func eventually(t *testing.T, what string, check func() string) {
	t.Helper()
	end := time.Now().Add(time.Minute)
	for {
		why := check()
		if why == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %s", what, why)
		}
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}
