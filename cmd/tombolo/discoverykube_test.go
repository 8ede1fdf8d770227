// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/kube/kubetest"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/discovery/announce"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// kubeNode is a node whose kubelet's credentials `announce` uses.
type kubeNode struct {
	t                          *testing.T
	config, kubeconfig, health string
}

// newKubeNode writes the configuration of a node, and its kubeconfig if text is given.
func newKubeNode(t *testing.T, dir, name, sources, announce string) kubeNode {
	t.Helper()
	n := kubeNode{t, filepath.Join(dir, name+".yaml"), filepath.Join(dir, name+".kubeconfig"), runtest.Address(8448)}
	secret := filepath.Join(dir, "secret")
	if _, err := os.Stat(secret); err != nil {
		must(t, "discovery", "secret", "create", secret)
	}
	n.write(n.config, fmt.Sprintf("apiVersion: tombolo.dev/v1alpha1\nkind: MeshConfig\ncluster: {secretFiles: [%q]}\nnode: {name: machine-%s, stateDir: %q, runDir: %q}\n"+
		"healthListen: %q\nannounce: {%s}\nsources: {%s}\n", secret, name, filepath.Join(dir, name), filepath.Join(dir, name, "run"), n.health, announce,
		strings.ReplaceAll(sources, "KUBECONFIG", "kubeconfig: "+n.kubeconfig+", node: "+name)))
	return n
}

func (n kubeNode) write(path, text string) {
	n.t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		n.t.Fatal(err)
	}
}

func (n kubeNode) announce(args ...string) *process {
	n.t.Helper()
	return startProcess(n.t, append([]string{"discovery", "announce", "--config", n.config}, args...)...)
}

// get asks the health port; "" where nobody answers.
func (n kubeNode) get(path string) (code int, text string) {
	n.t.Helper()
	r, err := http.NewRequestWithContext(n.t.Context(), http.MethodGet, "http://"+n.health+path, nil)
	if err != nil {
		n.t.Fatal(err)
	}
	r.Close = true
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, ""
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, ""
	}
	return answer.StatusCode, string(data)
}

// measures waits for a line of the metrics.
func (n kubeNode) measures(lines ...string) {
	n.t.Helper()
	for _, line := range lines {
		runtest.Eventually(n.t, line, func() bool { _, text := n.get("/metrics"); return strings.Contains(text, "\n"+line+"\n") })
	}
}

// conflicts are those that `members` prints for this node.
func (n kubeNode) conflicts() (out []struct{ Field, Why string }) {
	n.t.Helper()
	var list struct {
		Conflicts []struct{ Field, Why string }
	}
	if err := json.Unmarshal([]byte(must(n.t, "discovery", "members", "--config", n.config, "-o", "json")), &list); err != nil {
		n.t.Fatal(err)
	}
	return list.Conflicts
}

// annotations are those of a Node that are ours.
func annotations(s *kubetest.Server, node string) map[string]any {
	out, _ := s.Object(kubetest.Nodes, node)["metadata"].(map[string]any)["annotations"].(map[string]any)
	return out
}

