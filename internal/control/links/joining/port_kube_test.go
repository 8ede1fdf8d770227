// SPDX-License-Identifier: Apache-2.0

//go:build kube

package joining_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/control/controlconf"
	"github.com/tombolo-io/tombolo/internal/control/links/host"
	"github.com/tombolo-io/tombolo/internal/control/links/member"
	"github.com/tombolo-io/tombolo/internal/manifest"
)

// TestJoinThroughAPortOfAHub links a cluster that reaches the host's API server through a port of a hub alone, with the
// programs: the controller dials the agent, and the join dials what stands for a 'kubectl port-forward' to it.
func TestJoinThroughAPortOfAHub(t *testing.T) {
	there, west := start(t)
	there.hosts(t)
	if err := west.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}); err != nil {
		t.Fatal(err)
	}
	h := newHub(t, there)
	stop := h.run(t)
	forward, inside := free(t), free(t)
	join := h.join(t, "west")
	stopAgent := h.agent(t, "west", join, forward)
	named := misnamedLine(t, there, inside)
	line := filepath.Join(t.TempDir(), "line")
	if out, said, code := tombolo(t, "", "link", "token", "west", "--server", "https://"+inside, "--tls-server-name", "localhost",
		"--kubeconfig", there.file, "--out", line); code != 0 || out != "" || strings.Contains(said, "certificate") {
		t.Fatalf("token: %d", code)
	}
	args := []string{"link", "join", "@" + line, "--kubeconfig", west.file, "--image", "registry.example/tombolo:v1", "--wait", "0",
		"--cluster-pod-cidr", "10.1.0.0/16", "--cni", "other", "--server"}
	refusedJoins(t, args, named, forward)
	if _, _, code := tombolo(t, "", append(args, "https://"+forward)...); code != 0 {
		t.Fatalf("join: %d", code)
	}
	// The controller has the line's address, at which nobody has listened so far.
	var s corev1.Secret
	if err := west.Get(t.Context(), client.ObjectKey{Namespace: system, Name: "tombolo-link-host"}, &s); err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "member")
	if text := string(s.Data["kubeconfig"]); !strings.Contains(text, inside) || !strings.Contains(text, `"localhost"`) {
		t.Error("the controller has another address than the line")
	}
	if err := os.WriteFile(kubeconfig, s.Data["kubeconfig"], 0o600); err != nil {
		t.Fatal(err)
	}
	stopAgent()
	h.agent(t, "west", join, inside, forward)
	west.control(t, "tombolo-link", member.Features(&controlconf.Links{Cluster: "west", HostKubeconfig: kubeconfig,
		Gateways: 2})...)
	west.announce(t.Context(), t)
	there.knows(t, "west.a")
	if _, said, code := tombolo(t, "", "link", "join", "west", "--kubeconfig", west.file, "--image", "registry.example/tombolo:v1",
		"--no-mesh", "--server", "https://"+forward); code != 0 || !strings.Contains(said, "no other cluster") {
		t.Errorf("joined again: %d", code)
	}
	stop()
	eventually(t, "the port is closed", func() string {
		if err := handshake(inside); err == nil {
			return "it is open"
		}
		return ""
	})
	if err := west.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}}); err != nil {
		t.Fatal(err)
	}
	west.announceNode(t.Context(), t, "b")
	h.run(t)
	there.knows(t, "west.b")
	h.strangers(t, inside)
}

// misnamedLine makes a line with a name that the certificate does not have, which is told.
func misnamedLine(t *testing.T, there *api, server string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "line")
	_, said, code := tombolo(t, "", "link", "token", "east", "--server", "https://"+server, "--tls-server-name", "k8s.example",
		"--kubeconfig", there.file, "--out", file)
	if code != 0 || !strings.Contains(said, "not for k8s.example, but for ") || !strings.Contains(said, "localhost") ||
		!strings.Contains(said, "--tls-server-name") {
		t.Fatalf("a line with a wrong name: %d", code)
	}
	return file
}

// refusedJoins are those without a way to the host's API server, or with a wrong name in its certificate.
func refusedJoins(t *testing.T, args []string, misnamed, forward string) {
	t.Helper()
	last := len(args) - 1
	if _, said, code := tombolo(t, "", args[:last]...); code == 0 || !strings.Contains(said, "give the address at which you do") {
		t.Errorf("nobody listens at the line's address: %d", code)
	}
	if _, said, code := tombolo(t, "", append(args, "https://127.0.0.1:1")...); code == 0 ||
		!strings.Contains(said, "at https://127.0.0.1:1") || !strings.Contains(said, "port-forward") {
		t.Errorf("nobody listens at the address of --server: %d", code)
	}
	wrong := append([]string{"link", "join", "@" + misnamed}, args[3:]...)
	if _, said, code := tombolo(t, "", append(wrong, "https://"+forward)...); code == 0 ||
		!strings.Contains(said, "not for k8s.example, but for ") || !strings.Contains(said, "localhost") ||
		!strings.Contains(said, "tombolo link token east --server https://") || !strings.Contains(said, "--tls-server-name NAME") {
		t.Errorf("a wrong name: %d", code)
	}
}

