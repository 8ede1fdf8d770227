// SPDX-License-Identifier: Apache-2.0

//go:build kube

package kube_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/test/kube/rig"
)

// linkedWorld is three clusters with equal ranges, each behind a NAT. The first one is the host cluster too.
type linkedWorld struct {
	rig *rig.Rig
	all []*cluster
	// elastic are the public addresses of the first nodes, and second that of a second node of the last cluster.
	elastic [3]string
	second  string
}

// viaHub is the cluster that reaches the host's API server through a port of the hub alone.
const viaHub = 1

const tomboloImage = "tombolo.local/tombolo:dev"

// TestLinkedKube links three clusters as people do, with the commands alone: they join by lines that can be used once,
// pods reach pods of the other clusters by mapped addresses, everything explains itself, and who leaves leaves nothing.
func TestLinkedKube(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	ctx := t.Context()
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
	w := &linkedWorld{rig: r}
	w.all = make([]*cluster, 3)
	var g sync.WaitGroup
	for i := range w.all {
		g.Go(func() {
			c, err := r.StartCluster(ctx, fmt.Sprint("c", i+1), rig.GRPCUDS)
			if err != nil {
				t.Error(err)
				return
			}
			w.all[i] = &cluster{Cluster: c, rig: r, hub: h, ctx: ctx}
			var flags []string
			if i == viaHub {
				flags = []string{"--port", "kube-host=6443", "--port-from", rig.PodRange}
			}
			if err := errors.Join(c.DeployAgentWith(ctx, flags...), c.DeployWorkload(ctx)); err != nil {
				t.Error(err)
			}
		})
	}
	g.Wait()
	if t.Failed() {
		return
	}
	defer func() {
		if t.Failed() {
			w.explain(t)
		}
	}()
	for _, step := range []struct {
		name string
		do   func(*linkedWorld, *testing.T)
	}{{"the host cluster", (*linkedWorld).host}, {"join", (*linkedWorld).join}, {"flows", (*linkedWorld).flow},
		{"see", (*linkedWorld).see}, {"the host is restored", (*linkedWorld).restore},
		{"a gateway dies", (*linkedWorld).gatewayDies}, {"unjoin", (*linkedWorld).unjoin},
		{"another secret", (*linkedWorld).relink}} {
		if !t.Run(step.name, func(t *testing.T) { step.do(w, t) }) {
			return
		}
	}
}

