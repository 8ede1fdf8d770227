// SPDX-License-Identifier: Apache-2.0

//go:build kube

package kube_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/test/kube/rig"
	"github.com/tombolo-io/tombolo/test/kube/tools"
)

// TestKonnectivity walks through docs/howto/from-konnectivity.md on a cluster that begins with the reference's server
// and agents, and runs the matrix with ours at both ends, in both protocols. It runs beside TestKube.
func TestKonnectivity(t *testing.T) {
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
		if err := r.Close(); err != nil {
			t.Errorf("take the rig down: %v", err)
		}
	})
	h, err := r.StartHub(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c, err := r.StartCluster(ctx, "k1", rig.KonnectivityGRPC)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []func(context.Context) error{c.DeployWorkload, c.Register, c.PrepareKonnectivity} {
		if err := step(ctx); err != nil {
			t.Fatal(err)
		}
	}
	k := &konnectivity{cluster: &cluster{Cluster: c, rig: r, hub: h, ctx: ctx}, blocks: pageBlocks(t)}
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"the reference", k.before},
		{"swap the server", k.swapServer},
		{"swap the agents", k.swapAgents},
		{"matrix/" + string(rig.KonnectivityGRPC), func(t *testing.T) { k.cases(t, rig.KonnectivityGRPC) }},
		{"webhooks at once", k.webhooks},
		{"etcd directly", k.etcdDirectly},
		{"go native", k.goNative},
		{"go back", k.goBack},
		{"a fleet that is rolled", k.fleet},
		{"slow terminals", k.slow},
		{"matrix/" + string(rig.KonnectivityConnect), k.connect},
		{"etcd through the egress", k.etcdThrough},
	} {
		since := time.Now()
		if !t.Run(step.name, step.run) {
			k.explain(t)
			return // each begins where the last one ends
		}
		t.Logf("%6.1fs  %s (%.1fs)", time.Since(begin).Seconds(), step.name, time.Since(since).Seconds())
	}
}

// konnectivity is a cluster that is reached by a konnectivity server and agents.
type konnectivity struct {
	*cluster
	blocks map[string]string // of the page, by what this test does with them
	server *rig.KonnectivityServer
	direct etcdCost
}

func (k *konnectivity) explain(t *testing.T) {
	k.cluster.explain(t)
	for _, log := range []string{"konnectivity-server", "konnectivity-etcd-server", "konnectivity-etcd-agent"} {
		t.Logf("--- end of the log of %s\n%s", log, k.Log(log))
	}
	for _, args := range [][]string{{"get", "pods", "-A", "-o", "wide"}, {"-n", "kube-system", "describe", "pods"}} {
		out, err := k.Kubectl(k.within(t, time.Minute), args...)
		t.Logf("%q: %v\n%s", args, err, out)
	}
}

// fromRepo reads a file of the repository.
func fromRepo(t *testing.T, path string) string {
	t.Helper()
	repo, err := tools.Repo()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(repo, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// referenceAgent is an image that page and manifests name.
const referenceAgent = "registry.k8s.io/kas-network-proxy/proxy-agent:v0.36.0"

// pageBlocks are the blocks of the page that say that this test does them.
func pageBlocks(t *testing.T) map[string]string {
	t.Helper()
	text := fromRepo(t, "docs/howto/from-konnectivity.md")
	blocks := map[string]string{}
	for _, m := range regexp.MustCompile("(?s)<!-- not run: TestKonnectivity does: ([a-z ]+) -->\n```(?:sh|yaml)\n(.*?)```").FindAllStringSubmatch(text, -1) {
		blocks[m[1]] = m[2]
	}
	return blocks
}

// placed is a block or a manifest with what is here in place of what it says.
func (k *konnectivity) placed(text string) string {
	return strings.NewReplacer(
		"registry.example/tombolo:v1", rig.TombolosImage,
		referenceAgent, rig.ReferenceImage,
		"192.0.2.10", k.control(),
		"/usr/local/bin/tombolo", k.TomboloProgram(),
		"/usr/local/bin/proxy-server", k.HostProgram(),
		"/run/konnectivity/konnectivity-server.socket", k.KonnectivitySocket(),
		"name: c1", "name: "+k.Name,
	).Replace(text)
}

// control is the address of the control plane.
func (k *konnectivity) control() string {
	return strings.TrimSuffix(strings.TrimPrefix(k.Server(), "https://"), ":6443")
}

// does runs a block of the page.
func (k *konnectivity) does(t *testing.T, block string) {
	t.Helper()
	text, ok := k.blocks[block]
	if !ok {
		t.Fatalf("the page has no block of which it says: TestKonnectivity does: %s", block)
	}
	if out, err := k.Shell(k.within(t, 2*time.Minute), k.placed(text)); err != nil {
		t.Fatalf("%s: %v\n%s", block, err, out)
	}
}

// k0sServer are the arguments that k0s gives the server.
func k0sServer(socket string) []string {
	return []string{"--uds-name=" + socket, "--cluster-cert=/etc/kubernetes/pki/apiserver.crt",
		"--cluster-key=/etc/kubernetes/pki/apiserver.key", "--kubeconfig=/etc/kubernetes/konnectivity-server.conf",
		"--mode=grpc", "--server-port=0", "--agent-port=" + rig.KonnectivityPort, "--admin-port=8133",
		"--health-port=" + rig.KonnectivityHealth, "--agent-namespace=kube-system",
		"--agent-service-account=konnectivity-agent", "--authentication-audience=system:konnectivity-server",
		"--logtostderr=true", "--stderrthreshold=1", "--v=4", "--enable-profiling=false",
		"--delete-existing-uds-file=true", "--server-id=host-1", "--proxy-strategies=destHost,default",
		"--server-count=1"}
}

// kamajiServer are the arguments of the manifest's server.
func kamajiServer(t *testing.T) []string {
	t.Helper()
	var d struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []struct {
						Name string
						Args []string
					}
				}
			}
		}
	}
	if err := yaml.Unmarshal([]byte(fromRepo(t, "deploy/kubernetes/konnectivity/kamaji-server.yaml")), &d); err != nil {
		t.Fatal(err)
	}
	for _, c := range d.Spec.Template.Spec.Containers {
		if c.Name == "konnectivity-server" {
			return c.Args
		}
	}
	t.Fatal("the manifest has no konnectivity-server")
	return nil
}

