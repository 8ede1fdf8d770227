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
)

// movingRig is a cluster that is reached by a VPN and by an agent, and a hub that has both as backends.
type movingRig struct {
	*vpnRig
	config string
}

func newMovingRig(t *testing.T) *movingRig {
	r := newRig(t, "moving", 2, 1)
	hosts := filepath.Join(r.dir, "hosts") // a proxy for all clusters has their names in its address
	if err := os.WriteFile(hosts, []byte(seedAddr+" c1.vpn.test c2.vpn.test\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	seed := r.server("seed", seedAddr)
	m := &movingRig{config: r.configuredHub("", hosts)}
	for i := range r.world.Sites {
		r.startAgent(i, 0)
		r.openSocket(clusterOf(i))
	}
	m.vpnRig = vpnOn(r, seed, seedAddr)
	return m
}

// configure writes the hub's configuration, which it takes over by itself.
func (m *movingRig) configure(text string) {
	m.t.Helper()
	configure(m.t, m.config, text)
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

// carried waits until so many streams of the first cluster are open by each backend.
func (m *movingRig) carried(vpn, agents int) {
	m.t.Helper()
	m.carriedOf(0, vpn, agents)
}

// carriedOf is carried for the cluster of a site.
func (m *movingRig) carriedOf(site, vpn, agents int) {
	m.t.Helper()
	what := fmt.Sprintf("%d streams of %s go by the VPN and %d by agents", vpn, clusterOf(site), agents)
	m.eventually(what, reconnectWithin, m.hub, func() error {
		if c := m.backends().Clusters[site]; c.Open["vpn"] != vpn || c.Open["agents"] != agents {
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
	return m.trafficOf("c1")
}

func (m *movingRig) trafficOf(cluster string) *traffic {
	m.t.Helper()
	conn, in, name, err := m.dial(cluster, reconnectWithin)
	if err != nil || name != cluster {
		m.t.Fatalf("%s: %q, %v", cluster, name, err)
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
	t.Run("by a default, with a cluster that has its own", func(*testing.T) { m.byDefault(bundle) })
	t.Run("what makes no sense is refused at the start", func(*testing.T) { m.nonsense() })
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

// forAll is the VPN as a backend for all clusters, and as their default.
func forAll(bundle string) string {
	return fmt.Sprintf("backends: [{name: vpn, proxy: '{cluster}.vpn.test:9443', serverName: %s, ca: %[2]s, certificate: %[2]s, "+
		"key: %[2]s}]\ndefaultBackend: vpn\n", seedAddr, bundle)
}

// byDefault moves the first cluster by the default and by its own choice, while the second one stays with agents. In the
// end everything is as before.
func (m *movingRig) byDefault(bundle string) {
	m.t.Helper()
	m.verb("cluster", "backend", "c2", "agents")
	stays := m.trafficOf("c2")
	has := func(own bool, by string) {
		m.t.Helper()
		m.eventually("c1 has "+by, startWithin, m.hub, func() error {
			all := m.backends().Clusters
			if all[0].Backend != by || all[0].Own != own || all[1].Backend != "agents" || !all[1].Own {
				return fmt.Errorf("%+v", all)
			}
			return nil
		})
	}
	m.configure(forAll(bundle))
	has(false, "vpn")
	var open []*traffic
	for i, step := range []struct {
		choice      string
		own         bool
		by          string
		vpn, agents int
	}{{"", false, "vpn", 1, 0}, {"agents", true, "agents", 1, 1}, {"default", false, "vpn", 2, 1}} {
		if step.choice != "" {
			m.verb("cluster", "backend", "c1", step.choice)
		}
		has(step.own, step.by)
		open = append(open, m.traffic())
		m.carried(step.vpn, step.agents)
		m.trafficOf("c2").conn.Close()
		m.carriedOf(1, 0, 1)
		m.lives(fmt.Sprintf("after step %d, that of the other cluster", i+1), stays)
	}
	for _, x := range open {
		m.lives("at the end", x)
		x.conn.Close()
	}
	stays.conn.Close()
	m.carried(0, 0)

	// A start without what a cluster has chosen is refused, and the hub starts with it again.
	m.verb("cluster", "backend", "c1", "vpn")
	m.hub.process.Signal(syscall.SIGTERM)
	<-m.hub.process.Done()
	m.configure("")
	m.start(m.hub)
	select {
	case <-m.hub.process.Done():
	case <-time.After(startWithin):
		m.t.Fatal("the hub starts without the backend that c1 has")
	}
	if why := m.wrote(m.hub.log, "cluster c1 has vpn"); why != nil || m.count("backend_in_use") == 0 {
		m.t.Errorf("a start without the backend that c1 has: %v", why)
	}
	m.configure(forAll(bundle))
	m.startHub()
	for i := range m.world.Sites {
		m.waitConnected(clusterOf(i), 1, reconnectWithin)
		m.openSocket(clusterOf(i))
		m.verb("cluster", "backend", clusterOf(i), "default")
	}
	m.configure("")
	m.eventually("the VPN is gone", startWithin, m.hub, func() error {
		if n := len(m.backends().Backends); n != 1 {
			return fmt.Errorf("there are %d backends", n)
		}
		return nil
	})
}

// nonsense starts the program with combinations that make no sense.
func (m *movingRig) nonsense() {
	m.t.Helper()
	const proxy = "proxy: '{cluster}.vpn.test:9443', ca: /x"
	for text, want := range map[string]string{
		"defaultBackend: vpn": `"vpn" is no backend: there are agents`,
		"backends: [{name: vpn, proxy: 'vpn.test:9443', ca: /x}]\ndefaultBackend: vpn": "the dials of all clusters would end in one",
		"backends: [{name: vpn, " + proxy + ", certificate: /x}]":                      "backends[0].key: it is missing",
		"backends: [{name: vpn, proxy: '{cluster}.vpn.test:9443'}]":                    "backends[0].ca: it is missing",
		"backends: [{name: agents, " + proxy + "}]":                                    "commands use it",
		"backends: [{name: vpn, " + proxy + "}, {name: vpn, " + proxy + "}]":           "is the name of another backend",
		"backends: [{name: vpn, proxy: 'vpn.test:9443', ca: '/{cluster}/ca.crt'}]":     "a proxy is of one cluster, or of all",
	} {
		m.refusedStart(text, want)
	}
}
