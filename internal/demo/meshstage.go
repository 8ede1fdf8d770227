// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/tombolo-io/tombolo/internal/demo/network"
)

// meshWithin bounds each wait of the mesh's story; a path that was cut is tried again
// within half of it.
const meshWithin = 30 * time.Second

// echoPort is where every machine gives back what it gets.
const echoPort = 7

// States of a peer, as tombolo mesh status has them.
const (
	direct  = "direct"
	relayed = "relayed"
)

// member is a node of the mesh.
type member struct {
	*node
	home               *network.Home
	dir                string
	wire               *network.Capture // of its cable
	overlay4, overlay6 netip.Addr
}

// meshStatus is what the demo reads of tombolo mesh status -o json.
type meshStatus struct {
	Overlay4 string     `json:"overlay4"`
	Overlay6 string     `json:"overlay6"`
	Peers    []meshPeer `json:"peers"`
}

type meshPeer struct {
	Node  string `json:"node"`
	State string `json:"state"`
	Why   string `json:"why"`
	Path  string `json:"path"`
}

// startServices starts hub and discovery service on the internet, and makes the
// cluster's secret.
func (m *meshPlay) startServices(ctx context.Context) (string, error) {
	s := m.stage
	s.listen, s.admin = network.HubAddr+":443", "127.0.0.1:8444"
	s.hub, m.discovery = s.node("hub", m.homes.Hub), s.node("discovery", m.homes.Other)
	state := filepath.Join(s.dir, "hub")
	s.hub.args = []string{
		"hub", "--state-dir", state, "--run-dir", s.runDir(), "--listen", s.listen, "--advertise", s.listen,
		"--admin-listen", s.admin,
	}
	config, err := s.write("discovery.yaml", map[string]any{
		"apiVersion": "tombolo.dev/v1alpha1", "kind": "DiscoveryConfig",
		"stateDir": filepath.Join(s.dir, "discovery"), "runDir": filepath.Join(s.dir, "discovery-run"),
		"listen": network.OtherAddr + ":443",
		"stun":   map[string]any{"listen": network.OtherAddr + ":443", "second": "none"},
	})
	if err != nil {
		return "", err
	}
	m.discovery.args = []string{"discovery", "--config", config}
	if err := errors.Join(s.start(s.hub), s.start(m.discovery)); err != nil {
		return "", err
	}
	err = until(ctx, s.hub, startWithin, func(ctx context.Context) error {
		ca, err := os.ReadFile(filepath.Join(state, "ca.crt"))
		if err != nil {
			return err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(ca) {
			return errors.New("the hub's ca.crt holds no certificate")
		}
		return ready(ctx, s.hub.host, "https://"+s.admin+"/readyz", pool)
	})
	if err != nil {
		return "", fmt.Errorf("waiting for the hub: %w", err)
	}
	if err := until(ctx, m.discovery, startWithin, m.learnPin); err != nil {
		return "", fmt.Errorf("waiting for the discovery service: %w", err)
	}
	m.secret = filepath.Join(s.dir, "cluster.secret")
	if _, err := s.tombolo(ctx, "discovery", "secret", "create", m.secret); err != nil {
		return "", err
	}
	return "both listen on port 443; the discovery service sees sealed bytes only, the relay ciphertext", nil
}

// learnPin asks the discovery service for the pin of its CA.
func (m *meshPlay) learnPin(ctx context.Context) error {
	socket := filepath.Join(m.stage.dir, "discovery-run", "discovery", "discovery.sock")
	printed, err := m.stage.tomboloAt(ctx, m.discovery.host, nil, "discovery", "status", "--admin-socket", socket, "-o",
		"json")
	if err != nil {
		return err
	}
	var status struct {
		CAPin string `json:"caPin"`
	}
	err = json.Unmarshal([]byte(printed), &status)
	if err == nil && status.CAPin == "" {
		err = errors.New("tombolo discovery status printed no pin")
	}
	m.pin = status.CAPin
	return err
}

// write makes a configuration file. JSON is YAML, too; YAML is easier to read.
func (s *stage) write(name string, config any) (string, error) {
	text, err := yaml.Marshal(config)
	if err != nil {
		return "", err
	}
	path := filepath.Join(s.dir, name)
	return path, os.WriteFile(path, text, 0o600)
}

func (m *meshPlay) startMembers(ctx context.Context) (string, error) {
	for _, home := range m.homes.All {
		if err := m.startMember(ctx, home); err != nil {
			return "", err
		}
	}
	var said []string
	for _, x := range m.members {
		err := until(ctx, x.node, startWithin, func(ctx context.Context) error { return m.learnAddresses(ctx, x) })
		if err != nil {
			return "", fmt.Errorf("waiting for node %s: %w", x.name, err)
		}
		said = append(said, fmt.Sprintf("%s is %s and %s", x.name, x.overlay4, x.overlay6))
	}
	return "each joined with a one-time token, and has addresses of the mesh:\n" + strings.Join(said, "\n"), nil
}

func (m *meshPlay) startMember(ctx context.Context, home *network.Home) error {
	s, name := m.stage, home.Host.Name()
	x := &member{node: s.node(name, home.Host), home: home, dir: filepath.Join(s.dir, "node-"+name)}
	m.members = append(m.members, x)
	printed, err := s.tombolo(ctx, "token", "create", "--cluster", "c1", "--node="+name, "-o", "json")
	if err != nil {
		return err
	}
	var token struct {
		Join string `json:"join"`
	}
	if err := json.Unmarshal([]byte(printed), &token); err != nil {
		return fmt.Errorf("reading what tombolo token create printed: %w", err)
	}
	join := filepath.Join(s.dir, name+".join")
	if err := os.WriteFile(join, []byte(token.Join+"\n"), 0o600); err != nil {
		return err
	}
	config, err := s.write(name+".yaml", map[string]any{
		"apiVersion": "tombolo.dev/v1alpha1", "kind": "MeshConfig",
		"cluster": map[string]any{"secretFiles": []string{m.secret}},
		"node": map[string]any{"name": name, "stateDir": filepath.Join(x.dir, "state"),
			"runDir": filepath.Join(x.dir, "run")},
		"sources": map[string]any{"services": []any{map[string]any{"url": "https://" + network.OtherAddr + ":443",
			"pin": m.pin}}},
		"healthListen": "127.0.0.1:8448",
		"mesh":         map[string]any{"join": "@" + join},
	})
	if err != nil {
		return err
	}
	if x.wire, err = home.Router.Capture(name); err != nil {
		return err
	}
	if err := home.Host.Echo(echoPort); err != nil {
		return err
	}
	x.args = []string{"mesh", "--config", config}
	return s.start(x.node)
}

// learnAddresses asks a node for its own addresses, which it has when it is up.
func (m *meshPlay) learnAddresses(ctx context.Context, x *member) error {
	log, err := os.ReadFile(x.logPath)
	if err != nil {
		return err
	}
	if !strings.Contains(string(log), "mesh is up") {
		return errors.New("it is not up yet")
	}
	status, err := m.statusOf(ctx, x)
	if err != nil {
		return err
	}
	var err4, err6 error
	x.overlay4, err4 = addrOf(status.Overlay4)
	x.overlay6, err6 = addrOf(status.Overlay6)
	return errors.Join(err4, err6)
}

// addrOf reads an address, with or without a length.
func addrOf(text string) (netip.Addr, error) {
	text, _, _ = strings.Cut(text, "/")
	return netip.ParseAddr(text)
}

// verb runs tombolo mesh with arguments beside a node.
func (m *meshPlay) verb(ctx context.Context, x *member, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, meshWithin+fetchWithin)
	defer cancel()
	socket := "TOMBOLO_MESH_SOCKET=" + filepath.Join(x.dir, "run", "mesh", "mesh.sock")
	return m.stage.tomboloAt(ctx, x.host, []string{socket}, append([]string{"mesh"}, args...)...)
}

