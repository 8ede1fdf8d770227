// SPDX-License-Identifier: Apache-2.0

//go:build lab

// Package product tests the tombolo program in networks of namespaces: as
// processes with no rights, over partitions, with killed hubs and agents.
package product

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

func TestMain(m *testing.M) { os.Exit(labtest.MainWithProgram(m)) }

// user is who runs hubs and agents: nobody special (and what kube-apiserver
// images use).
const user = 65532

// Bounds that only a defect meets, also on a busy machine.
const (
	startWithin     = 15 * time.Second
	reconnectWithin = 30 * time.Second
	greeting        = "hello from "
)

// rig is one hub, and agents in the sites of a world.
type rig struct {
	t       *testing.T
	lab     *lab.Lab
	world   *lab.World
	dir     string
	program string
	hub     *role
}

// role is a hub or an agent that can be started again with the same arguments.
type role struct {
	host     *lab.Host
	args     []string
	log      string
	writable []string
	hosts    string // its /etc/hosts, if that is not the machine's
	process  *lab.Process
}

func newRig(t *testing.T, word string, sites, agents int) *rig {
	t.Helper()
	l, w := labtest.World(t, word, sites, agents)
	dir, err := l.Dir()
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, lab: l, world: w, dir: dir, program: labtest.Program(t)}
	for i, site := range w.Sites {
		r.serve(site.Backend, lab.BackendAddr+":7000", clusterOf(i))
	}
	t.Cleanup(func() {
		if t.Failed() {
			labtest.TellLogs(t, dir)
		}
		labtest.HandOver(t, dir)
	})
	return r
}

// clusterOf names the cluster of a site.
func clusterOf(site int) string { return fmt.Sprintf("c%d", site+1) }

