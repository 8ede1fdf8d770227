// SPDX-License-Identifier: Apache-2.0

//go:build kube

package host_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/control/controlconf"
	"github.com/tombolo-io/tombolo/internal/control/links/host"
	"github.com/tombolo-io/tombolo/internal/control/manager"
	"github.com/tombolo-io/tombolo/internal/manifest"
)

// world is a real kube-apiserver, with a controller of the host cluster that has the rights of its manifest.
type world struct {
	dir, kubectl string
	client       client.Client            // of an administrator
	members      map[string]client.Client // by the name of their account
	log          bytes.Buffer
}

// start runs etcd and kube-apiserver, which the suite has built, and the feature.
func start(t *testing.T) *world {
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
	x := &world{dir: t.TempDir(), kubectl: filepath.Join(bin, "kubectl"), members: map[string]client.Client{}}
	env := &envtest.Environment{BinaryAssetsDirectory: bin}
	if _, err := env.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	write(t, filepath.Join(x.dir, "admin"), env.KubeConfig)
	scheme := runtime.NewScheme()
	if err := objects.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if x.client, err = client.New(env.Config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	o := manifest.ControllerDefaults()
	o.Image, o.LinkHost, o.LinkMembers = "registry.example/tombolo:v1", true, []string{"c0", "c1", "c2", "c3", "a", "ab"}
	text, err := manifest.Controller(o)
	if err != nil {
		t.Fatal(err)
	}
	x.apply(t, "", string(text))
	for _, name := range append(o.LinkMembers, "default") {
		x.account(t, env, "tombolo-links", name)
	}
	x.account(t, env, o.Namespace, o.Name)
	// The API server deletes a kind's objects first, which takes it a minute while it has just begun to serve them.
	eventually(t, "the kinds are served", func() string {
		if _, err := x.as(t, "", "", "get", "clusters.tombolo.dev,clusternodes.tombolo.dev"); err != nil {
			return err.Error()
		}
		return ""
	})
	x.kube(t, "", "delete", "crd", "clusters.tombolo.dev", "clusternodes.tombolo.dev")
	x.controller(t, filepath.Join(x.dir, o.Name))
	x.waits(t, o.Namespace)
	x.apply(t, "", string(text))
	x.guarded(t)
	return x
}

// account writes a kubeconfig with which the API server takes a caller for a service account.
func (x *world) account(t *testing.T, env *envtest.Environment, space, name string) {
	t.Helper()
	user, err := env.AddUser(envtest.User{Name: "system:serviceaccount:" + space + ":" + name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + space, "system:authenticated"}},
		&rest.Config{QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	data, err := user.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(x.dir, name), data)
	if x.members[name], err = client.New(user.Config(), client.Options{Scheme: x.client.Scheme()}); err != nil {
		t.Fatal(err)
	}
}

func (x *world) controller(t *testing.T, kubeconfig string) {
	t.Helper()
	cfg, err := controlconf.Parse("controller.yaml", []byte(`apiVersion: tombolo.dev/v1alpha1
kind: ControllerConfig
kubeconfig: `+kubeconfig+`
namespace: tombolo-system
webhooks: {listen: "`+free(t)+`", names: [127.0.0.1]}
healthListen: `+free(t)+`
features: {links: {host: true}}
`))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Version = "v1.2.0"
	ctx, cancel := context.WithCancel(context.Background())
	m, err := manager.New(ctx, cfg, manager.Options{Log: slog.New(slog.NewTextHandler(&x.log, nil)),
		Registry: prometheus.NewRegistry(), Features: []manager.Feature{host.Feature()}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if text := x.log.String(); t.Failed() {
			t.Log(text[max(0, len(text)-4000):])
		} else if strings.Contains(text, "orbidden") || strings.Contains(text, "has no right") {
			t.Errorf("a right is missing: %s", text)
		}
	})
}

// guarded waits until the API server asks the policy.
func (x *world) guarded(t *testing.T) {
	t.Helper()
	eventually(t, "the policy is asked", func() string {
		_, err := x.as(t, "c1", nodeOf("c2", "probe", ""), "apply", "--server-side", "--dry-run=server", "-f", "-")
		if err == nil || !strings.Contains(err.Error(), "may not write") {
			return fmt.Sprint("not refused: ", err)
		}
		return ""
	})
}

// as runs kubectl with the credentials of a member; empty: of an administrator.
func (x *world) as(t *testing.T, who, stdin string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, x.kubectl, append([]string{"--kubeconfig", filepath.Join(x.dir, cmp.Or(who, "admin")),
		"--cache-dir", filepath.Join(x.dir, "cache")}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, bad bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &bad
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, bad.String())
	}
	return out.String(), err
}

func (x *world) kube(t *testing.T, who string, args ...string) string {
	t.Helper()
	out, err := x.as(t, who, "", args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (x *world) apply(t *testing.T, who, text string) {
	t.Helper()
	if _, err := x.as(t, who, text, "apply", "--server-side", "--force-conflicts", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// learns has a member say which range of pods its cluster has.
func (x *world) learns(t *testing.T, name, pods string) {
	t.Helper()
	c := &objects.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	text := `{"status":{"podCIDRs":[{"cidr":"` + pods + `","source":"test"}]}}`
	err := x.members[name].Status().Patch(t.Context(), c, client.RawPatch(types.MergePatchType, []byte(text)))
	if err != nil {
		t.Fatal(err)
	}
}

// judged waits for a reason, and words in the message.
func (x *world) judged(t *testing.T, name, reason, words string) objects.Cluster {
	t.Helper()
	return x.says(t, name, objects.ConditionRangesAccepted, reason, words)
}

// says waits for a condition with a reason, and words in the message.
func (x *world) says(t *testing.T, name, kind, reason, words string) objects.Cluster {
	t.Helper()
	var c objects.Cluster
	eventually(t, name+" has "+kind, func() string {
		c = objects.Cluster{}
		if err := x.client.Get(t.Context(), client.ObjectKey{Name: name}, &c); err != nil {
			return err.Error()
		}
		is := meta.FindStatusCondition(c.Status.Conditions, kind)
		if is == nil || is.Reason != reason || !strings.Contains(is.Message, words) || is.ObservedGeneration != c.Generation {
			return fmt.Sprintf("not %s with %q: %+v", reason, words, is)
		}
		return ""
	})
	return c
}

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
		case <-time.After(20 * time.Millisecond):
		}
	}
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

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
