// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/demo/network"
)

// stage is where the demo plays: machines, addresses and the program.
type stage struct {
	program string
	network *network.Network
	group   *run.Group     // of the backends
	dir     string         // state, sockets and logs
	world   *network.World // nil without root
	nodes   []*node        // in the order in which they are to begin
	hub     *node
	edge    *node
	listen  string // of the hub
	admin   string // of the hub
	sites   []*site

	front      string   // of the edge, which agents take for the hub
	edgeHealth string   // where the edge says whether it is ready
	sources    []string // whom the edge lets in
	unlisted   dialer   // from an address that it does not let in
}

// node is a hub, an agent, or another tombolo process, that can be started again.
type node struct {
	name    string
	host    *network.Host
	args    []string
	logPath string
	process *network.Process
}

// site is one cluster.
type site struct {
	name    string
	agent   *node
	health  string // where the agent says whether it is ready
	allow   string // what its agent may dial
	backend *backend
	through dialer // the hub's way into the cluster
	net     *network.Site
}

// clusters are the names of the clusters.
func clusters() []string { return []string{"c1", "c2"} }

// newStage makes a stage, and the machines on it by one of the functions below.
func newStage(ctx context.Context, program string, machines func(*stage) error) (*stage, error) {
	l, err := network.New(ctx, "demo")
	if err != nil {
		return nil, err
	}
	s := &stage{program: program, network: l, group: run.NewGroup(ctx)}
	if s.dir, err = l.Dir(); err != nil {
		var system *fs.PathError
		if errors.As(err, &system) {
			err = system
		}
		return nil, fault.New(fault.CodeStateAccess, "the demo's directory cannot be made").
			Because(errors.Join(err, l.Close())).
			Hint("set TMPDIR to a folder that exists and can be written, on a disk with free space")
	}
	if err := machines(s); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// inNamespaces makes the control plane and two sites.
func (s *stage) inNamespaces() error {
	var err error
	if s.world, err = s.network.NewWorld(len(clusters()), 1); err != nil {
		return err
	}
	s.hub, s.edge = s.node("hub", s.world.Control), s.node("edge", s.world.Control)
	s.listen, s.admin = "127.0.0.1:8443", "127.0.0.1:8444"
	s.front, s.edgeHealth = network.ControlAddr+":443", "127.0.0.1:8447"
	s.unlisted = tcp(s.world.Internet)
	for i, name := range clusters() {
		site := &site{
			name: name, agent: s.node("agent-"+name, s.world.Sites[i].Agents[0]),
			health: "127.0.0.1:8445", allow: network.SiteRange, net: s.world.Sites[i],
		}
		s.sources = append(s.sources, site.net.Public)
		if err := s.addBackend(site, s.world.Sites[i].Backend, network.BackendAddr+":443"); err != nil {
			return err
		}
	}
	return nil
}

// onLoopback has them all on this machine.
func (s *stage) onLoopback(ctx context.Context) error {
	here := s.network.Here()
	ports, err := freePorts(ctx, 4+len(clusters()))
	if err != nil {
		return err
	}
	s.hub, s.edge = s.node("hub", here), s.node("edge", here)
	s.listen, s.admin, s.front, s.edgeHealth = ports[0], ports[1], ports[2], ports[3]
	s.sources = []string{"127.0.0.1"}
	s.unlisted = func(ctx context.Context, hostport string) (net.Conn, error) {
		from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}
		return from.DialContext(ctx, "tcp", hostport)
	}
	for i, name := range clusters() {
		addr := fmt.Sprintf("127.0.0.%d", i+2)
		site := &site{
			name: name, agent: s.node("agent-"+name, here),
			health: ports[4+i], allow: addr + "/32", // loopback is refused unless it is named
		}
		if err := s.addBackend(site, here, addr+":0"); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) addBackend(site *site, host *network.Host, addr string) error {
	listener, err := host.Listen("tcp", addr)
	if err != nil {
		return err
	}
	if site.backend, err = newBackend(site.name, listener, time.Now()); err != nil {
		return err
	}
	s.group.Go("backend of "+site.name, site.backend.serve)
	s.sites = append(s.sites, site)
	return nil
}

func (s *stage) node(name string, host *network.Host) *node {
	n := &node{name: name, host: host, logPath: filepath.Join(s.dir, name+".log")}
	s.nodes = append(s.nodes, n)
	return n
}

// freePorts finds ports of 127.0.0.1 that nobody uses at the moment.
func freePorts(ctx context.Context, n int) ([]string, error) {
	var addrs []string
	for range n {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("looking for a free port on 127.0.0.1: %w", err)
		}
		defer l.Close() // all at the end, so that no port is found twice
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, nil
}

// environment is ours without what would lead the programs elsewhere.
func (s *stage) environment() []string {
	var env []string
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "TOMBOLO_") || name == "NODE_NAME" || strings.HasSuffix(strings.ToUpper(name), "_PROXY") {
			continue
		}
		env = append(env, entry)
	}
	return append(env, "TOMBOLO_ADMIN_SOCKET="+filepath.Join(s.runDir(), "admin", "hub.sock"))
}