// serve greets with the cluster's name and echoes what it gets.
func (r *rig) serve(h *lab.Host, addr, cluster string) {
	r.t.Helper()
	listener, err := h.Listen("tcp", addr)
	if err != nil {
		r.t.Fatal(err)
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				fmt.Fprintf(conn, "%s%s\n", greeting, cluster)
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
}

// directory makes a directory that the unprivileged user owns.
func (r *rig) directory(name string) string {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := errors.Join(os.Mkdir(path, 0o700), os.Chown(path, user, user)); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// start starts a role: without rights, on a read-only root.
func (r *rig) start(x *role) {
	r.t.Helper()
	confined := &lab.Confinement{UID: user, GID: user, Writable: x.writable, Hosts: x.hosts}
	x.process = labtest.Start(r.t, x.host, x.log, confined, append([]string{r.program}, x.args...)...)
}

// startHub starts the hub in the control plane and waits until it is ready.
func (r *rig) startHub() {
	r.t.Helper()
	if r.hub == nil {
		state, run := r.directory("hub"), r.directory("run")
		r.hub = &role{
			host: r.world.Control, log: filepath.Join(r.dir, "hub.log"), writable: []string{state, run},
			args: []string{
				"hub", "--state-dir", state, "--run-dir", run, "--log-level", "debug",
				"--listen", ":8443", "--advertise", lab.ControlAddr + ":8443",
			},
		}
	}
	r.start(r.hub)
	r.eventually("the hub is ready", startWithin, r.hub, func() error { return labtest.HubReady(r.hub.host, filepath.Join(r.dir, "hub")) })
}

// configuredHub starts the hub with a configuration in a folder of its own, where the hub may watch it.
func (r *rig) configuredHub(text, hosts string) (file string) {
	r.t.Helper()
	file = filepath.Join(r.directory("config"), "hub.yaml")
	configure(r.t, file, text)
	state, run := r.directory("hub"), r.directory("run")
	r.hub = &role{
		host: r.world.Control, log: filepath.Join(r.dir, "hub.log"), writable: []string{state, run}, hosts: hosts,
		args: []string{"hub", "--config", file, "--state-dir", state, "--run-dir", run, "--log-level", "debug",
			"--listen", ":8443", "--advertise", lab.ControlAddr + ":8443"},
	}
	r.startHub()
	return file
}

// configure writes a hub's configuration, which a running one takes over by itself.
func configure(t *testing.T, file, text string) {
	t.Helper()
	next := file + ".next"
	err := os.WriteFile(next, []byte("apiVersion: tombolo.dev/v1alpha1\nkind: HubConfig\n"+text), 0o644)
	if err := errors.Join(err, os.Rename(next, file)); err != nil {
		t.Fatal(err)
	}
}

// refusedStart wants a hub with a configuration to end at its start, and to say why.
func (r *rig) refusedStart(text string, want ...string) {
	r.t.Helper()
	dir := r.t.TempDir()
	file := filepath.Join(dir, "hub.yaml")
	configure(r.t, file, text)
	_, err := labtest.Run(r.world.Control, startWithin, nil, r.program, "hub", "--config", file, "--state-dir", filepath.Join(dir, "state"),
		"--run-dir", filepath.Join(dir, "run"), "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	for _, word := range want {
		if err == nil || !strings.Contains(err.Error(), word) {
			r.t.Errorf("a start with %s: %v; want %q", text, err, word)
		}
	}
}

// startAgent starts an agent with a token of its own and waits until it is
// ready.
func (r *rig) startAgent(site, index int) *role { return r.startAgentWith(site, index) }

// startAgentWith is startAgent with further arguments.
func (r *rig) startAgentWith(site, index int, more ...string) *role {
	r.t.Helper()
	var token struct {
		Join string `json:"join"`
	}
	r.verbJSON(&token, "token", "create", "--cluster", clusterOf(site), "-o", "json")
	line, err := trust.ParseJoin(token.Join)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := runtest.Plant("the secret of a join token", line.Secret); err != nil {
		r.t.Error(err)
	}
	name := fmt.Sprintf("agent-%s-%d", clusterOf(site), index+1)
	state := r.directory(name)
	x := &role{
		host: r.world.Sites[site].Agents[index], log: filepath.Join(r.dir, name+".log"), writable: []string{state},
		args: append([]string{
			"agent", "--join", token.Join, "--state-dir", state, "--allow", lab.SiteRange, "--log-level", "debug",
		}, more...),
	}
	r.start(x)
	r.eventually(name+" is ready", startWithin, x, func() error {
		return labtest.Ready(x.host, "http://127.0.0.1:8445/readyz", nil)
	})
	return x
}

// verb runs a verb of the program beside the hub and returns what it prints.
func (r *rig) verb(args ...string) string {
	r.t.Helper()
	out, err := r.tryVerb(args...)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

func (r *rig) tryVerb(args ...string) (string, error) {
	env := []string{"TOMBOLO_ADMIN_SOCKET=" + filepath.Join(r.dir, "run", "admin", "hub.sock")}
	return labtest.Run(r.world.Control, 15*time.Second, env, r.program, args...)
}

func (r *rig) verbJSON(into any, args ...string) {
	r.t.Helper()
	out := r.verb(args...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		r.t.Fatalf("tombolo %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// status is what the tests read of `tombolo status -o json`.
type status struct {
	Clusters []struct {
		Name   string
		Agents []agentStatus
	}
}

type agentStatus struct {
	ID             string
	Connected      bool
	Streams        int
	LastDisconnect *struct{ Reason string }
}

// agents returns what status says of a cluster's agents.
func (r *rig) agents(cluster string) []agentStatus {
	r.t.Helper()
	var s status
	r.verbJSON(&s, "status", "-o", "json")
	for _, c := range s.Clusters {
		if c.Name == cluster {
			return c.Agents
		}
	}
	return nil
}

// connected counts the agents of a cluster that hold a session.
func (r *rig) connected(cluster string) int {
	r.t.Helper()
	n := 0
	for _, a := range r.agents(cluster) {
		if a.Connected {
			n++
		}
	}
	return n
}

// eventually asks until the answer is nil, and returns how long that took.
func (r *rig) eventually(what string, within time.Duration, x *role, ask func() error) time.Duration {
	r.t.Helper()
	var p *lab.Process
	if x != nil {
		p = x.process
	}
	return labtest.Eventually(r.t, what, within, p, ask)
}

// waitConnected waits until so many agents of the cluster hold a session.
func (r *rig) waitConnected(cluster string, want int, within time.Duration) time.Duration {
	r.t.Helper()
	return r.eventually(fmt.Sprintf("%s has %d agents", cluster, want), within, nil, func() error {
		if got := r.connected(cluster); got != want {
			return fmt.Errorf("it has %d", got)
		}
		return nil
	})
}

// openSocket asks the hub for the cluster's CONNECT socket.
func (r *rig) openSocket(cluster string) {
	r.t.Helper()
	r.verb("egress-config", cluster, "--mode", "connect-uds")
}

// refusal is an answer other than 200.
type refusal struct {
	status int
	code   string
	body   string
}

// brokenOff is the end of a stream after a dial that was answered by 200.
type brokenOff struct{ why error }

func (e *brokenOff) Error() string { return fmt.Sprintf("after 200: %v", e.why) }

func (e *refusal) Error() string { return fmt.Sprintf("%d %s: %s", e.status, e.code, e.body) }

// dial opens a connection into a cluster through the hub and reads the
// greeting; the cluster's name is the rest of it.
func (r *rig) dial(cluster string, within time.Duration) (net.Conn, *bufio.Reader, string, error) {
	socket := filepath.Join(r.dir, "run", "clusters", cluster, "connect.sock")
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return nil, nil, "", err
	}
	reader, answer, err := greeted(conn, lab.BackendAddr+":7000", within)
	if err != nil {
		conn.Close()
		return nil, nil, "", err
	}
	return conn, reader, answer, nil
}

func greeted(conn net.Conn, target string, within time.Duration) (*bufio.Reader, string, error) {
	if err := conn.SetDeadline(time.Now().Add(within)); err != nil {
		return nil, "", err
	}
	fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
	reader := bufio.NewReader(conn)
	resp, err := http.ReadResponse(reader, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return nil, "", fmt.Errorf("the hub's answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(resp.Body)
		return nil, "", &refusal{resp.StatusCode, resp.Header.Get("Tombolo-Fault"), strings.TrimSpace(string(body))}
	}
	line, err := reader.ReadString('\n')
	if err != nil {
		return nil, "", &brokenOff{err}
	}
	name, ok := strings.CutPrefix(strings.TrimSpace(line), greeting)
	if !ok {
		return nil, "", fmt.Errorf("the backend said %q", line)
	}
	return reader, name, conn.SetDeadline(time.Time{})
}

// requireDial dials once and wants the cluster's own answer.
func (r *rig) requireDial(cluster string) {
	r.t.Helper()
	conn, _, name, err := r.dial(cluster, 5*time.Second)
	if err != nil {
		r.t.Fatalf("dialling into %s: %v", cluster, err)
	}
	conn.Close()
	if name != cluster {
		r.t.Fatalf("dialled into %s, and %s answered", cluster, name)
	}
}