func (m *meshPlay) statusOf(ctx context.Context, x *member) (meshStatus, error) {
	var status meshStatus
	printed, err := m.verb(ctx, x, "status", "-o", "json")
	if err != nil {
		return status, err
	}
	if err := json.Unmarshal([]byte(printed), &status); err != nil {
		return status, fmt.Errorf("reading what tombolo mesh status printed: %w", err)
	}
	return status, nil
}

// peerOf is what a node says of another one.
func (m *meshPlay) peerOf(ctx context.Context, x, other *member) (meshPeer, error) {
	status, err := m.statusOf(ctx, x)
	if err != nil {
		return meshPeer{}, err
	}
	for _, p := range status.Peers {
		if p.Node == other.name {
			return p, nil
		}
	}
	return meshPeer{}, fmt.Errorf("%s does not know %s", x.name, other.name)
}

// awaitState waits until two nodes have each other in a state.
func (m *meshPlay) awaitState(ctx context.Context, one, other *member, state string) error {
	for _, of := range [][2]*member{{one, other}, {other, one}} {
		err := until(ctx, of[0].node, meshWithin, func(ctx context.Context) error {
			p, err := m.peerOf(ctx, of[0], of[1])
			if err == nil && p.State != state {
				err = fmt.Errorf("%s has %s %s: %s", of[0].name, of[1].name, p.State, p.Why)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
