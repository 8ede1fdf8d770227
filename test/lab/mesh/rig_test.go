// SPDX-License-Identifier: Apache-2.0

//go:build lab

// Package mesh tests `tombolo mesh` as users run it: the program itself, as root, in
// every kind of place that there is, with a hub and a discovery service on the
// internet. It looks at nothing but what users see: the verbs, the packets that come
// through, and what a listener on the wire hears.
package mesh

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/discovery/announce"
	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == withoutNftables {
		os.Exit(runWithoutNftables(os.Args[2:]))
	}
	os.Exit(labtest.MainWithProgram(m))
}

// patience bounds what must happen; nobody waits so long unless it does not.
const patience = 40 * time.Second * slowness

// stopGrace is for a graceful end: leaving discovery, taking everything away.
const stopGrace = 20 * time.Second

// cluster is the name of the nodes' cluster at the hub.
const cluster = "c1"

// rig is a world with a hub and a discovery service, each on a public server and port
// 443, as places need it that let nothing else out; and nodes in its places.
type rig struct {
	t         *testing.T
	lab       *lab.Lab
	grid      *lab.Grid
	dir       string
	program   string
	hub       *role
	discovery *role
	pin       string // of the discovery service's CA
	secret    string // file of the cluster's
	nodes     []*node
}

// role is a program of the rig that can be started again with the same arguments.
type role struct {
	name   string
	host   *lab.Host
	args   []string
	within []string // a program, with arguments, that starts the program
	log    string

	confined *lab.Confinement // nil: it is root with all rights
	process  *lab.Process
}

// ofPair is the rig of a pair of places.
func ofPair(t *testing.T, pair lab.Pair) *rig {
	t.Helper()
	l := labtest.New(t, "mesh")
	g, err := lab.NewGrid(l, pair)
	if err != nil {
		t.Fatal(err)
	}
	return newRig(t, l, g)
}

// ofPlaces is the rig of several places, apart.
func ofPlaces(t *testing.T, kinds ...string) *rig {
	t.Helper()
	l := labtest.New(t, "mesh")
	var list []lab.Kind
	for _, name := range kinds {
		list = append(list, kind(t, name))
	}
	g, err := lab.NewPlaces(l, list...)
	if err != nil {
		t.Fatal(err)
	}
	return newRig(t, l, g)
}

func kind(t testing.TB, name string) lab.Kind {
	t.Helper()
	k, ok := lab.KindOf(name)
	if !ok {
		t.Fatalf("there is no kind %q", name)
	}
	return k
}

func newRig(t *testing.T, l *lab.Lab, g *lab.Grid) *rig {
	t.Helper()
	r := bareRig(t, l, g)
	r.startDiscovery()
	r.startHub()
	return r
}

// bareRig has no hub and no discovery service.
func bareRig(t *testing.T, l *lab.Lab, g *lab.Grid) *rig {
	t.Helper()
	dir, err := l.Dir()
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, lab: l, grid: g, dir: dir, program: labtest.Program(t), secret: filepath.Join(dir, "cluster.secret")}
	t.Cleanup(func() {
		r.handOver()
		if t.Failed() {
			r.tellLogs()
		}
	})
	r.verb(nil, "discovery", "secret", "create", r.secret)
	r.plantFile("the cluster's secret", r.secret)
	return r
}

// step is a part of a test, whose failures are its own.
func (r *rig) step(name string, do func(*testing.T)) bool {
	outer := r.t
	return outer.Run(name, func(t *testing.T) {
		r.t = t
		defer func() { r.t = outer }()
		do(t)
	})
}

// startHub starts the hub, again if it ran before, and waits until it is ready.
func (r *rig) startHub() {
	r.t.Helper()
	state := filepath.Join(r.dir, "hub")
	if r.hub == nil {
		r.hub = r.role("hub", r.grid.Hub, "hub", "--state-dir", state, "--run-dir", filepath.Join(r.dir, "hub-run"), "--listen", ":443",
			"--advertise", hubAt4, "--advertise", hubAt6, "--log-level", "debug")
	}
	r.start(r.hub)
	r.eventually("the hub is ready", r.hub, func() error { return labtest.HubReady(r.hub.host, state) })
}

