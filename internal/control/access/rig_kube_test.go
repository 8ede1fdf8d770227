// SPDX-License-Identifier: Apache-2.0

//go:build kube

package access_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/control/clusters"
	"github.com/tombolo-io/tombolo/internal/manifest"
)

// istioAPI has the definitions of Istio's kinds.
const istioAPI = "istio.io/api@v1.31.4"

// world is a real kube-apiserver with Istio's kinds, and replicas of the controller with the rights of its manifest.
type world struct {
	dir, kubectl, program, kubeconfig string
	features                          string // their configuration
	hooks                             string // the configurations of webhooks, as the manifest has them
	replicas                          int

	mu       sync.Mutex
	listens  [][2]string // where replicas answer the API server, and say that they can
	balancer net.Listener
}

func run(t *testing.T, stdin string, name string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, bad bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &bad
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, bad.String())
	}
	return out.String(), err
}

func must(t *testing.T, stdin, name string, args ...string) string {
	t.Helper()
	out, err := run(t, stdin, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// start runs etcd and kube-apiserver, which the suite has built, for a controller of access lists at a gateway.
func start(t *testing.T, access string) *world {
	t.Helper()
	o := manifest.ControllerDefaults()
	o.Gateways = []string{"istio-ingress", "istio-other"}
	o.Gardener, o.Answer = strings.Contains(access, "gardener:"), strings.Contains(access, "answer: true")
	return startWith(t, o, "  access:\n"+access)
}

func startWith(t *testing.T, o manifest.ControllerOptions, features string) *world {
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
	bin := filepath.Dir(found[len(found)-1])
	var module struct{ Dir string }
	if err := json.Unmarshal([]byte(must(t, "", "go", "mod", "download", "-json", istioAPI)), &module); err != nil {
		t.Fatal(err)
	}
	x := &world{dir: t.TempDir(), features: features, kubectl: filepath.Join(bin, "kubectl")}
	x.program = filepath.Join(x.dir, "tombolo-controller")
	must(t, "", "go", "build", "-trimpath", "-buildvcs=false", "-o", x.program,
		"github.com/tombolo-io/tombolo/cmd/tombolo-controller")
	env := &envtest.Environment{BinaryAssetsDirectory: bin,
		CRDDirectoryPaths: []string{filepath.Join(module.Dir, "kubernetes", "customresourcedefinitions.gen.yaml"),
			filepath.Join("..", "acl", "testdata", "gardener.crds.yaml")}}
	if _, err := env.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	x.kubeconfig = filepath.Join(x.dir, "admin")
	write(t, x.kubeconfig, env.KubeConfig)

	o.Image = "registry.example/tombolo:v1"
	text, err := manifest.Controller(o)
	if err != nil {
		t.Fatal(err)
	}
	x.apply(t, namespaces)
	at := bytes.LastIndex(text[:bytes.Index(text, []byte("kind: ValidatingWebhookConfiguration"))], []byte("---"))
	x.apply(t, string(text[:at]))
	x.hooks = string(text[at:])
	x.balance(t)
	user, err := env.AddUser(envtest.User{
		Name:   "system:serviceaccount:" + o.Namespace + ":" + o.Name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + o.Namespace, "system:authenticated"},
	}, &rest.Config{QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := user.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(x.dir, "user"), kubeconfig)
	return x
}

const namespaces = `{apiVersion: v1, kind: Namespace, metadata: {name: istio-ingress}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: istio-other}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: garden}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: istio-system}}
`

// webhooks has the API server ask the replicas. There is no network of Services: it asks a balancer in front of them.
func (x *world) webhooks(t *testing.T) {
	t.Helper()
	service := regexp.MustCompile(`service:\n +namespace: .*\n +name: .*\n +path: (.*)\n +port: .*\n`)
	x.apply(t, service.ReplaceAllString(x.hooks, "url: https://"+x.balancer.Addr().String()+"$1\n"))
	for _, kind := range []string{"validatingwebhookconfiguration", "mutatingwebhookconfiguration"} {
		if !strings.Contains(strings.ToLower(x.hooks), "kind: "+kind) {
			continue
		}
		eventually(t, "the API server trusts the webhooks", func() string {
			if x.kube(t, "get", kind, "tombolo-controller", "-o", "jsonpath={.webhooks[*].clientConfig.caBundle}") == "" {
				return "there is no CA in the " + kind
			}
			return ""
		})
	}
	eventually(t, "a replica answers", func() string { // they are ready when they have read their caches
		_, err := run(t, allows("a", "192.0.2.0/24"), x.kubectl, "--kubeconfig", x.kubeconfig, "apply", "--server-side",
			"--force-conflicts", "--dry-run=server", "-f", "-")
		if err != nil {
			return err.Error()
		}
		return ""
	})
}

// balance carries connections to a replica that answers, as a Service does.
func (x *world) balance(t *testing.T) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	x.balancer = ln
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for n := 0; ; n++ {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			go x.carry(near, n)
		}
	}()
}

// ready asks a replica, as kubelet does.
func ready(health string) bool {
	r, err := (&http.Client{Timeout: 5 * time.Second}).Get("http://" + health + "/readyz")
	if err != nil {
		return false
	}
	_ = r.Body.Close()
	return r.StatusCode == http.StatusOK
}

