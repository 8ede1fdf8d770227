// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/tombolo-io/tombolo/internal/mesh"
	"github.com/tombolo-io/tombolo/test/lab"
)

// Machine is a host on the wan that runs `tombolo mesh` for a Node.
type Machine struct {
	*Process
	Address string
	c       *Cluster
	host    *lab.Host
	dir     string
}

// machineHealth is where a machine's health port is, on all its addresses: so others can ask it through the mesh.
const machineHealth = "8448"

// StartMachine makes the n-th machine of the wan (from 0) and runs `tombolo mesh` on it: a member by what
// stands in sources.kubernetes, and by nothing else.
func (c *Cluster) StartMachine(ctx context.Context, node string, n int, kubernetes string) (*Machine, error) {
	m := &Machine{Address: fmt.Sprintf("203.0.113.%d", 200+n), c: c, dir: filepath.Join(c.dir, "machine-"+node)}
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		return nil, err
	}
	var err error
	if m.host, err = c.rig.plug(ctx, node, node, m.Address); err != nil {
		return nil, err
	}
	// A socket needs some route to get to where its packets are marked.
	if err := batch(ctx, m.host, "route add default dev wan0"); err != nil {
		return nil, err
	}
	secret, err := c.ClusterSecret(ctx)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(m.dir, "mesh.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, `apiVersion: tombolo.dev/v1alpha1
kind: MeshConfig
cluster: {secretFiles: [%q]}
node: {name: %s, stateDir: %q, runDir: %q}
healthListen: ":%s"
announce: {podRanges: true}
sources: {kubernetes: {%s}}
mesh: {portMapping: false}
`, secret, node, filepath.Join(m.dir, "state"), filepath.Join(m.dir, "run"), machineHealth, kubernetes), 0o600); err != nil {
		return nil, err
	}
	m.Process, err = c.rig.start(m.dir, launch{name: "mesh", host: m.host, args: []string{c.rig.tombolo, "mesh", "--config", config}})
	if err != nil {
		return nil, err
	}
	c.others = append(c.others, m.Process)
	return m, nil
}

// Status is what `tombolo mesh status` says on the machine.
func (m *Machine) Status(ctx context.Context) (mesh.Status, error) {
	var s mesh.Status
	text, err := output(ctx, m.host, m.c.rig.tombolo, "mesh", "status", "-o", "json", "--admin-socket", mesh.AdminSocket(filepath.Join(m.dir, "run")))
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal([]byte(text), &s)
}

// Pods gives the machine the first address of a range, as a network plugin does.
func (m *Machine) Pods(ctx context.Context, of netip.Prefix) (netip.Addr, error) {
	a := of.Addr().Next()
	return a, batch(ctx, m.host, "link add cni0 type bridge", fmt.Sprintf("addr add %s/%d dev cni0", a, of.Bits()), "link set cni0 up")
}

// Asks asks the program at an address for its health, from this machine.
func (m *Machine) Asks(ctx context.Context, a netip.Addr) error {
	_, err := m.Gets(ctx, "http://"+net.JoinHostPort(a.String(), machineHealth)+"/livez")
	return err
}

// Gets is what is answered at a URL, asked from this machine, within two seconds.
func (m *Machine) Gets(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: m.host.DialContext}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	answer, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}
