// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tombolo-io/tombolo/test/kube/tools"
)

// The modes in which kube-apiserver asks a konnectivity server: see StartKonnectivity. In the second it reaches etcd
// through one too.
const (
	KonnectivityGRPC    Mode = "konnectivity-grpc"
	KonnectivityConnect Mode = "konnectivity-connect"
)

// ReferenceImage has konnectivity's own server and agent as /proxy-server and /proxy-agent; TombolosImage has ours.
const (
	ReferenceImage = "tombolo.local/reference:dev"
	TombolosImage  = agentImage
)

// What the konnectivity servers beside the control plane have. The second one leads to etcd.
const (
	KonnectivityPort   = "8132"
	KonnectivityHealth = "8134"
	etcdPort           = "8142"
	etcdHealth         = "8144"
	etcdAgentHealth    = "8154"
)

// Program says whose server or agent it is.
type Program string

// The programs.
const (
	Tombolos   Program = "Tombolo's"
	References Program = "the reference's"
	Hosts      Program = "the host's" // the reference's at first: see HostProgram
)

// KonnectivitySocket is where kube-apiserver looks for a konnectivity server.
func (c *Cluster) KonnectivitySocket() string { return filepath.Join(c.dir, "konnectivity.sock") }

func (c *Cluster) etcdSocket() string { return filepath.Join(c.dir, "konnectivity-etcd.sock") }

// konnectivityEgress is the egress selector of the modes.
func (c *Cluster) konnectivityEgress(mode Mode) string {
	selection := func(name, protocol, socket string) string {
		return fmt.Sprintf("- name: %s\n  connection: {proxyProtocol: %s, transport: {uds: {udsName: %q}}}\n", name, protocol, socket)
	}
	text := "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n"
	if mode == KonnectivityGRPC {
		return text + selection("cluster", "GRPC", c.KonnectivitySocket())
	}
	return text + selection("cluster", "HTTPConnect", c.KonnectivitySocket()) + selection("etcd", "HTTPConnect", c.etcdSocket())
}

// PrepareKonnectivity issues the certificates that the programs of konnectivity show, writes the kubeconfig of a server,
// and gives the node the images of ours and of the reference.
func (c *Cluster) PrepareKonnectivity(ctx context.Context) error {
	begin := time.Now()
	for file, s := range map[string]subject{
		"konnectivity-server": {name: "system:konnectivity-server"},
		"konnectivity-agent":  {name: "konnectivity-agent"},
	} {
		if err := c.pki.issue(file, s); err != nil {
			return err
		}
	}
	if err := c.pki.kubeconfig(c.kubeconfig("konnectivity-server"), c.Server(), "konnectivity-server"); err != nil {
		return err
	}
	reference, err := tools.EnsureReference(ctx, c.rig.repo, c.rig.progress)
	if err != nil {
		return err
	}
	archive := filepath.Join(c.dir, "reference.tar")
	if err := errors.Join(c.layPrograms(reference), writeReference(archive, reference)); err != nil {
		return err
	}
	defer os.Remove(archive) // the node has its copy
	if err := errors.Join(c.ImportImages(ctx, archive),
		c.ImportImages(ctx, filepath.Join(c.rig.repo, "bin/tombolo-image.tar"))); err != nil {
		return err
	}
	c.rig.step(c.Name+": the node has the images of konnectivity", begin)
	return nil
}

// referenceScript starts the reference's server or agent, which are one program.
func referenceScript(program, verb string) []byte {
	return fmt.Appendf(nil, "#!/bin/sh\nexec %s %s \"$@\"\n", program, verb)
}

// layPrograms makes what is started beside the control plane: proxy-server and proxy-agent, of both.
func (c *Cluster) layPrograms(reference string) error {
	var failed []error
	for program, verb := range map[string]string{"proxy-server": "server", "proxy-agent": "agent"} {
		for _, whose := range []Program{Tombolos, References, Hosts} {
			path := c.program(whose, program)
			failed = append(failed, os.MkdirAll(filepath.Dir(path), 0o755))
			if whose == Tombolos {
				failed = append(failed, os.Symlink(c.rig.tombolo, path))
				continue
			}
			failed = append(failed, os.WriteFile(path, referenceScript(reference, verb), 0o755))
		}
	}
	return errors.Join(failed...)
}

// program is the path of a program of konnectivity beside the control plane.
func (c *Cluster) program(whose Program, name string) string {
	return filepath.Join(c.dir, map[Program]string{Tombolos: "tombolo", References: "reference", Hosts: "host"}[whose], name)
}

// HostProgram is the path of a server beside the control plane that an administrator may replace.
func (c *Cluster) HostProgram() string { return c.program(Hosts, "proxy-server") }

// TomboloProgram is the path of the program under test.
func (c *Cluster) TomboloProgram() string { return c.rig.tombolo }

// writeReference writes the archive of ReferenceImage.
func writeReference(path, reference string) error {
	data, err := os.ReadFile(reference)
	if err != nil {
		return err
	}
	box, err := busyboxLayer()
	if err != nil {
		return err
	}
	packed, err := archive([]layer{{"reference", data}, {"proxy-agent", referenceScript("/reference", "agent")},
		{"proxy-server", referenceScript("/reference", "server")}}, nil)
	if err != nil {
		return err
	}
	return writeArchive(path, []image{{ReferenceImage, []string{"/reference"}, []layer{{"reference-layer.tar", packed}, box}}})
}

// KonnectivityServer is a konnectivity server beside the control plane.
type KonnectivityServer struct {
	*Process
	c *Cluster
}