func (s *stage) runDir() string { return filepath.Join(s.dir, "run") }

// start starts a node with its arguments; its output is appended to its log.
func (s *stage) start(n *node) error {
	log, err := os.OpenFile(n.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log of %s: %w", n.name, err)
	}
	defer log.Close() // the child has its own
	cmd := exec.Command(s.program, n.args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = s.environment(), s.dir, log, log
	n.process, err = n.host.Start(cmd)
	return err
}

// tombolo runs a verb beside the hub and returns what it prints.
func (s *stage) tombolo(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	return s.tomboloAt(ctx, s.hub.host, nil, args...)
}

// tomboloAt runs a verb on a machine, with more in its environment.
func (s *stage) tomboloAt(ctx context.Context, host *network.Host, env []string, args ...string) (string, error) {
	cmd := exec.Command(s.program, args...)
	var stdout, stderr bytes.Buffer
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = append(s.environment(), env...), s.dir, &stdout, &stderr
	if err := host.Run(ctx, cmd); err != nil {
		said := strings.TrimSpace(stderr.String())
		return "", fmt.Errorf("tombolo %s: %w: %s", strings.Join(args, " "), err, said)
	}
	return stdout.String(), nil
}

// until asks again and again, until it gets nil, the node has ended, or the
// time is over.
func until(ctx context.Context, n *node, within time.Duration, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var ended <-chan struct{}
	if n != nil {
		ended = n.process.Done()
	}
	last := errors.New("not asked yet")
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-tick.C:
		case <-ended:
			return fmt.Errorf("%s has ended: %w", n.name, n.process.Wait())
		case <-ctx.Done():
			return fmt.Errorf("after %v: %w (%w)", within, last, context.Cause(ctx))
		}
	}
}

// logs returns the last lines that the programs said, to explain a failure.
func (s *stage) logs(lines int) string {
	var b strings.Builder
	for _, n := range s.nodes {
		content, err := os.ReadFile(n.logPath)
		if err != nil || len(bytes.TrimSpace(content)) == 0 {
			continue
		}
		all := strings.Split(strings.TrimSpace(string(content)), "\n")
		fmt.Fprintf(&b, "--- the last lines of %s\n", n.name)
		for _, line := range all[max(0, len(all)-lines):] {
			fmt.Fprintln(&b, line)
		}
	}
	return b.String()
}

// stop asks the programs to end, those first that began last, and waits for them.
func (s *stage) stop(grace time.Duration) error {
	var errs []error
	for _, n := range slices.Backward(s.nodes) {
		if n.process == nil {
			continue
		}
		if err := n.process.Stop(grace); err != nil {
			errs = append(errs, fmt.Errorf("stopping %s: %w", n.name, err))
		}
	}
	return errors.Join(errs...)
}

// strike ends all programs in order, then removes everything, and returns how many
// namespaces there were.
func (s *stage) strike() (hosts int, err error) {
	hosts = s.network.Hosts()
	if err := s.stop(stopGrace); err != nil {
		return hosts, err
	}
	return hosts, s.close()
}

// close removes everything, whatever state it is in.
func (s *stage) close() error {
	s.group.Stop()
	return errors.Join(s.group.Wait(), s.network.Close())
}