// serve starts a server in place of the one that is there.
func (k *konnectivity) serve(t *testing.T, whose rig.Program, args []string) {
	t.Helper()
	if k.server != nil {
		k.server.End()
	}
	s, err := k.StartKonnectivity(whose, args)
	if err != nil {
		t.Fatal(err)
	}
	k.server = s
}

func (k *konnectivity) ready(t *testing.T) {
	t.Helper()
	if err := k.server.Ready(k.ctx); err != nil {
		t.Fatal(err)
	}
}

// manifest applies one of the repository with an image, whose pods end within a time after they are told to.
func (k *konnectivity) manifest(t *testing.T, name, image string, grace int) {
	t.Helper()
	text := strings.ReplaceAll(fromRepo(t, "deploy/kubernetes/konnectivity/"+name), referenceAgent, image)
	text = strings.ReplaceAll(k.placed(text),
		"      serviceAccountName:", fmt.Sprintf("      terminationGracePeriodSeconds: %d\n      serviceAccountName:", grace))
	if err := k.Apply(k.within(t, time.Minute), strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
}

// agents waits until the server has so many tunnels.
func (k *konnectivity) agents(t *testing.T, n string) {
	t.Helper()
	runtest.Eventually(t, "the server has agents: "+n, func() bool { return k.tunnels() == n })
}

// tunnels is how many the server says to have.
func (k *konnectivity) tunnels() string {
	value, err := k.server.Metric(k.ctx, `konnectivity_network_proxy_server_grpc_connections{service_method="Connect"}`)
	if err != nil {
		return err.Error()
	}
	return value
}

// before is where the page begins: the reference at both ends.
func (k *konnectivity) before(t *testing.T) {
	k.serve(t, rig.Hosts, k0sServer(k.KonnectivitySocket()))
	k.manifest(t, "k0s-agents.yaml", rig.ReferenceImage, 1)
	k.ready(t)
	k.logs(t)
}

// says checks whose program the server is, by what only ours logs.
func (k *konnectivity) says(t *testing.T, whose rig.Program) {
	t.Helper()
	if ours := strings.Contains(k.server.Tail(), "agent connected"); ours != (whose == rig.Tombolos) {
		t.Errorf("the server is not %s:\n%s", whose, k.server.Tail())
	}
}

func (k *konnectivity) swapServer(t *testing.T) {
	k.does(t, "the link")
	k.serve(t, rig.Hosts, k0sServer(k.KonnectivitySocket()))
	k.ready(t)
	k.says(t, rig.Tombolos)
	k.logs(t)
	k.exec(t)
}

func (k *konnectivity) swapAgents(t *testing.T) {
	k.does(t, "the image of the agents")
	k.ready(t)
	k.does(t, "the look")
	out := k.kubectl(t, "-n", "kube-system", "logs", "daemonset/konnectivity-agent", "--tail=-1")
	if !strings.Contains(out, "konnectivity agent is up") {
		t.Errorf("the agent is not ours: %s", out)
	}
	if !strings.Contains(out, "flags of the reference that mean nothing here are ignored") {
		t.Errorf("the agent does not say which flags mean nothing: %s", out)
	}
	k.exec(t)
}

// goNative lets the hub take over the server's socket, with agents of its own: kube-apiserver is not touched.
func (k *konnectivity) goNative(t *testing.T) {
	if err := k.DeployAgent(k.ctx); err != nil {
		t.Fatal(err)
	}
	k.server.End()
	k.server = nil
	fields, ok := k.blocks["the socket of the hub"]
	if !ok {
		t.Fatal("the page has no configuration of the hub")
	}
	_, fields, _ = strings.Cut(k.placed(fields), "kind: HubConfig\n")
	if err := k.hub.Configure(fields); err != nil {
		t.Fatal(err)
	}
	var err error
	defer func() { // Eventually ends the test
		if t.Failed() {
			t.Log(err)
		}
	}()
	runtest.Eventually(t, "kubectl logs goes by the hub", func() bool {
		_, err = k.Kubectl(k.within(t, time.Minute), "logs", "writer", "--tail=1")
		return err == nil
	})
	k.does(t, "the end of the agents")
	k.logs(t)
	k.exec(t)
	status, err := k.hub.Tombolo(k.ctx, "status")
	if err != nil || !strings.Contains(status, k.Name) {
		t.Errorf("the hub's status: %s %v", status, err)
	}
}

// goBack takes the socket from the hub, and starts what was there before; here with the shape of Kamaji.
func (k *konnectivity) goBack(t *testing.T) {
	if err := k.hub.Configure(""); err != nil {
		t.Fatal(err)
	}
	runtest.Eventually(t, "the hub has left the socket", func() bool {
		_, err := os.Stat(k.KonnectivitySocket())
		return errors.Is(err, os.ErrNotExist)
	})
	k.kubectl(t, "delete", "namespace", rig.AgentNamespace, "--wait=false")
	k.serve(t, rig.Tombolos, kamajiServer(t))
	k.manifest(t, "kamaji-agents.yaml", rig.TombolosImage, 120) // longer than this test: see swapAgents
	k.agents(t, "2")
	k.logs(t)
	k.kubectl(t, "create", "namespace", "tenants")
	for _, text := range []string{fromRepo(t, "deploy/kubernetes/konnectivity/kamaji-server.yaml"),
		strings.ReplaceAll(fromRepo(t, "deploy/kubernetes/konnectivity/kamaji-server.yaml"),
			"registry.k8s.io/kas-network-proxy/proxy-server:v0.36.0", rig.TombolosImage)} {
		if _, err := k.KubectlInput(k.within(t, time.Minute), strings.NewReader(text), "create", "--dry-run=server",
			"--validate=strict", "-f", "-"); err != nil {
			t.Error(err)
		}
	}
}

// webhooks makes more objects at once than the KEP asks for, each of which the webhook in the pod has to judge.
func (k *konnectivity) webhooks(t *testing.T) {
	const objects, atOnce = 400, 64
	k.endpoints(t)
	ctx, client := k.within(t, 2*time.Minute), k.HTTP()
	defer client.CloseIdleConnections()
	begin := time.Now()
	failed, turn := make(chan error, objects), make(chan int)
	for range atOnce {
		go func() {
			for i := range turn {
				failed <- k.judged(ctx, client, fmt.Sprintf("at-once-%d", i))
			}
		}()
	}
	go func() {
		for i := range objects {
			turn <- i
		}
		close(turn)
	}()
	n := 0
	for range objects {
		if err := <-failed; err != nil {
			n++
			t.Log(err)
		}
	}
	if n > 0 {
		t.Errorf("%d of %d objects were not judged", n, objects)
	}
	t.Attr("figure", fmt.Sprintf("%d admission webhooks, %d at once: %d failed, %.0f/s",
		objects, atOnce, n, objects/time.Since(begin).Seconds()))
}

// judged makes an object, and looks for the label of the webhook in the answer.
func (k *konnectivity) judged(ctx context.Context, client *http.Client, name string) error {
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":{"webhook":"yes"}}}`, name)
	text, err := k.send(ctx, client, http.MethodPost, "/api/v1/namespaces/default/configmaps", []byte(body))
	if err != nil {
		return err
	}
	var got struct {
		Metadata struct{ Labels map[string]string }
	}
	if err := json.Unmarshal(text, &got); err != nil {
		return err
	}
	if got.Metadata.Labels["seen"] != "yes" {
		return fmt.Errorf("%s has the labels %v", name, got.Metadata.Labels)
	}
	return nil
}

// send asks kube-apiserver as admin.
func (k *konnectivity) send(ctx context.Context, client *http.Client, method, path string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, k.Server()+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: %s: %.300s", method, path, answer.Status, text)
	}
	return text, err
}
