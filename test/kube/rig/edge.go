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
	"github.com/tombolo-io/tombolo/test/lab"
)

// Edge is a `tombolo edge` on the public network, and an office whose people use it.
type Edge struct {
	rig     *Rig
	dir     string
	machine *lab.Host
	office  *lab.Host
	proc    *Process
}

// EdgeName is the name of the cluster's kube-apiserver at an edge.
func (c *Cluster) EdgeName() string { return "api." + c.Name + ".test" }

// APIServer is where kube-apiserver listens.
func (c *Cluster) APIServer() string { return net.JoinHostPort(c.control, "6443") }

// StartEdge runs an edge without tenants, with the rules of a policy.
func (r *Rig) StartEdge(ctx context.Context, rules string) (*Edge, error) {
	begin := time.Now()
	e := &Edge{rig: r, dir: filepath.Join(r.Dir, "edge")}
	if err := os.MkdirAll(e.tenants(), 0o755); err != nil {
		return nil, err
	}
	var err error
	if e.machine, err = r.plug(ctx, "edge", "edge", EdgeAddress); err != nil {
		return nil, err
	}
	if e.office, err = r.plug(ctx, "office", "office", OfficeAddress); err != nil {
		return nil, err
	}
	config, policy := filepath.Join(e.dir, "edge.yaml"), filepath.Join(e.dir, "policy.yaml")
	text := "apiVersion: tombolo.dev/v1alpha1\nkind: AccessPolicy\n" + rules
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		return nil, err
	}
	if err := os.WriteFile(config, fmt.Appendf(nil, `apiVersion: tombolo.dev/v1alpha1
kind: EdgeConfig
runDir: %q
listeners: [{name: tls, listen: ':%s', protocol: tls}]
tenants: [%q]
policies: [%q]
audit: {path: %q}
`, e.dir, EdgePort, e.tenants(), policy, e.records()), 0o600); err != nil {
		return nil, err
	}
	args := []string{r.tombolo, "edge", "--config", config}
	if e.proc, err = r.start(e.dir, launch{name: "edge", host: e.machine, args: args}); err != nil {
		return nil, err
	}
	r.edge = e // from here on Close stops it
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := await(ctx, "wait for the edge", e.proc, e.ready); err != nil {
		return nil, err
	}
	r.step("edge is up at "+net.JoinHostPort(EdgeAddress, EdgePort), begin)
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
	path := c.kubeconfig("edge")
	server := "https://" + net.JoinHostPort(EdgeAddress, EdgePort)
	return c.kubectlWith(path, args), c.pki.kubeconfigBehind(path, server, c.EdgeName(), "admin")
}

// Kubectl runs kubectl in the office, through the edge.
func (e *Edge) Kubectl(ctx context.Context, c *Cluster, args ...string) (string, error) {
	return e.KubectlInput(ctx, nil, c, args...)
}

// KubectlInput is Kubectl with something on its standard input.
func (e *Edge) KubectlInput(ctx context.Context, in io.Reader, c *Cluster, args ...string) (string, error) {
	return e.kubectlAt(ctx, e.office, in, c, args)
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
	return e.office.Start(cmd)
}