// startDiscovery starts the discovery service, again if it ran before. It stands
// where the grid's second STUN server does, and has another second port.
func (r *rig) startDiscovery() {
	r.t.Helper()
	run := filepath.Join(r.dir, "discovery-run")
	if r.discovery == nil {
		config := r.write("discovery.yaml", fmt.Sprintf(`apiVersion: tombolo.dev/v1alpha1
kind: DiscoveryConfig
stateDir: %s
runDir: %s
listen: ":443"
stun:
  listen: ":443"
  second: ":3480"
log:
  level: debug
`, filepath.Join(r.dir, "discovery"), run))
		r.discovery = r.role("discovery", r.grid.Other, "discovery", "--config", config)
	}
	r.start(r.discovery)
	r.eventually("the discovery service is ready", r.discovery, func() error {
		var status struct{ CAPin string }
		out, err := r.run(r.discovery.host, "discovery", "status", "--admin-socket", filepath.Join(run, "discovery", "discovery.sock"), "-o", "json")
		if err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(out), &status); err != nil || status.CAPin == "" {
			return fmt.Errorf("no pin in its status: %v", err)
		}
		r.pin = status.CAPin
		return nil
	})
}

// The addresses of the services.
const (
	hubAt4       = lab.HubAddr + ":443"
	hubAt6       = "[" + lab.HubAddr6 + "]:443"
	discoveryAt4 = "https://" + lab.OtherAddr + ":443"
	discoveryAt6 = "https://[" + lab.OtherAddr6 + "]:443"
)

func (r *rig) role(name string, host *lab.Host, args ...string) *role {
	return &role{name: name, host: host, args: args, log: filepath.Join(r.dir, name+".log")}
}

// start starts a program as root, or confined; what it says is appended to its log.
func (r *rig) start(x *role) {
	r.t.Helper()
	x.process = labtest.Start(r.t, x.host, x.log, x.confined, slices.Concat(x.within, []string{r.program}, x.args)...)
}

// verb runs a verb of the program, on a host of the lab or on this machine.
func (r *rig) verb(h *lab.Host, args ...string) string {
	r.t.Helper()
	out, err := r.run(h, args...)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

func (r *rig) run(h *lab.Host, args ...string) (string, error) {
	return r.command(h, nil, r.program, args...)
}

// command runs any program, with more in its environment, and returns what it prints.
func (r *rig) command(h *lab.Host, env []string, program string, args ...string) (string, error) {
	if h == nil {
		h = r.lab.Here()
	}
	return labtest.Run(h, patience+stopGrace, env, program, args...)
}

// write makes a file of the rig that nobody else reads.
func (r *rig) write(name, text string) string {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// plantFile tells the suite of a secret in a file.
func (r *rig) plantFile(what, path string) {
	r.t.Helper()
	text, err := os.ReadFile(path)
	if err = errors.Join(err, runtest.Plant(what, string(text))); err != nil {
		r.t.Error(err)
	}
}

// eventually asks until it gets nil; it gives up when the program has ended.
func (r *rig) eventually(what string, x *role, ask func() error) time.Duration {
	r.t.Helper()
	var p *lab.Process
	if x != nil {
		p = x.process
	}
	return labtest.Eventually(r.t, what, patience, p, ask)
}

// handOver gives what was logged to the suite, which looks for secrets in it, and
// the secrets that nodes have made since.
func (r *rig) handOver() {
	for _, n := range r.nodes {
		for _, key := range []string{"wireguard.key", "ipsec.key", "member.key"} {
			if path := filepath.Join(n.dir, "state", key); exists(path) {
				r.plantFile(key+" of a node", path)
			}
		}
	}
	labtest.HandOver(r.t, r.dir)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// tellLogs shows the ends of the logs of a failed test, and what nodes say of
// themselves.
func (r *rig) tellLogs() {
	labtest.TellLogs(r.t, r.dir)
	const end = 60 // lines
	for _, n := range r.nodes {
		if !n.runs() {
			continue
		}
		out, err := n.verb("status")
		lines := strings.Split(strings.TrimSpace(out), "\n") // of a large mesh, too
		r.t.Logf("--- tombolo mesh status of %s (%v), %d lines\n%s", n.name, err, len(lines), strings.Join(lines[:min(len(lines), end)], "\n"))
		// This merges anew: who is here and not in the status was lost on the way.
		socket := "TOMBOLO_ANNOUNCE_SOCKET=" + announce.AdminSocket(filepath.Join(n.dir, "run"))
		out, err = r.command(n.host, []string{socket}, r.program, "discovery", "members")
		lines = strings.Split(strings.TrimSpace(out), "\n")
		r.t.Logf("--- tombolo discovery members at %s (%v), %d lines\n%s", n.name, err, len(lines), strings.Join(lines[:min(len(lines), end)], "\n"))
	}
}