func (x *world) carry(near net.Conn, n int) {
	defer near.Close()
	x.mu.Lock()
	listens := slices.Clone(x.listens)
	x.mu.Unlock()
	for i := range listens {
		at := listens[(n+i)%len(listens)]
		if !ready(at[1]) {
			continue
		}
		far, err := net.Dial("tcp", at[0])
		if err != nil {
			continue
		}
		defer far.Close()
		go func() {
			_, _ = io.Copy(far, near)
			_ = far.Close()
		}()
		_, _ = io.Copy(near, far)
		return
	}
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// config is a configuration of one more replica.
func (x *world) config(t *testing.T) string {
	t.Helper()
	x.replicas++
	path := filepath.Join(x.dir, fmt.Sprintf("controller%d.yaml", x.replicas))
	listen, health := free(t), free(t)
	x.mu.Lock()
	x.listens = append(x.listens, [2]string{listen, health})
	x.mu.Unlock()
	write(t, path, []byte(`apiVersion: tombolo.dev/v1alpha1
kind: ControllerConfig
kubeconfig: `+filepath.Join(x.dir, "user")+`
namespace: tombolo-system
leaderElection: {leaseDuration: 3s}
webhooks: {listen: "`+listen+`", names: [127.0.0.1]}
healthListen: `+health+`
features:
`+x.features))
	return path
}

// free is an address that nobody uses.
func free(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	return ln.Addr().String()
}

// replica is a running controller.
type replica struct {
	cmd  *exec.Cmd
	done chan struct{}
	mu   sync.Mutex
	log  bytes.Buffer
}

func (r *replica) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(p)
}

func (r *replica) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}

// replica starts a controller. It must be allowed to do all that it does.
func (x *world) replica(t *testing.T) *replica {
	t.Helper()
	r := &replica{cmd: exec.Command(x.program, "--config", x.config(t)), done: make(chan struct{})}
	r.cmd.Stdout, r.cmd.Stderr = r, r
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = r.cmd.Wait()
		close(r.done)
	}()
	t.Cleanup(func() {
		r.kill()
		if text := r.text(); t.Failed() {
			t.Log(text[max(0, len(text)-4000):])
		} else if strings.Contains(text, "orbidden") {
			t.Errorf("a right is missing: %s", text)
		}
	})
	return r
}

func (r *replica) kill() {
	_ = r.cmd.Process.Kill() // it may have ended
	<-r.done
}

func (x *world) kube(t *testing.T, args ...string) string {
	t.Helper()
	return must(t, "", x.kubectl, append([]string{"--kubeconfig", x.kubeconfig}, args...)...)
}

func (x *world) apply(t *testing.T, text string) {
	t.Helper()
	must(t, text, x.kubectl, "--kubeconfig", x.kubeconfig, "apply", "--server-side", "--force-conflicts", "-f", "-")
}

func (x *world) get(t *testing.T, into any, args ...string) {
	t.Helper()
	if err := json.Unmarshal([]byte(x.kube(t, append([]string{"get", "-o", "json"}, args...)...)), into); err != nil {
		t.Fatal(err)
	}
}

// facts are the objects as they are stored, with the clusters as policies and tenants say.
func (x *world) facts(t *testing.T) istio.Facts {
	t.Helper()
	var f istio.Facts
	if err := f.Read("stored", []byte(x.kube(t, "get", "-A", "-o", "json", "gateways.networking.istio.io,virtualservices,"+
		"envoyfilters,authorizationpolicies,services,configmaps"))); err != nil {
		t.Fatal(err)
	}
	var policies objects.AccessPolicyList
	var tenants objects.EdgeTenantList
	x.get(t, &policies, "accesspolicies")
	x.get(t, &tenants, "edgetenants", "-A")
	var ps []clusters.Policy
	var ts []clusters.Tenant
	for _, p := range policies.Items {
		one := clusters.Policy{Name: p.Name, Content: p.AccessContent}
		if p.Status.Refused != nil {
			one.Kept = p.Status.Refused.InForce
		}
		ps = append(ps, one)
	}
	for _, o := range tenants.Items {
		ts = append(ts, clusters.Tenant{Namespace: o.Namespace, Name: o.Name, Spec: o.Spec,
			Created: o.CreationTimestamp.UTC().Format(time.RFC3339)})
	}
	var m clusters.Memory
	f.Clusters = m.Read(ps, ts).Clusters
	return f
}

// decides asks the stored objects.
func decides(f istio.Facts, w istio.Workload, cluster, flow, from string) (allow, same bool) {
	return istio.Decide(f, w, istio.Question{Cluster: cluster, Flow: flow, Source: netip.MustParseAddr(from)}).Verdict()
}

// eventually waits until a check has nothing to say.
func eventually(t *testing.T, what string, check func() string) {
	t.Helper()
	end := time.Now().Add(5 * time.Minute)
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
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// watch gives each state of objects as one line: their specification, if args say nothing else.
func (x *world) watch(t *testing.T, args ...string) <-chan string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, x.kubectl, append([]string{"--kubeconfig", x.kubeconfig, "get", "--watch",
		`-o=jsonpath={.spec}{"\n"}`}, args...)...)
	from, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	out := make(chan string, 16)
	go func() {
		defer close(out)
		lines := bufio.NewScanner(from)
		lines.Buffer(nil, 8<<20)
		for lines.Scan() {
			select {
			case out <- lines.Text():
			case <-ctx.Done():
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
	})
	<-out // the state that is there
	return out
}
