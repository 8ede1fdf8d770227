// SPDX-License-Identifier: Apache-2.0

//go:build lab

package product

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/test/lab"
)

// movingRig is a cluster that is reached by a VPN and by an agent, and a hub that has both as backends.
type movingRig struct {
	*vpnRig
	config string
}

func newMovingRig(t *testing.T) *movingRig {
	r := newRig(t, "moving", 1, 1)
	m := &movingRig{config: filepath.Join(r.directory("config"), "hub.yaml")} // where the hub may watch it
	if err := os.WriteFile(m.config, []byte("apiVersion: tombolo.dev/v1alpha1\nkind: HubConfig\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	seed := r.server("seed", seedAddr)
	state, run := r.directory("hub"), r.directory("run")
	r.hub = &role{
		host: r.world.Control, log: filepath.Join(r.dir, "hub.log"), writable: []string{state, run},
		args: []string{"hub", "--config", m.config, "--state-dir", state, "--run-dir", run, "--log-level", "debug",
			"--listen", ":8443", "--advertise", lab.ControlAddr + ":8443"},
	}
	r.startHub()
	r.startAgent(0, 0)
	r.openSocket("c1")
	m.vpnRig = vpnOn(r, seed, seedAddr)
	return m
}

// configure writes the hub's configuration, which it takes over by itself.
func (m *movingRig) configure(text string) {
	m.t.Helper()
	next := m.config + ".next"
	err := os.WriteFile(next, []byte("apiVersion: tombolo.dev/v1alpha1\nkind: HubConfig\n"+text), 0o644)
	if err := errors.Join(err, os.Rename(next, m.config)); err != nil {
		m.t.Fatal(err)
	}
}

// readableByHub copies a bundle to where the hub, which has no rights, may read it.
func (m *movingRig) readableByHub(bundle string) string {
	m.t.Helper()
	data, err := os.ReadFile(m.path(bundle))
	to := filepath.Join(m.directory("backend"), bundle)
	if err := errors.Join(err, os.WriteFile(to, data, 0o600), os.Chown(to, user, user)); err != nil {
		m.t.Fatal(err)
	}
	return to
}

func (m *movingRig) backends() (list admin.BackendList) {
	m.t.Helper()
	m.verbJSON(&list, "cluster", "backend", "-o", "json")
	return list
}

// carried waits until so many streams of the cluster are open by each backend.
func (m *movingRig) carried(vpn, agents int) {
	m.t.Helper()
	m.eventually(fmt.Sprintf("%d streams go by the VPN and %d by agents", vpn, agents), reconnectWithin, m.hub, func() error {
		if c := m.backends().Clusters[0]; c.Open["vpn"] != vpn || c.Open["agents"] != agents {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
}

// told waits until the hub's log has a word, more often than before.
func (m *movingRig) told(word string, before int) {
	m.t.Helper()
	m.eventually("the log says "+word, startWithin, m.hub, func() error {
		if n := m.count(word); n <= before {
			return fmt.Errorf("it says so %d times", n)
		}
		return nil
	})
}

func (m *movingRig) count(word string) int {
	m.t.Helper()
	data, err := os.ReadFile(m.hub.log)
	if err != nil {
		m.t.Fatal(err)
	}
	return strings.Count(string(data), word)
}

// traffic is a connection on which something is under way until it is closed.
type traffic struct {
	conn   net.Conn
	rounds atomic.Int64
	ended  chan error
}

func (m *movingRig) traffic() *traffic {
	m.t.Helper()
	conn, in, name, err := m.dial("c1", reconnectWithin)
	if err != nil || name != "c1" {
		m.t.Fatalf("%q, %v", name, err)
	}
	x := &traffic{conn: conn, ended: make(chan error, 1)}
	m.t.Cleanup(func() { conn.Close() })
	go func() { x.ended <- x.run(in) }()
	return x
}

func (x *traffic) run(in *bufio.Reader) error {
	text := strings.Repeat("0123456789", 1000)
	for {
		if err := x.conn.SetDeadline(time.Now().Add(reconnectWithin)); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(x.conn, text); err != nil {
			return err
		}
		got, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		if got != text+"\n" {
			return fmt.Errorf("%d bytes came back, %d were sent", len(got), len(text)+1)
		}
		x.rounds.Add(1)
	}
}

// lives wants more to move on a connection.
func (m *movingRig) lives(what string, x *traffic) {
	m.t.Helper()
	before := x.rounds.Load()
	m.eventually(what, reconnectWithin, m.hub, func() error {
		select {
		case err := <-x.ended:
			m.t.Fatalf("%s: it ended: %v", what, err)
		default:
		}
		if x.rounds.Load() < before+3 {
			return errors.New("nothing moves")
		}
		return nil
	})
}

// TestMovingFromAVPN walks through docs/howto/from-gardener-reversed-vpn.md with traffic on every way: a cluster moves to
// its agents, back and again, and the old way goes only when nobody uses it.
func TestMovingFromAVPN(t *testing.T) {
	t.Parallel()
	m := newMovingRig(t)
	server := m.startServer(m.seed, "server", fmt.Sprintf("identity: {bundle: %s}\n", m.path("server.pem")))
	client := m.startClient(0, throughEdge)
	m.ready(client, 8450)
	m.ready(server, 8449)

	bundle := m.readableByHub("apiserver.pem")
	withVPN := fmt.Sprintf("backends: [{name: vpn, proxy: '%s:9443', ca: %[2]s, certificate: %[2]s, key: %[2]s}]\n", seedAddr, bundle)
	m.configure(withVPN)
	m.eventually("the hub knows the VPN", startWithin, m.hub, func() error {
		if n := len(m.backends().Backends); n != 2 {
			return fmt.Errorf("it has %d backends", n)
		}
		return nil
	})
	first := m.traffic()
	m.carried(0, 1)
	m.verb("cluster", "backend", "c1", "vpn")
	old := m.traffic()
	m.carried(1, 1)

	m.verb("cluster", "backend", "c1", "agents") // the switch
	next := m.traffic()
	m.carried(1, 2)
	for what, x := range map[string]*traffic{"what was open by the VPN": old, "what is new": next, "the first": first} {
		m.lives(what, x)
	}
	refused := m.count("backend_in_use")
	m.configure("")
	m.told("backend_in_use", refused)
	if n := len(m.backends().Backends); n != 2 {
		t.Errorf("the VPN was taken away under a stream: %d backends are left", n)
	}
	m.lives("after the refusal, what was open by the VPN", old)

	m.configure(withVPN + "# once more\n")
	m.verb("cluster", "backend", "c1", "vpn") // back
	again := m.traffic()
	m.carried(2, 2)
	m.lives("back on the VPN", again)
	m.verb("cluster", "backend", "c1", "default")
	for _, x := range []*traffic{old, again} {
		x.conn.Close()
	}
	m.carried(0, 2)
	m.configure("# without the VPN\n")
	m.eventually("the VPN is gone", startWithin, m.hub, func() error {
		if n := len(m.backends().Backends); n != 1 {
			return fmt.Errorf("there are %d backends", n)
		}
		return nil
	})
	for _, x := range []*role{client, server} { // the old way goes
		x.process.Signal(syscall.SIGTERM)
		<-x.process.Done()
	}
	m.lives("without the VPN, what was never by it", first)
	m.lives("without the VPN, what moved", next)
	m.requireDial("c1")
	if out, err := m.tryVerb("cluster", "backend", "c1", "vpn"); err == nil || !strings.Contains(err.Error()+out, "backend_unknown") {
		t.Errorf("it moved to what is gone: %v %s", err, out)
	}
}
