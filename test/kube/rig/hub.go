// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// Hub is the Tombolo hub that all clusters of a rig share.
type Hub struct {
	rig  *Rig
	dir  string
	proc *Process
}

// StartHub runs `tombolo hub` in its namespace on the public network.
func (r *Rig) StartHub(ctx context.Context) (*Hub, error) {
	begin := time.Now()
	if _, err := os.Stat(r.tombolo); err != nil {
		return nil, fmt.Errorf("the program under test is missing: %w (run `make build`)", err)
	}
	h := &Hub{rig: r, dir: filepath.Join(r.Dir, "hub")}
	if err := os.Mkdir(h.dir, 0o755); err != nil {
		return nil, err
	}
	if err := h.Configure(""); err != nil {
		return nil, err
	}
	proc, err := r.start(h.dir, launch{name: "hub", host: r.hubHost, args: []string{r.tombolo, "hub", "--config", h.config(),
		"--state-dir", filepath.Join(h.dir, "state"), "--run-dir", h.runDir(),
		"--listen", ":" + HubPort, "--advertise", HubAddress + ":" + HubPort}})
	if err != nil {
		return nil, err
	}
	h.proc = proc
	r.hub = h // from here on Close stops it
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := await(ctx, "wait for the hub", proc, func(ctx context.Context) error {
		_, err := h.Tombolo(ctx, "status", "-o", "json")
		return err
	}); err != nil {
		return nil, err
	}
	r.step("hub is up at "+HubAddress+":"+HubPort, begin)
	return h, nil
}

// Configure has the hub take over further fields of a HubConfig, in YAML.
func (h *Hub) Configure(fields string) error {
	text := "apiVersion: tombolo.dev/v1alpha1\nkind: HubConfig\n" + fields
	return os.WriteFile(h.config(), []byte(text), 0o600)
}

func (h *Hub) config() string { return filepath.Join(h.dir, "hub.yaml") }

func (h *Hub) runDir() string { return filepath.Join(h.dir, "run") }

// HubLog is the end of what the hub wrote.
func (r *Rig) HubLog() string {
	if r.hub == nil {
		return "no hub was started"
	}
	return r.hub.proc.Tail()
}

// Tombolo runs a verb of the program under test beside the hub and returns what it printed.
func (h *Hub) Tombolo(ctx context.Context, args ...string) (string, error) {
	return output(ctx, h.rig.hubHost, append([]string{"env",
		"TOMBOLO_ADMIN_SOCKET=" + filepath.Join(h.runDir(), "admin/hub.sock"), h.rig.tombolo}, args...)...)
}

// join makes a token for a cluster, which also registers it, and returns the join line.
func (h *Hub) join(ctx context.Context, cluster string, uses int) (string, error) {
	text, err := h.Tombolo(ctx, "token", "create", "--cluster", cluster, "--uses", fmt.Sprint(uses), "-o", "json")
	if err != nil {
		return "", err
	}
	var token struct {
		Join string `json:"join"`
	}
	if err := json.Unmarshal([]byte(text), &token); err != nil {
		return "", fmt.Errorf("tombolo token create printed no JSON: %w: %q", err, text)
	}
	if token.Join == "" {
		return "", errors.New("tombolo token create printed no join line: " + text)
	}
	line, err := trust.ParseJoin(token.Join)
	if err != nil {
		return "", err
	}
	return token.Join, runtest.Plant("the secret of a join token", line.Secret)
}
