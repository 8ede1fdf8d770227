// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// Member is a `tombolo discovery announce` that runs beside a control plane.
type Member struct {
	*Process
	Config string // path
	c      *Cluster
}

// StartMember runs `tombolo discovery announce` for a node, with the kubeconfig and what else stands in
// sources.kubernetes, and with what it announces. Its health port is on the control plane's loopback.
func (c *Cluster) StartMember(ctx context.Context, node, kubernetes, announce string, port int) (*Member, error) {
	dir := filepath.Join(c.dir, "member-"+node)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	secret, err := c.ClusterSecret(ctx)
	if err != nil {
		return nil, err
	}
	m := &Member{Config: filepath.Join(dir, "mesh.yaml"), c: c}
	if err := os.WriteFile(m.Config, fmt.Appendf(nil, `apiVersion: tombolo.dev/v1alpha1
kind: MeshConfig
cluster: {secretFiles: [%[1]q]}
node: {name: machine-%[2]s, stateDir: %[3]q, runDir: %[3]q}
healthListen: 127.0.0.1:%[4]d
announce: {%[5]s}
sources: {kubernetes: {%[6]s}}
`, secret, node, filepath.Join(dir, "state"), port, announce, kubernetes), 0o600); err != nil {
		return nil, err
	}
	proc, err := c.rig.start(dir, launch{name: "announce", host: c.cp, args: []string{c.rig.tombolo, "discovery", "announce", "--leave", "--config", m.Config}})
	if err != nil {
		return nil, err
	}
	c.others = append(c.others, proc)
	m.Process = proc
	return m, nil
}

// ClusterSecret is the file of the cluster's secret, which all members have.
func (c *Cluster) ClusterSecret(ctx context.Context) (string, error) {
	secret := filepath.Join(c.dir, "cluster.secret")
	if _, err := os.Stat(secret); err == nil {
		return secret, nil
	}
	if _, err := c.Tombolo(ctx, "discovery", "secret", "create", secret); err != nil {
		return "", err
	}
	text, err := os.ReadFile(secret)
	if err != nil {
		return "", err
	}
	return secret, runtest.Plant("the secret of a cluster", string(text))
}

// Members is what `tombolo discovery members` prints for the member's configuration.
func (m *Member) Members(ctx context.Context, args ...string) (string, error) {
	return m.c.Tombolo(ctx, append([]string{"discovery", "members", "--config", m.Config}, args...)...)
}

// Tombolo runs a verb of the program under test beside the control plane and returns what it printed.
func (c *Cluster) Tombolo(ctx context.Context, args ...string) (string, error) {
	return output(ctx, c.cp, append([]string{c.rig.tombolo}, args...)...)
}
