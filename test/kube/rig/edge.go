// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/edge"
	"github.com/tombolo-io/tombolo/test/lab"
)

// Edge is a `tombolo edge` on the public network, and an office whose people use it.
type Edge struct {
	EdgeOptions

	rig     *Rig
	dir     string
	machine *lab.Host
	proc    *Process
}

// EdgeOptions say what an edge is.
type EdgeOptions struct {
	Name       string
	Address    string // on the public network
	Rules      string // of its policy
	Kubernetes string // where it watches tenants, as its configuration has it; empty: tenants are files
}

// EdgeName is the name of the cluster's kube-apiserver at an edge.
func (c *Cluster) EdgeName() string { return "api." + c.Name + ".test" }

// APIServer is where kube-apiserver listens.
func (c *Cluster) APIServer() string { return net.JoinHostPort(c.control, "6443") }

// StartEdge runs an edge without tenants.
func (r *Rig) StartEdge(ctx context.Context, o EdgeOptions) (*Edge, error) {
	begin := time.Now()
	e := &Edge{EdgeOptions: o, rig: r, dir: filepath.Join(r.Dir, o.Name)}
	if err := os.MkdirAll(e.tenants(), 0o755); err != nil {
		return nil, err
	}
	var err error
	if e.machine, err = r.plug(ctx, o.Name, o.Name, o.Address); err != nil {
		return nil, err
	}
	if r.office == nil {
		if r.office, err = r.plug(ctx, "office", "office", OfficeAddress); err != nil {
			return nil, err
		}
	}
	config, policy := filepath.Join(e.dir, "edge.yaml"), filepath.Join(e.dir, "policy.yaml")
	text := "apiVersion: tombolo.dev/v1alpha1\nkind: AccessPolicy\n" + o.Rules
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		return nil, err
	}
	tenants := fmt.Sprintf("tenants: [%q]", e.tenants())
	if o.Kubernetes != "" {
		tenants = "kubernetes: " + o.Kubernetes
	}
	if err := os.WriteFile(config, fmt.Appendf(nil, `apiVersion: tombolo.dev/v1alpha1
kind: EdgeConfig
runDir: %q
listeners: [{name: tls, listen: ':%s', protocol: tls}]
%s
policies: [%q]
audit: {path: %q}
`, e.dir, EdgePort, tenants, policy, e.records()), 0o600); err != nil {
		return nil, err
	}
	args := []string{r.tombolo, "edge", "--config", config}
	if e.proc, err = r.start(e.dir, launch{name: o.Name, host: e.machine, args: args}); err != nil {
		return nil, err
	}
	r.edges = append(r.edges, e) // from here on Close stops it
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := await(ctx, "wait for "+o.Name, e.proc, e.ready); err != nil {
		return nil, err
	}
	r.step(o.Name+" is up at "+net.JoinHostPort(o.Address, EdgePort), begin)
	return e, nil
}

func (e *Edge) tenants() string { return filepath.Join(e.dir, "tenants") }
func (e *Edge) records() string { return filepath.Join(e.dir, "audit.jsonl") }

func (e *Edge) ready(ctx context.Context) error {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: e.machine.DialContext}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:8447/readyz", nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the edge says %s", answer.Status)
	}
	return nil
}

// Status is what the edge tells those on its machine.
func (e *Edge) Status(ctx context.Context) (st admin.EdgeStatus, err error) {
	err = admin.OverSocket(edge.AdminSocket(e.dir)).Call(ctx, http.MethodGet, "/v1/status", nil, &st)
	return st, err
}

// Log is the end of what the edge wrote.
func (e *Edge) Log() string { return e.proc.Tail() }

// Tenant makes a cluster reachable by a name, or changes how it is reached. The file is swapped as a whole.
func (e *Edge) Tenant(name, host, upstream string) error {
	path := filepath.Join(e.tenants(), name+".yaml")
	text := fmt.Appendf(nil, `apiVersion: tombolo.dev/v1alpha1
kind: EdgeTenant
metadata: {name: %s}
spec:
  protected: true
  ways: [{flow: api, names: [%q], upstreams: [%q]}]
`, name, host, upstream)
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// Serve makes a cluster's kube-apiserver reachable by its name.
func (e *Edge) Serve(c *Cluster) error {
	return e.Tenant(c.Name, c.EdgeName(), c.APIServer())
}

// Remove takes a tenant away.
func (e *Edge) Remove(name string) error { return os.Remove(filepath.Join(e.tenants(), name+".yaml")) }

// Records are those of tunnels and refusals, as far as they are written.
func (e *Edge) Records() (out []audit.Record, err error) {
	data, err := os.ReadFile(e.records())
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(data) {
		var r audit.Record
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// kubectlArgs is the command line of kubectl against a cluster by way of the edge: it dials the edge, says the
// cluster's name, and wants that name in kube-apiserver's own certificate.
func (e *Edge) kubectlArgs(c *Cluster, args []string) ([]string, error) {
	path := c.kubeconfig(e.Name + "-office") // the edge may have a kubeconfig of its own name
	server := "https://" + net.JoinHostPort(e.Address, EdgePort)
	return c.kubectlWith(path, args), c.pki.kubeconfigBehind(path, server, c.EdgeName(), "admin")
}

// Kubectl runs kubectl in the office, through the edge.
func (e *Edge) Kubectl(ctx context.Context, c *Cluster, args ...string) (string, error) {
	return e.KubectlInput(ctx, nil, c, args...)
}

// KubectlInput is Kubectl with something on its standard input.
func (e *Edge) KubectlInput(ctx context.Context, in io.Reader, c *Cluster, args ...string) (string, error) {
	return e.kubectlAt(ctx, e.rig.office, in, c, args)
}

// KubectlElsewhere runs kubectl on the hub's machine, through the edge.
func (e *Edge) KubectlElsewhere(ctx context.Context, c *Cluster, args ...string) (string, error) {
	return e.kubectlAt(ctx, e.rig.hubHost, nil, c, args)
}

func (e *Edge) kubectlAt(
	ctx context.Context, host *lab.Host, in io.Reader, c *Cluster, args []string,
) (string, error) {
	line, err := e.kubectlArgs(c, args)
	if err != nil {
		return "", err
	}
	return outputOf(ctx, host, in, line...)
}

// StartKubectl starts a kubectl in the office that continues until it is stopped or ctx ends.
func (e *Edge) StartKubectl(ctx context.Context, out io.Writer, c *Cluster, args ...string) (*lab.Process, error) {
	line, err := e.kubectlArgs(c, args)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = out, out, 5*time.Second
	return e.rig.office.Start(cmd)
}