func (w *linkedWorld) host(t *testing.T) {
	c := w.all[0]
	file := filepath.Join(w.rig.Dir, "host.yaml")
	text := `apiVersion: tombolo.dev/v1alpha1
kind: ControllerConfig
name: tombolo-controller
features: {links: {host: true}}
healthListen: ":8449"
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := c.Tombolo(t.Context(), "controller", "manifest", "--image", tomboloImage, "--config", file,
		"--replicas", "1")
	if err != nil {
		t.Fatal(err)
	}
	c.applyServer(t, out)
	if out, err := c.Kubectl(t.Context(), "-n", "tombolo-system", "rollout", "status", "deployment/tombolo-controller",
		"--timeout=100s"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// applyServer applies as the pages say.
func (x *cluster) applyServer(t *testing.T, text string) {
	t.Helper()
	if _, err := x.KubectlInput(t.Context(), strings.NewReader(text), "apply", "--server-side", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// link runs a verb of 'tombolo link' with an administrator's kubeconfig.
func (x *cluster) link(ctx context.Context, args ...string) (string, error) {
	return x.Tombolo(ctx, append([]string{"link"}, append(args, "--kubeconfig", x.AdminKubeconfig())...)...)
}

func (w *linkedWorld) join(t *testing.T) {
	host := w.all[0]
	for i, c := range w.all {
		tokens := map[string]bool{}
		for range 2 { // the second line voids the token to which the first one leads
			w.line(t, i)
			tokens[host.kubectl(t, "-n", "tombolo-links", "get", "secret", c.Name, "-o", "jsonpath={.data.token}")] = true
		}
		if len(tokens) != 2 || tokens[""] {
			t.Errorf("%s has the token of the first line, or none", c.Name)
		}
		var err error
		if w.elastic[i], w.second, err = c.Elastic(t.Context(), "51820"); err != nil {
			t.Fatal(err)
		}
		args := w.joinArgs(t, i)
		begin := time.Now()
		out, err := c.link(t.Context(), args...)
		t.Logf("%s joined after %v:\n%s", c.Name, time.Since(begin).Round(100*time.Millisecond), out)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.link(t.Context(), args...); err == nil {
			t.Error("a line can be used twice")
		}
	}
}

func (w *linkedWorld) lineOf(c *cluster) string { return filepath.Join(w.rig.Dir, c.Name+".line") }

// line makes the line of the i-th cluster.
func (w *linkedWorld) line(t *testing.T, i int) {
	t.Helper()
	host, c := w.all[0], w.all[i]
	server, more := host.Server(), []string(nil)
	if i == viaHub {
		server, more = w.through(t, c)
	}
	out, err := host.link(t.Context(), append([]string{"token", c.Name, "--server", server, "--out", w.lineOf(c)}, more...)...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// joinArgs are those of the i-th cluster, which can join by them until the test ends.
func (w *linkedWorld) joinArgs(t *testing.T, i int) []string {
	t.Helper()
	args := []string{"join", "@" + w.lineOf(w.all[i]), "--image", tomboloImage, "--wait", "60s", "--accept", "10.0.0.0/8",
		"--map", "10.244.0.0/16=10.6" + fmt.Sprint(i) + ".0.0/16", "--map", "10.96.0.0/16=10.8" + fmt.Sprint(i) + ".0.0/16",
		"--node-elastic-ip", rig.NodeName + "=" + w.elastic[i], "--cluster-pod-cidr", "10.244.0.0/16", "--cni", "other",
		"--use-external-apiserver"}
	if i == 2 {
		args = append(args, "--network-type", "gateway")
	}
	if i == viaHub {
		args = append(args, "--server", w.all[i].forwards(t))
	}
	return args
}

// through has a cluster reach the host's API server through a port of the hub: it gives the name of its agent's Service,
// and what a line needs besides.
func (w *linkedWorld) through(t *testing.T, c *cluster) (server string, flags []string) {
	t.Helper()
	host := w.all[0]
	name, _, err := net.SplitHostPort(host.APIServer())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.hub.Configure(fmt.Sprintf("ports:\n- {name: kube-host, target: %q, clusters: [%s]}\n", host.APIServer(),
		c.Name)); err != nil {
		t.Fatal(err)
	}
	at := strings.TrimSpace(c.kubectl(t, "-n", rig.AgentNamespace, "get", "service", "tombolo-agent", "-o",
		"jsonpath={.spec.clusterIP}"))
	if err := c.Resolve(t.Context(), "tombolo-agent."+rig.AgentNamespace+".svc.cluster.local="+at); err != nil {
		t.Fatal(err)
	}
	return "https://tombolo-agent." + rig.AgentNamespace + ".svc:6443", []string{"--tls-server-name", name}
}

// forwards has the machine where a cluster joins reach the port of the hub, until the test ends.
func (x *cluster) forwards(t *testing.T) (url string) {
	t.Helper()
	out := newLines()
	session, err := x.StartKubectl(t.Context(), nil, out, "-n", rig.AgentNamespace, "port-forward", "svc/tombolo-agent", ":6443")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Stop(0) })
	for {
		if at := regexp.MustCompile(`Forwarding from (127\.0\.0\.1:\d+)`).FindStringSubmatch(out.next(t, session)); at != nil {
			return "https://" + at[1]
		}
	}
}

// flow has pods of each cluster reach pods and Services of the others.
func (w *linkedWorld) flow(t *testing.T) {
	for _, from := range w.all {
		for i, to := range w.all {
			if from == to {
				continue
			}
			pod := strings.TrimSpace(to.kubectl(t, "get", "pod", "backend", "-o", "jsonpath={.status.podIP}"))
			service := strings.TrimSpace(to.kubectl(t, "get", "service", "backend", "-o", "jsonpath={.spec.clusterIP}"))
			for what, address := range map[string]string{
				"pod":     strings.Replace(pod, "10.244.", fmt.Sprintf("10.6%d.", i), 1) + " 8080",
				"Service": strings.Replace(service, "10.96.", fmt.Sprintf("10.8%d.", i), 1) + " 80",
			} {
				begin, why := time.Now(), error(nil)
				t.Cleanup(func() {
					if why != nil {
						t.Error(why)
					}
				})
				reaches := fmt.Sprintf("a pod of %s reaches %s, a %s of %s", from.Name, address, what, to.Name)
				runtest.Eventually(t, reaches, func() bool {
					why = from.asks(t.Context(), address, to.Name+" echoes linked\n")
					return why == nil
				})
				t.Logf("%s, after %v", reaches, time.Since(begin).Round(time.Millisecond))
			}
		}
	}
}

// asks has the cluster's pod "shell" ask for a page at an address and a port, and expects it to end in want. (busybox's
// own wget looks up the name of a port, which crashes where it is linked statically.)
func (x *cluster) asks(ctx context.Context, address, want string) error {
	out, err := x.Kubectl(ctx, "exec", "shell", "--", "busybox", "sh", "-c",
		`printf 'GET /echo?word=linked HTTP/1.0\r\n\r\n' | busybox nc -w 3 `+address)
	if err == nil && !strings.HasSuffix(out, want) {
		err = fmt.Errorf("%s answers %q", address, out)
	}
	return err
}

// see has everything explain itself.
func (w *linkedWorld) see(t *testing.T) {
	host := w.all[0]
	list, err := host.link(t.Context(), "list")
	t.Logf("%v\n%s", err, list)
	for _, c := range w.all {
		if !strings.Contains(strings.Join(strings.Fields(list), " "), c.Name+" yes ") {
			t.Errorf("%s is not said to be ready", c.Name)
		}
		out, err := c.link(t.Context(), "check", "--all")
		t.Logf("check at %s: %v\n%s", c.Name, err, out)
		if err != nil {
			t.Errorf("check at %s: %v", c.Name, err)
		}
	}
	out, err := host.link(t.Context(), "explain", "10.62.0.7", "--from", "c1.node1")
	t.Logf("%v\n%s", err, out)
	for _, part := range []string{"c1.node1 sends it to c3.node1, whose tunnel is up", "c3.node1 sends it to c1.node1, whose"} {
		if !strings.Contains(out, part) {
			t.Errorf("explain does not say %q", part)
		}
	}
	objects := host.kubectl(t, "get", "tcl,tcn,tnc")
	t.Log(objects)
	for _, part := range []string{"clusternode.tombolo.dev/c3.node1", "nodeconfig.tombolo.dev/c2.node1", "InForce"} {
		if !strings.Contains(objects, part) {
			t.Errorf("there is no %s", part)
		}
	}
}

// gatewayDies: a node comes to the third cluster and is a gateway too. Both are asked through it, without a pause, when
// it loses its power.
func (w *linkedWorld) gatewayDies(t *testing.T) {
	from, to := w.all[0], w.all[2]
	if err := to.AddNode(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.all[0].kubectl(t, "patch", "cluster.tombolo.dev", to.Name, "--type=merge",
		"-p", `{"spec":{"nodeElasticIPMap":{"`+rig.SecondNode+`":"`+w.second+`"}}}`)
	service := strings.TrimSpace(to.kubectl(t, "get", "service", "backend", "-o", "jsonpath={.spec.clusterIP}"))
	service = strings.Replace(service, "10.96.", "10.82.", 1)
	var out string
	defer func() { t.Log(out) }()
	begin := time.Now()
	runtest.Eventually(t, "the mesh on the second node", func() bool {
		text, _ := to.Kubectl(t.Context(), "-n", "tombolo-link", "get", "daemonset", "tombolo-mesh",
			"-o", "jsonpath={.status.numberReady}")
		return text == "2"
	})
	runtest.Eventually(t, "the second node is a gateway", func() bool {
		text, _ := w.all[0].Kubectl(t.Context(), "get", "tcn", "c3.node2",
			"-o", "jsonpath={.status.nodeStatus} {.spec.roles}")
		return text == `Ready ["gateway"]`
	})
	runtest.Eventually(t, "Services of c3 are reached through its second node", func() bool {
		out, _ = w.all[0].link(t.Context(), "explain", service, "--from", "c1.node1")
		ranges, _ := w.all[0].Kubectl(t.Context(), "get", "tnc", "c1.node1",
			"-o", `jsonpath={.spec.peers[?(@.name=="c3.node2")].ranges}`)
		return strings.Contains(out, "c3.node2, whose tunnel is up") && strings.Contains(ranges, `"10.82.0.0/16"`)
	})
	t.Logf("the second node is a gateway after %v", time.Since(begin).Round(100*time.Millisecond))
	ask := func(t *testing.T) error { return from.asks(t.Context(), service+" 80", "c3 echoes linked\n") }
	if err := ask(t); err != nil {
		t.Fatal(err)
	}
	out += w.status(t)
	to.KillNode()
	begin = time.Now()
	defer func() {
		said, _ := from.Kubectl(t.Context(), "-n", "tombolo-link", "logs", "ds/tombolo-mesh",
			"--since-time="+begin.UTC().Format(time.RFC3339))
		t.Logf("the node's power is off at %v. The mesh of c1 says:\n%s", begin.UTC().Format("15:04:05.000"), said)
	}()
	runtest.Eventually(t, "flows continue through the first node", func() bool { return ask(t) == nil })
	took := time.Since(begin).Round(100 * time.Millisecond)
	t.Attr("figure", fmt.Sprintf("a gateway's node is dead: flows continue after %v", took))
	to.kubectl(t, "delete", "node", rig.SecondNode) // as one does whose machine will not come back
}

// status is what the mesh of the first cluster says of itself.
func (w *linkedWorld) status(t *testing.T) string {
	return w.all[0].kubectl(t, "-n", "tombolo-link", "exec", "ds/tombolo-mesh", "--", "tombolo", "mesh", "status")
}

func (w *linkedWorld) unjoin(t *testing.T) {
	host, c := w.all[0], w.all[2]
	out, err := c.link(t.Context(), "unjoin", c.Name)
	t.Logf("%v\n%s", err, out)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.inKernel(t.Context()); got != "" {
		t.Errorf("left on the node: %s", got)
	}
	out, err = host.link(t.Context(), "unjoin", c.Name, "--host")
	t.Logf("%v\n%s", err, out)
	if err != nil {
		t.Fatal(err)
	}
	if out := host.kubectl(t, "get", "tcl,tcn,tnc", "-o", "name"); strings.Contains(out, "c3") {
		t.Error(out)
	}
	w.all = w.all[:2]
	w.flow(t)
}

// explain shows what the clusters have.
func (w *linkedWorld) explain(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, c := range w.all {
		for _, args := range [][]string{{"get", "pods", "-A", "-o", "wide"}, {"get", "tcl,tcn,tnc,members.tombolo.dev"},
			{"-n", "tombolo-link", "logs", "deploy/tombolo-link", "--tail=40"},
			{"-n", "tombolo-system", "logs", "deploy/tombolo-controller", "--tail=20"},
			{"-n", "tombolo-link", "logs", "ds/tombolo-mesh", "--tail=30"},
			{"-n", "tombolo-link", "exec", "ds/tombolo-mesh", "--", "tombolo", "mesh", "status"},
			{"get", "tcl,tnc", "-o", "yaml"}} {
			out, err := c.Kubectl(ctx, args...)
			t.Logf("%s: %s: %v\n%s", c.Name, strings.Join(args, " "), err, out)
		}
		out, err := c.link(ctx, "check", "--all")
		t.Logf("check at %s: %v\n%s", c.Name, err, out)
	}
}