// StartKonnectivity starts a konnectivity server with the arguments of a manifest, in which paths of kubeadm's are put
// right. Ready waits until it has an agent.
func (c *Cluster) StartKonnectivity(whose Program, args []string) (*KonnectivityServer, error) {
	fill := strings.NewReplacer("/etc/kubernetes/pki", c.pki.dir, "/etc/kubernetes/konnectivity-server.conf",
		c.kubeconfig("konnectivity-server"), "/run/konnectivity/konnectivity-server.socket", c.KonnectivitySocket(),
		"--server-count=2", "--server-count=1")
	line := []string{c.program(whose, "proxy-server")}
	for _, a := range args {
		line = append(line, fill.Replace(a))
	}
	p, err := c.rig.start(c.dir, launch{name: "konnectivity-server", host: c.cp, args: line})
	if err != nil {
		return nil, err
	}
	c.others = append(c.others, p)
	return &KonnectivityServer{p, c}, nil
}

// End kills the server, with every connection that it has.
func (s *KonnectivityServer) End() { s.stop() }

// Ready waits until the server has an agent.
func (s *KonnectivityServer) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return await(ctx, "wait for the konnectivity server", s.Process, func(ctx context.Context) error {
		_, err := s.c.onControlPlane(ctx, "http://127.0.0.1:"+KonnectivityHealth+"/readyz")
		return err
	})
}

// Metric is the value of a line of what the server measures; it is empty where there is none.
func (s *KonnectivityServer) Metric(ctx context.Context, line string) (string, error) {
	return s.c.metric(ctx, KonnectivityHealth, line)
}

func (c *Cluster) metric(ctx context.Context, port, line string) (string, error) {
	text, err := c.onControlPlane(ctx, "http://127.0.0.1:"+port+"/metrics")
	for l := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(l, line+" "); ok {
			return strings.TrimSpace(value), err
		}
	}
	return "", err
}

// onControlPlane asks a port of the control plane's loopback.
func (c *Cluster) onControlPlane(ctx context.Context, url string) (string, error) {
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: c.cp.DialContext}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	answer, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, answer.Status, text)
	}
	return string(text), err
}

// StartEtcdEgress starts our server and our agent between kube-apiserver and etcd, with mutual TLS: a token could not
// be judged before etcd is there.
func (c *Cluster) StartEtcdEgress(ctx context.Context) error {
	for name, l := range map[string]launch{
		"proxy-server": {name: "konnectivity-etcd-server", args: []string{"--mode=http-connect", "--uds-name=" + c.etcdSocket(),
			"--server-port=0", "--agent-port=" + etcdPort, "--admin-port=8143", "--health-port=" + etcdHealth,
			"--cluster-cert=" + c.pki.crt("apiserver"), "--cluster-key=" + c.pki.pem("apiserver"), "--cluster-ca-cert=" + c.pki.crt("ca")}},
		"proxy-agent": {name: "konnectivity-etcd-agent", args: []string{"--proxy-server-host=127.0.0.1", "--proxy-server-port=" + etcdPort,
			"--health-server-port=" + etcdAgentHealth, "--admin-server-port=8155", "--ca-cert=" + c.pki.crt("ca"),
			"--agent-cert=" + c.pki.crt("konnectivity-agent"), "--agent-key=" + c.pki.pem("konnectivity-agent")}},
	} {
		l.host, l.args = c.cp, append([]string{c.program(Tombolos, name)}, l.args...)
		p, err := c.rig.start(c.dir, l)
		if err != nil {
			return err
		}
		c.others = append(c.others, p)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return await(ctx, "wait for the way to etcd", nil, func(ctx context.Context) error {
		_, err := c.onControlPlane(ctx, "http://127.0.0.1:"+etcdHealth+"/readyz")
		return err
	})
}

// EtcdConnections is how many connections to etcd the server of StartEtcdEgress has.
func (c *Cluster) EtcdConnections(ctx context.Context) (string, error) {
	return c.metric(ctx, etcdHealth, "konnectivity_network_proxy_server_established_connections")
}

// KonnectivityAgents are the processes of agents of a program that run in pods on the node.
func (c *Cluster) KonnectivityAgents(whose Program) []int {
	found := map[int]bool{} // of cgroup v1 each hierarchy has them
	for _, dir := range cgroupDirs(c.node.cgroup) {
		for _, pid := range cgroupProcs(dir) {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if err != nil {
				continue // it ended meanwhile
			}
			first, _, _ := strings.Cut(string(text), "\x00")
			if first == map[Program]string{Tombolos: "/proxy-agent", References: "/reference"}[whose] {
				found[pid] = true
			}
		}
	}
	return slices.Collect(maps.Keys(found))
}

// KillKonnectivityAgents kills the agents of a program on the node, as kubelet does at the end of their grace.
func (c *Cluster) KillKonnectivityAgents(whose Program) {
	for _, pid := range c.KonnectivityAgents(whose) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended since
	}
}

// Shell runs a script beside the control plane as an administrator does, with the cluster's kubectl and the program
// under test, and returns what it printed.
func (c *Cluster) Shell(ctx context.Context, script string) (string, error) {
	return output(ctx, c.cp, "env", "PATH="+c.rig.bin+":"+filepath.Dir(c.rig.tombolo)+":"+os.Getenv("PATH"),
		"KUBECONFIG="+c.AdminKubeconfig(), "sh", "-euc", script)
}

// HTTP is a client of kube-apiserver that keeps its connections, as admin.
func (c *Cluster) HTTP() *http.Client {
	transport := c.client.Transport.(*http.Transport).Clone()
	transport.DisableKeepAlives, transport.MaxIdleConnsPerHost = false, 100
	return &http.Client{Transport: transport}
}