// TestKubernetesAlone: nodes meet through the API server alone; a kubeconfig that comes later is taken up; an
// API server that goes takes nobody along; a new word of a node is written; with --leave all of it is removed.
func TestKubernetesAlone(t *testing.T) {
	s, dir := kubetest.New(t), runtest.Dir(t)
	s.MayListNodes(true)
	for _, name := range []string{"ka", "kb"} {
		s.AddNode(t, name)
	}
	s.Put(kubetest.Nodes, "talos", `{"metadata":{"uid":"t","annotations":{"`+roster.AnnotationKey+`":"`+kubetest.Facts(9).Key.String()+`","`+roster.AnnotationNodeID+`":"stable"}}}`)
	const sources = "kubernetes: {KUBECONFIG, read: [members, annotations], write: [members, annotations]}"
	a := newKubeNode(t, dir, "ka", sources, "role: worker, publicKey: "+kubetest.Facts(1).Key.String())
	b := newKubeNode(t, dir, "kb", sources, "role: worker, publicKey: "+kubetest.Facts(2).Key.String())
	a.write(a.kubeconfig, string(s.Kubeconfig("ka")))
	pa, pb := a.announce("--leave"), b.announce()
	pb.Says(t, "name one that this process may read") // kubelet has not joined yet
	if code, text := b.get("/readyz"); code == http.StatusOK {
		t.Errorf("kb is ready without its only source: %s", text)
	}
	a.measures("tombolo_discovery_client_members 1", `tombolo_discovery_client_kubernetes_members{part="annotations"} 2`) // its own among them
	b.write(b.kubeconfig, string(s.Kubeconfig("kb")))
	a.measures("tombolo_discovery_client_members 2", `tombolo_discovery_client_kubernetes_answers{part="announcement"} 1`, `tombolo_discovery_client_kubernetes_objects{part="members"} 2`)
	b.measures("tombolo_discovery_client_members 2")
	if code, text := b.get("/readyz"); code != http.StatusOK {
		t.Errorf("kb is not ready: %s", text)
	}
	runtest.Eventually(t, "all of kb, with both sources", func() bool {
		facts := tombolo(t, "discovery", "members", "kb", "--config", a.config).out
		return strings.Contains(lineOf(facts, "publicKey"), "kubernetes/annotations, kubernetes/members") &&
			strings.Contains(lineOf(facts, "node "), "machine-kb") && strings.Contains(lineOf(facts, "role"), "worker")
	})

	s.Away(true)
	a.measures(`tombolo_discovery_client_kubernetes_answers{part="members"} 0`, "tombolo_discovery_client_members 2", `tombolo_discovery_client_kubernetes_objects{part="members"} 2`)
	pa.Says(t, "kubernetes_unreachable")
	s.Away(false)
	a.measures(`tombolo_discovery_client_kubernetes_answers{part="members"} 1`, `tombolo_discovery_client_kubernetes_answers{part="announcement"} 1`)

	text, err := os.ReadFile(b.config)
	if err != nil {
		t.Fatal(err)
	}
	b.write(b.config, strings.Replace(strings.Replace(string(text), "role: worker", "role: controlplane", 1), "write: [members, annotations]", "write: [members]", 1))
	runtest.Eventually(t, "kb's new role", func() bool {
		return fmt.Sprint(s.Object(kubetest.Members, "kb")["spec"].(map[string]any)["role"]) == "controlplane"
	})
	pb.Says(t, "sources.kubernetes") // is taken over at the next start only

	for _, p := range []*process{pa, pb} {
		p.Process.Signal(syscall.SIGTERM)
		if code := p.Exit(t); code != 0 {
			t.Errorf("exit %d\n%s", code, p.Err.String())
		}
	}
	if o := s.Object(kubetest.Members, "ka"); o != nil || len(annotations(s, "ka")) > 0 {
		t.Errorf("ka has left, and there is %v with %v", o, annotations(s, "ka"))
	}
	if o := s.Object(kubetest.Members, "kb"); o == nil || len(annotations(s, "kb")) == 0 {
		t.Error("kb did not leave, and what it wrote is gone")
	}
}