// hosts makes this the API server of a host cluster, with its controller.
func (x *api) hosts(t *testing.T) {
	t.Helper()
	o := manifest.ControllerDefaults()
	o.Image, o.LinkHost = "registry.example/tombolo:v1", true
	text, err := manifest.Controller(o)
	if err != nil {
		t.Fatal(err)
	}
	x.apply(t, string(text))
	x.tokens(t)
	x.control(t, "tombolo-controller", host.Feature())
}

// knows waits until the host cluster has a node of a member.
func (x *api) knows(t *testing.T, node string) {
	t.Helper()
	eventually(t, "the host cluster has "+node, func() string {
		var n objects.ClusterNode
		if err := x.Get(t.Context(), client.ObjectKey{Name: node}, &n); err != nil {
			return err.Error()
		}
		return ""
	})
}

// testHub is a hub as a program, with the port kube-host for the cluster west.
type testHub struct{ dir, config, listen string }

func newHub(t *testing.T, there *api) *testHub {
	t.Helper()
	h := &testHub{dir: t.TempDir(), listen: free(t)}
	h.config = filepath.Join(h.dir, "hub.yaml")
	text := fmt.Sprintf(`apiVersion: tombolo.dev/v1alpha1
kind: HubConfig
stateDir: %s/hub
runDir: %s/run
listen: %s
advertise: [%s]
admin: {listen: "127.0.0.1:0"}
ports:
- {name: kube-host, target: %q, clusters: [west]}
`, h.dir, h.dir, h.listen, h.listen, strings.TrimPrefix(there.url, "https://"))
	if err := os.WriteFile(h.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *testHub) run(t *testing.T) (stop func()) { return program(t, "hub", "--config", h.config) }

// join is a line for agents of a cluster.
func (h *testHub) join(t *testing.T, cluster string) (line string) {
	t.Helper()
	eventually(t, "the hub gives a line", func() string {
		out, said, code := tombolo(t, "", "token", "create", "--cluster", cluster, "--admin-socket", h.dir+"/run/admin/hub.sock")
		if i := strings.Index(out, "tombolo://"); code == 0 && i >= 0 {
			line = strings.Fields(out[i:])[0]
			return ""
		}
		return said
	})
	return line
}

// agent runs one that listens for the port, and waits until it does.
func (h *testHub) agent(t *testing.T, cluster, join string, listen ...string) (stop func()) {
	t.Helper()
	text := "apiVersion: tombolo.dev/v1alpha1\nkind: AgentConfig\nports:\n"
	for _, at := range listen {
		text += fmt.Sprintf("- {name: kube-host, listen: %q}\n", at)
	}
	config := filepath.Join(h.dir, cluster+".yaml")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	stop = program(t, "agent", "--config", config, "--join", join, "--state-dir", filepath.Join(h.dir, cluster),
		"--health-listen", "127.0.0.1:0")
	for _, at := range listen {
		eventually(t, "the agent of "+cluster+" listens", func() string {
			conn, err := net.Dial("tcp", at)
			if err != nil {
				return err.Error()
			}
			_ = conn.Close() // it was only asked
			return ""
		})
	}
	return stop
}

// strangers checks that an agent of another cluster gets nothing from the port, while that of west does.
func (h *testHub) strangers(t *testing.T, west string) {
	t.Helper()
	at := free(t)
	h.agent(t, "east", h.join(t, "east"), at)
	eventually(t, "the agent of east has a session", func() string {
		out, _, _ := tombolo(t, "", "status", "east", "--admin-socket", h.dir+"/run/admin/hub.sock", "-o", "json")
		if !strings.Contains(out, `"agent-`) {
			return out
		}
		return ""
	})
	if err := handshake(at); err == nil {
		t.Error("an agent of another cluster reaches the host's API server")
	}
	if err := handshake(west); err != nil {
		t.Errorf("the agent of west does not: %v", err)
	}
}

// handshake reports whether an API server answers.
func handshake(at string) error {
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", at, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return err
	}
	return conn.Close()
}

// program runs the program until the test or stop ends it.
func program(t *testing.T, args ...string) (stop func()) {
	t.Helper()
	bin, err := filepath.Abs("../../../../bin/tombolo")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Kill() // also what a crash is
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("tombolo %s\n%s", args[0], out.String())
		}
	})
	t.Cleanup(stop)
	return stop
}

// free is an address at which nobody listens.
func free(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}
