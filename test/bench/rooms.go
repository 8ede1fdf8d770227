// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/stream/agent"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity"
	"github.com/tombolo-io/tombolo/test/roles"
)

// The product's own hub and agent, each in a process of its own, with the log
// level and the configuration that they have by default.

// roomArgs start a hub or an agent.
type roomArgs struct {
	Dir  string `json:"dir"`            // for state, sockets and the log
	Join string `json:"join,omitempty"` // of an agent
}

// cluster is the one cluster of the chain.
const cluster = "c1"

// ownAddress is an address on loopback that only this process uses.
func ownAddress(port int) string {
	pid := os.Getpid()
	return net.JoinHostPort(fmt.Sprintf("127.%d.%d.%d", 64+pid>>16&63, pid>>8&255, pid&255), fmt.Sprint(port))
}

// logTo makes the log of a room, a file beside its state: what it says is for
// whoever asks why a run failed.
func logTo(dir, name string) (*slog.Logger, error) {
	f, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return slog.New(slog.NewTextHandler(f, nil)), nil
}

// hubRoom is the role of a hub.
type hubRoom struct {
	traffic
	admin *admin.Client
}

func (r *hubRoom) counters() *traffic { return &r.traffic }

func (r *hubRoom) do(op string, raw json.RawMessage) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), roles.Patience)
	defer cancel()
	switch op {
	case opStart:
		return r.start(ctx, raw)
	case opConnections:
		return r.connections(ctx)
	}
	return nil, roles.ErrUnknown
}

// connections counts those of the sessions of all agents.
func (r *hubRoom) connections(ctx context.Context) (n int, err error) {
	var st admin.Status
	if err := r.admin.Call(ctx, "GET", "/v1/status?cluster="+cluster, nil, &st); err != nil {
		return 0, err
	}
	for _, c := range st.Clusters {
		for _, a := range c.Agents {
			n += a.Connections
		}
	}
	return n, nil
}

func (r *hubRoom) start(ctx context.Context, raw json.RawMessage) (any, error) {
	args, err := roles.Arguments[roomArgs](raw)
	if err != nil {
		return nil, err
	}
	log, err := logTo(args.Dir, "hub")
	if err != nil {
		return nil, err
	}
	listen := ownAddress(8443)
	text := fmt.Sprintf("apiVersion: tombolo.dev/v1alpha1\nkind: HubConfig\nstateDir: %[1]s/hub\nrunDir: %[1]s/run\n"+
		"listen: %[2]q\nadvertise: [%[2]q]\nadmin: {listen: %[3]q}\nlimits: {cluster: {dialsPerSecond: none}}\n"+
		"clusters: [{name: %[4]s, sockets: [{protocol: connect}, {protocol: konnectivity}]}]\n",
		args.Dir, listen, ownAddress(8444), cluster)
	cfg, err := hub.ParseConfig("hub.yaml", []byte(text))
	if err != nil {
		return nil, err
	}
	cfg.Version = "bench"
	h, err := hub.New(cfg, hub.Options{
		Log: log, Reg: prometheus.NewRegistry(),
		Extra: map[string]hub.Frontend{hub.ProtocolKonnectivity: konnectivity.New(log)},
	})
	if err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- h.Run(context.Background(), context.Background()) }()
	select {
	case <-h.Ready():
	case err := <-ended:
		return nil, errors.Join(errors.New("the hub did not start"), err)
	}
	r.admin = admin.OverSocket(hub.AdminSocket(cfg.RunDir))
	var token admin.Token
	err = r.admin.Call(ctx, "POST", "/v1/tokens",
		admin.TokenRequest{Cluster: cluster, TTLSeconds: 600, Uses: 1}, &token)
	return started{Address: listen, Join: token.Join, Socket: filepath.Join(cfg.RunDir, "clusters", cluster)}, err
}

// agentRoom is the role of an agent.
type agentRoom struct{ traffic }

func (r *agentRoom) counters() *traffic { return &r.traffic }

func (r *agentRoom) do(op string, raw json.RawMessage) (any, error) {
	if op != opStart {
		return nil, roles.ErrUnknown
	}
	args, err := roles.Arguments[roomArgs](raw)
	if err != nil {
		return nil, err
	}
	log, err := logTo(args.Dir, "agent")
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("apiVersion: tombolo.dev/v1alpha1\nkind: AgentConfig\nstateDir: %s/agent\nhealthListen: %q\n"+
		"allow: [127.0.0.0/24]\n", args.Dir, ownAddress(8445))
	cfg, err := agent.ParseConfig("agent.yaml", []byte(text))
	if err != nil {
		return nil, err
	}
	cfg.Join, cfg.Version = args.Join, "bench"
	a := agent.New(cfg, agent.Options{Log: log, Reg: prometheus.NewRegistry()})
	ended := make(chan error, 1)
	go func() { ended <- a.Run(context.Background(), context.Background()) }()
	return started{}, awaitReady(a.Ready, ended)
}

// awaitReady waits until an agent holds a session.
func awaitReady(ready func() bool, ended <-chan error) error {
	deadline := time.NewTimer(roles.Patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ready() {
		select {
		case <-tick.C:
		case err := <-ended:
			return errors.Join(errors.New("the agent ended"), err)
		case <-deadline.C:
			return fmt.Errorf("the agent has no session after %v", roles.Patience)
		}
	}
	return nil
}