// TestKubernetesBesideAService: what both say is one member, with the sources of each fact; another key
// under the Node's name is another member, and the difference is shown.
func TestKubernetesBesideAService(t *testing.T) {
	s, dir := kubetest.New(t), runtest.Dir(t)
	listen := runtest.Address(18446)
	file := filepath.Join(dir, "discovery.yaml")
	text := fmt.Sprintf("apiVersion: tombolo.dev/v1alpha1\nkind: DiscoveryConfig\nsettle: 1s\ntls: {self: true, hosts: [%q]}\n", strings.TrimSuffix(listen, ":18446"))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	service := startProcess(t, "discovery", "--config", file, "--state-dir", filepath.Join(dir, "state"), "--run-dir", filepath.Join(dir, "run"),
		"--listen", listen, "--admin-listen", strings.TrimSuffix(listen, "18446")+"18447")
	service.Says(t, "discovery service is ready")
	t.Setenv("TOMBOLO_DISCOVERY_SOCKET", filepath.Join(dir, "run/discovery/discovery.sock"))
	var st admin.DiscoveryStatus
	if err := json.Unmarshal([]byte(must(t, "discovery", "status", "-o", "json")), &st); err != nil {
		t.Fatal(err)
	}
	sources := fmt.Sprintf("services: [{url: 'https://%s', name: svc, pin: %q}], kubernetes: {KUBECONFIG}", listen, st.CAPin)
	a := newKubeNode(t, dir, "ka", sources, "publicKey: "+kubetest.Facts(1).Key.String())
	b := newKubeNode(t, dir, "kb", sources, "role: worker, overlay6: 'fd00::b', publicKey: "+kubetest.Facts(2).Key.String())
	for name, n := range map[string]kubeNode{"ka": a, "kb": b} {
		s.AddNode(t, name)
		n.write(n.kubeconfig, string(s.Kubeconfig(name)))
	}
	a.announce()
	b.announce()
	runtest.Eventually(t, "each fact of kb with both sources", func() bool {
		facts := tombolo(t, "discovery", "members", "kb", "--config", a.config).out
		for _, field := range []string{"node ", "nodename", "publicKey", "overlay6", "role"} {
			if line := lineOf(facts, field); !strings.Contains(line, "native/svc, kubernetes/members") {
				return false
			}
		}
		return true
	})
	object := s.Object(kubetest.Members, "kb")
	spec := object["spec"].(map[string]any)
	spec["role"], spec["publicKey"] = "controlplane", kubetest.Facts(3).Key.String()
	changed, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	s.Put(kubetest.Members, "kb", string(changed))
	runtest.Eventually(t, "the conflicts", func() bool {
		found := a.conflicts() // the object with another key is refused as a whole
		return len(found) == 1 && found[0].Field == string(roster.FieldKey) && strings.Contains(found[0].Why, "a higher tier")
	})
	facts := tombolo(t, "discovery", "members", "kb", "--config", a.config).out
	if !strings.Contains(lineOf(facts, "publicKey"), kubetest.Facts(2).Key.String()) || !strings.Contains(lineOf(facts, "role"), "worker") {
		t.Errorf("the object has changed what the service says:\n%s", facts)
	}
	s.Away(true)
	a.measures(`tombolo_discovery_client_kubernetes_answers{part="members"} 0`)
	// The metric is 0 from the start: on a slow machine ka may attend the service only now.
	runtest.Eventually(t, "ka is ready by its service alone", func() bool {
		code, _ := a.get("/readyz")
		return code == http.StatusOK
	})
}

func lineOf(text, begin string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, begin) {
			return line
		}
	}
	return ""
}

// TestKubernetesInTrouble: whatever is wrong at the API server has its code and what to do next in the log and in
// the status, writes nothing by halves, and leaves the other sources as they are.
func TestKubernetesInTrouble(t *testing.T) {
	refuse := func(code int, path, message string) func(*kubetest.Server) {
		return func(s *kubetest.Server) {
			s.AddNode(t, "ka")
			s.Mangle(func(r *http.Request, w http.ResponseWriter) bool {
				if !strings.HasPrefix(r.URL.Path, path) {
					return false
				}
				w.WriteHeader(code)
				fmt.Fprintf(w, `{"kind":"Status","code":%d,"message":%q}`, code, message)
				return true
			})
		}
	}
	for name, tc := range map[string]struct {
		spoil  func(*kubetest.Server)
		config func(good string) string
		says   []string
		part   string
	}{
		"another CA": {func(s *kubetest.Server) { s.AddNode(t, "ka") }, func(good string) string { // the system's, which have not signed for it
			return regexp.MustCompile(`, certificate-authority-data: [^}]+`).ReplaceAllString(good, "")
		}, []string{"ca_mismatch", "certificate-authority of the kubeconfig"}, "members"},
		"no rights":  {refuse(403, kubetest.Members, "members.tombolo.dev is forbidden"), nil, []string{"kubernetes_denied", "discovery manifest"}, "members"},
		"a stranger": {refuse(401, "/", "Unauthorized"), nil, []string{"kubernetes_denied", "credentials of the kubeconfig"}, "members"},
		"no kind":    {refuse(404, kubetest.Members, "404 page not found"), nil, []string{"not_found", "has no kind Member", "discovery manifest"}, "members"},
		"no Node":    {func(*kubetest.Server) {}, nil, []string{"not_found", "Kubernetes has no Node", "kubectl get nodes"}, "announcement"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			s, dir := kubetest.New(t), runtest.Dir(t)
			list := filepath.Join(dir, "list")
			a := newKubeNode(t, dir, "ka", "file: "+list+", kubernetes: {KUBECONFIG, write: [members]}", "")
			a.write(list, "apiVersion: tombolo.dev/v1alpha1\nkind: MemberList\nmembers: [{name: of-the-file}]\n")
			tc.spoil(s)
			text := string(s.Kubeconfig("ka"))
			if tc.config != nil {
				text = tc.config(text)
			}
			a.write(a.kubeconfig, text)
			p := a.announce()
			for _, say := range tc.says {
				p.Says(t, say)
			}
			a.measures("tombolo_discovery_client_members 1", `tombolo_discovery_client_kubernetes_answers{part="`+tc.part+`"} 0`)
			if code, text := a.get("/readyz"); code != http.StatusOK {
				t.Errorf("not ready: %s", text)
			}
			if s.Object(kubetest.Members, "ka") != nil {
				t.Error("something was written")
			}
			p.Process.Signal(syscall.SIGTERM)
			if code := p.Exit(t); code != 0 {
				t.Errorf("exit %d", code)
			}
		})
	}
}

// TestKubernetesRefused: a kubeconfig that must not be used is refused at the start, before anything is written.
func TestKubernetesRefused(t *testing.T) {
	s, dir := kubetest.New(t), runtest.Dir(t)
	a := newKubeNode(t, dir, "ka", "kubernetes: {KUBECONFIG}", "")
	good := string(s.Kubeconfig("ka"))
	for text, say := range map[string]string{
		"[": "not a kubeconfig in YAML",
		strings.Replace(good, "server:", "insecure-skip-tls-verify: true, server:", 1): "insecure-skip-tls-verify",
		strings.Replace(good, "https://", "http://", 1):                                "https is needed",
		strings.Replace(good, `token: "ka"`, "exec: {command: evil}", 1):               "exec",
		strings.Replace(good, `token: "ka"`, "{}", 1):                                  "",
	} {
		a.write(a.kubeconfig, text)
		for _, verb := range []string{"announce", "members"} {
			wantExit(t, tombolo(t, "discovery", verb, "--config", a.config), 2, "config_invalid", say)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "ka")); !os.IsNotExist(err) {
		t.Errorf("a state directory was made: %v", err)
	}
	a.write(a.config, strings.Replace(readText(t, a.config), "kubeconfig: "+a.kubeconfig, "inCluster: true", 1))
	wantExit(t, tombolo(t, "discovery", "announce", "--config", a.config), 2, "config_invalid", "this is not a pod")
	must(t, "config", "validate", a.config) // for another machine
}

func readText(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestStatusOfAClusterWithoutThePolicy: that every node may write the Member of others is seen.
func TestStatusOfAClusterWithoutThePolicy(t *testing.T) {
	s, dir := kubetest.New(t), runtest.Dir(t)
	s.AddNode(t, "ka")
	s.Unguard("binding")
	a := newKubeNode(t, dir, "ka", "kubernetes: {KUBECONFIG}", "role: worker, publicKey: "+kubetest.Facts(1).Key.String())
	a.write(a.kubeconfig, string(s.Kubeconfig("ka")))
	a.announce().Says(t, "the admission policy for Members is not in force")
	status := must(t, "discovery", "status", "--admin-socket", announce.AdminSocket(filepath.Join(dir, "ka", "run")))
	if !strings.Contains(status, "warning: members: kubernetes_denied: every node may write the Member of others") || !strings.Contains(status, "tombolo discovery manifest") {
		t.Errorf("the status is\n%s", status)
	}
}
