// SPDX-License-Identifier: Apache-2.0

//go:build lab

package product

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// Other seeds: their control planes, and the machine to which an endpoint moves.
const otherControlAddr, otherSeedEndpointAddr, grandchildAddr = "198.51.100.11", "198.51.100.64", "198.51.100.12"

// seedRig is a seed whose hub decides about WireGuard, with three endpoint machines that follow it, and three clusters
// with a VPN each.
type seedRig struct {
	*wireguardRig
	config    string            // of the hub
	names     string            // the /etc/hosts of the endpoint machines
	endpoints []*meshNode       // e1, e2 and e3
	forwards  map[string]*role  // by the name of the endpoint
	clusters  []*meshNode       // c1, c2 and c3
	vpns      []*vpnRig         // theirs
	clients   []*role           // of the VPNs
	hosts     map[string]string // the /etc/hosts of clusters, by name
}

// section is the hub's configuration, with the endpoints as they are.
func (s *seedRig) section(enabled bool, clusters string) string {
	text := fmt.Sprintf(`clusters: [%s]
wireguard:
  enabled: %v
  range: 192.168.128.0/22
  parentRange: 192.168.132.0/22
  maxClusters: 4
  vpnServer: "{cluster}.seed.test:1194"
  endpoints:
`, clusters, enabled)
	for i, n := range s.endpoints {
		text += fmt.Sprintf("  - {name: %s, address: '%s:51820', publicKey: '%s'}\n", n.name,
			[]string{"e1.seed.test", otherEndpointAddr, movedEndpointAddr}[i], n.key)
	}
	return text
}

// ofTheSeed are its clusters.
const ofTheSeed = "{name: c1}, {name: c2}, {name: c3}, {name: spare}, {name: late}, {name: after}"

func newSeedRig(t *testing.T) *seedRig {
	r := newRig(t, "wgseed", 3, 1)
	s := &seedRig{wireguardRig: &wireguardRig{vpnRig: &vpnRig{rig: r, vpnDir: r.dir}, nodes: map[string]*meshNode{}},
		names: filepath.Join(r.dir, "names"), forwards: map[string]*role{}, hosts: map[string]string{}}
	for i := range 3 {
		s.endpoints = append(s.endpoints, s.node(fmt.Sprintf("e%d", i+1), overlayOf(i)))
	}
	s.config = r.configuredHub(s.section(true, ofTheSeed), "")

	side := func(name string) (n *meshNode) {
		n = &meshNode{name: name, dir: filepath.Join(r.dir, name)}
		var k admin.WireGuardCluster
		r.verbJSON(&k, "cluster", "wireguard", name, "--directory", n.dir, "-o", "json")
		n.overlay = k.Address
		return n
	}
	c1, spare, c2, c3 := side("c1"), side("spare"), side("c2"), side("c3")
	for i, n := range []*meshNode{c1, spare, c2, c3} {
		if want := fmt.Sprintf("192.168.128.%d", 16+i); n.overlay != want {
			t.Errorf("%s has %s, the first free address is %s", n.name, n.overlay, want)
		}
	}
	s.clusters = []*meshNode{c1, c2, c3}
	names := ""
	for i := range s.clusters {
		s.vpns = append(s.vpns, s.vpn(i, serverOf(i)))
		names += fmt.Sprintf("%s c%d.seed.test\n", serverOf(i), i+1)
	}
	if err := os.WriteFile(s.names, []byte(names), 0o644); err != nil {
		t.Fatal(err)
	}
	for i, addr := range []string{endpointAddr, otherEndpointAddr, movedEndpointAddr} {
		n := s.endpoints[i]
		s.follow(r, n)
		s.mesh(n, r.server(n.name, addr), "", s.names)
		s.forwards[n.name] = s.forwardAsWritten(n, s.names)
	}
	var servers []*role
	for i, n := range s.clusters {
		s.hosts[n.name] = s.file(n, "hosts", endpointAddr+" e1.seed.test\n")
		s.asWritten(n, r.world.Sites[i].Agents[0], s.hosts[n.name])
		v := s.vpns[i]
		servers = append(servers, v.startServer(v.seed, "server", fmt.Sprintf("identity: {bundle: %s}\n", v.path("server.pem"))))
	}
	prefer := preferred()
	for i, n := range s.clusters {
		for at, e := range s.endpoints {
			s.meets(n, e.name, []string{endpointAddr, otherEndpointAddr, movedEndpointAddr}[at])
		}
		s.opens(s.vpns[i].seed, serverOf(i)+":1194")
		s.opens(n.host, overlayOf(prefer[i])+":1194")
		s.clients = append(s.clients, s.vpns[i].startClient(0, fmt.Sprintf("[{addresses: ['%s:1194', '%s:1194', '%s:1194']}]\nprefer: %s",
			overlayOf(0), overlayOf(1), overlayOf(2), n.overlay)))
	}
	for i, v := range s.vpns {
		v.ready(s.clients[i], 8450)
		v.ready(servers[i], 8449)
	}
	return s
}

// serverOf is the address of the VPN server of a cluster.
func serverOf(cluster int) string { return fmt.Sprintf("198.51.100.5%d", cluster) }

// preferred are the endpoints that the clusters prefer, by the last bytes of their addresses: 16, 18 and 19 modulo 3.
func preferred() []int { return []int{1, 0, 1} }

// overlayOf is the address of an endpoint in the mesh.
func overlayOf(endpoint int) string { return fmt.Sprintf("192.168.128.%d", endpoint+1) }

// vpn makes what both ends of a cluster's VPN need.
func (s *seedRig) vpn(site int, addr string) *vpnRig {
	s.t.Helper()
	v := &vpnRig{rig: s.rig, site: site, vpnDir: filepath.Join(s.dir, "vpn-"+clusterOf(site)), handshake: "tlsAuth",
		seed: s.server("seed"+fmt.Sprint(site+1), addr)}
	if err := os.Mkdir(v.vpnDir, 0o755); err != nil {
		s.t.Fatal(err)
	}
	v.issue("server", "vpn-server", "--host", addr)
	s.verb("vpn", "key", "--out", v.path("tls.key"))
	return v
}

// follow keeps the files of an endpoint as a hub has them.
func (s *seedRig) follow(hub *rig, n *meshNode) {
	s.t.Helper()
	labtest.Start(s.t, hub.world.Control, filepath.Join(s.dir, "follow-"+filepath.Base(n.dir)+".log"), nil, s.program, "cluster",
		"wireguard", "--endpoint", n.name, "--directory", n.dir, "--watch", "--admin-socket", filepath.Join(hub.dir, "run/admin/hub.sock"))
	s.eventually("the files of "+n.name+" are there", startWithin, nil, func() error {
		_, err := os.Stat(filepath.Join(n.dir, "forward.yaml"))
		return err
	})
}

// passes opens a connection into a cluster by its VPN.
func (s *seedRig) passes(cluster int) error {
	conn, _, err := s.vpns[cluster].dialFrom(s.vpns[cluster].seed, mapped("7000"))
	if err == nil {
		conn.Close()
	}
	return err
}

// goesBy wants new connections into a cluster to pass by an endpoint.
func (s *seedRig) goesBy(cluster, endpoint int) error {
	if err := s.passes(cluster); err != nil {
		return fmt.Errorf("%s: %w", clusterOf(cluster), err)
	}
	return s.tunnelBy(cluster, endpoint)
}

// tunnelBy wants the tunnel of a cluster to be by an endpoint.
func (s *seedRig) tunnelBy(cluster, endpoint int) error {
	v := s.vpns[cluster]
	st := v.status(s.clients[cluster], v.path("run-client-1")+"/vpn-client/vpn.sock")
	if want := overlayOf(endpoint) + ":1194"; len(st.Tunnels) != 1 || st.Tunnels[0].By != want {
		return fmt.Errorf("%s goes by %+v, want %s", clusterOf(cluster), st.Tunnels, want)
	}
	return nil
}

// lives holds a connection into a cluster, on which something moves each time that it is asked.
func (s *seedRig) lives(cluster int) (moves func(after string)) {
	s.t.Helper()
	v := s.vpns[cluster]
	conn, in := v.mustDial(v.seed, mapped("7000"))
	s.t.Cleanup(func() { conn.Close() })
	return func(after string) {
		s.t.Helper()
		if err := v.echoesText(conn, in, after); err != nil {
			s.t.Errorf("%s, a connection of %s has not lived on: %v", after, clusterOf(cluster), err)
		}
	}
}

// TestWireGuardOfASeed: the hub of a seed gives clusters addresses by which they prefer one of three endpoints each. One
// of them dies, and the others share its clusters; the seed and clusters are switched; a cluster moves to another seed.
func TestWireGuardOfASeed(t *testing.T) {
	t.Parallel()
	s := newSeedRig(t)
	t.Run("the others share the clusters of an endpoint that dies", func(*testing.T) { s.endpointDies() })
	t.Run("the seed is switched, and clusters are", func(*testing.T) { s.switched() })
	t.Run("there is a most of clusters", func(*testing.T) { s.most() })
	t.Run("a range overlaps that of the parent", func(*testing.T) { s.overlap() })
	t.Run("a cluster moves to another seed", func(*testing.T) { s.moves() })
}

// endpointDies loses the machine that two of the clusters prefer; the third one prefers e1, and stays there.
func (s *seedRig) endpointDies() {
	t := s.t
	t.Helper()
	by := func(endpoints ...int) func() error {
		return func() error {
			for cluster, endpoint := range endpoints {
				if err := s.goesBy(cluster, endpoint); err != nil {
					return err
				}
			}
			return nil
		}
	}
	for cluster, endpoint := range preferred() {
		conn, _ := s.vpns[cluster].mustDial(s.vpns[cluster].seed, mapped("7000"))
		conn.Close()
		if err := s.tunnelBy(cluster, endpoint); err != nil {
			t.Errorf("by the last byte: %v", err)
		}
	}
	moves := s.lives(1)
	// Only of a server that has been heard for more than a second a client knows that it asks each second. Of one that is
	// lost sooner it waits for OpenVPN's own pings.
	s.eventually("each server has been heard for a while", startWithin, nil, func() error {
		for cluster := range s.clients {
			st := s.vpns[cluster].status(s.clients[cluster], s.vpns[cluster].path("run-client-1")+"/vpn-client/vpn.sock")
			if len(st.Tunnels) != 1 || st.Tunnels[0].Heard.Sub(st.Tunnels[0].Since) <= 1100*time.Millisecond {
				return fmt.Errorf("%s: %+v", clusterOf(cluster), st.Tunnels)
			}
		}
		return nil
	})
	dies := s.endpoints[1]
	if _, err := labtest.Run(dies.host, startWithin, nil, "ip", "link", "set", "eth0", "down"); err != nil {
		t.Fatal(err)
	}
	for _, x := range []*role{s.forwards[dies.name], dies.role} {
		x.process.Signal(syscall.SIGKILL)
		<-x.process.Done()
	}
	took := s.eventually("the other two share its clusters", takeOverWithin, s.clients[0], by(0, 0, 2))
	t.Attr("figure", fmt.Sprintf("new connections into both clusters after the loss of one of three endpoints: %v",
		took.Round(100*time.Millisecond)))
	moves("after the loss of the endpoint of others")
}

// switched has the seed off and on, with a cluster that says the contrary each time.
func (s *seedRig) switched() {
	t := s.t
	t.Helper()
	s.verb("cluster", "wireguard", "c1", "--on")
	moves := s.lives(0)
	configure(t, s.config, s.section(false, ofTheSeed))
	isAt(t, s.rig, "c1", true, s.clusters[0].overlay)
	isAt(t, s.rig, "c2", false, s.clusters[1].overlay)
	s.eventually("c2 is let in no more", reconnectWithin, nil, func() error {
		if s.passes(1) == nil {
			return errors.New("it is")
		}
		return nil
	})
	moves("while the seed is off")

	const refused = "limit_reached: wireguard.maxClusters cannot be 3: 4 clusters would be on"
	configure(t, s.config, s.fewer())
	s.eventually("a reload that would switch on more than it allows is refused", startWithin, s.hub, func() error {
		log, err := os.ReadFile(s.hub.log)
		if err == nil && !strings.Contains(string(log), refused) {
			err = fmt.Errorf("its log does not say %q", refused)
		}
		return err
	})
	isAt(t, s.rig, "c2", false, s.clusters[1].overlay) // as before
	s.verb("cluster", "wireguard", "c3", "--off")
	configure(t, s.config, s.section(true, ofTheSeed))
	isAt(t, s.rig, "c2", true, s.clusters[1].overlay)
	isAt(t, s.rig, "c3", false, s.clusters[2].overlay)
	took := s.eventually("c2 is let in again", reconnectWithin, nil, func() error { return s.passes(1) })
	t.Attr("figure", fmt.Sprintf("new connections after a cluster is on again: %v", took.Round(100*time.Millisecond)))
	if s.passes(2) == nil {
		t.Error("a cluster that is off is let in with the seed")
	}
	s.verb("cluster", "wireguard", "c3", "--inherit")
	isAt(t, s.rig, "c3", true, s.clusters[2].overlay)
	moves("while others are switched")
}

// fewer is the seed's configuration, on, with room for one cluster less than there are.
func (s *seedRig) fewer() string {
	return strings.Replace(s.section(true, ofTheSeed), "maxClusters: 4", "maxClusters: 3", 1)
}

// most asks for one more cluster than there may be.
func (s *seedRig) most() {
	t := s.t
	t.Helper()
	refused := func(args ...string) {
		t.Helper()
		_, err := s.tryVerb(append([]string{"cluster", "wireguard"}, args...)...)
		if err == nil || !strings.Contains(err.Error(), "limit_reached") ||
			!strings.Contains(err.Error(), "wireguard.maxClusters is 4, and 4 clusters are on") {
			t.Errorf("%v: %v", args, err)
		}
	}
	refused("late")
	s.verb("cluster", "wireguard", "spare", "--off")
	isAt(t, s.rig, "spare", false, "192.168.128.17")
	isAt(t, s.rig, "late", true, "192.168.128.20") // what is off keeps its address
	refused("spare", "--on")

	configure(t, s.config, s.fewer()) // none that is on is switched off
	s.eventually("there are fewer at most", startWithin, s.hub, func() error {
		_, err := s.tryVerb("cluster", "wireguard", "spare", "--on")
		if err == nil || !strings.Contains(err.Error(), "wireguard.maxClusters is 3, and 4 clusters are on") {
			return fmt.Errorf("it says %w", err)
		}
		return nil
	})
	for _, n := range s.clusters {
		isAt(t, s.rig, n.name, true, n.overlay)
	}
	configure(t, s.config, s.section(true, ofTheSeed))
}

// overlap starts hubs with ranges around that of the seed above; those of its other children and of theirs may be equal.
func (s *seedRig) overlap() {
	t := s.t
	t.Helper()
	with := func(parent string) string {
		return strings.Replace(s.section(true, ofTheSeed), "parentRange: 192.168.132.0/22", "parentRange: "+parent, 1)
	}
	for _, parent := range []string{"192.168.128.0/22", "192.168.130.0/24", "192.168.128.0/20"} {
		s.refusedStart(with(parent), parent+", that of the seed above, overlaps range 192.168.128.0/22")
	}
	grandchild := strings.Replace(with("192.168.128.0/22"), " range: 192.168.128.0/22", " range: 192.168.132.0/22", 1)
	isAt(t, s.otherSeed("grandchild", grandchildAddr, grandchild), "c1", true, "192.168.132.16")
}

// otherSeed is another seed: its control plane on a machine of its own.
func (s *seedRig) otherSeed(name, addr, section string) *rig {
	s.t.Helper()
	other, world := *s.rig, *s.world
	world.Control = s.server(name, addr)
	other.world, other.dir, other.hub = &world, s.directory(name), nil
	s.t.Cleanup(func() {
		if s.t.Failed() {
			labtest.TellLogs(s.t, other.dir)
		}
		labtest.HandOver(s.t, other.dir)
	})
	other.configuredHub(section, "")
	return &other
}

// moves has the control plane of a cluster move to another seed, together with the endpoint that the cluster uses. On the
// cluster's side nothing changes but where a name leads.
func (s *seedRig) moves() {
	t, c1, e1 := s.t, s.clusters[0], s.endpoints[0]
	t.Helper()
	to := s.otherSeed("sibling", otherControlAddr, s.section(true, "{name: own}, {name: next}"))
	isAt(t, to, "own", true, c1.overlay)
	before := isAt(t, s.rig, "c1", true, c1.overlay)
	file := filepath.Join(s.dir, "c1.yaml")
	_, err := labtest.Run(s.world.Control, startWithin, []string{"TOMBOLO_ADMIN_SOCKET=" + filepath.Join(s.dir, "run/admin/hub.sock")},
		"sh", "-c", `umask 022 && exec "$0" cluster export c1 >"$1"`, s.program, file)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("the export can be read by others: %v, %v", info, err)
	}
	_, err = to.tryVerb("cluster", "import", file)
	if err == nil || !strings.Contains(err.Error(), "cluster c1 cannot have the address "+c1.overlay+" here") ||
		!strings.Contains(err.Error(), "cluster own has it") {
		t.Errorf("an address that is taken: %v", err)
	}
	to.verb("cluster", "remove", "own", "--force")
	for range 2 { // once more is no error
		to.verb("cluster", "import", file)
	}
	if after := isAt(t, to, "c1", true, c1.overlay); after != before {
		t.Errorf("it was %+v, and is %+v", before, after)
	}
	isAt(t, to, "next", true, "192.168.128.17") // the first free one
	s.sameFiles(to, c1)

	moved := &meshNode{name: e1.name, overlay: e1.overlay, dir: e1.dir + "-moved", key: e1.key}
	secret, err := os.ReadFile(filepath.Join(e1.dir, "cluster.secret"))
	key, other := os.ReadFile(filepath.Join(e1.dir, "state", "wireguard.key"))
	err = errors.Join(err, other, os.MkdirAll(filepath.Join(moved.dir, "state"), 0o700),
		os.WriteFile(filepath.Join(moved.dir, "cluster.secret"), secret, 0o600),
		os.WriteFile(filepath.Join(moved.dir, "state", "wireguard.key"), key, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	s.follow(to, moved)
	s.mesh(moved, s.server("moved", otherSeedEndpointAddr), "", s.names)
	s.forwardAsWritten(moved, s.names)
	if err := os.WriteFile(s.hosts["c1"], []byte(otherSeedEndpointAddr+" e1.seed.test\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.verb("cluster", "remove", "c1", "--force")
	began := time.Now()
	s.meets(c1, "e1", otherSeedEndpointAddr)
	s.eventually("the VPN passes by the endpoint of the other seed", reconnectWithin, s.clients[0], func() error { return s.goesBy(0, 0) })
	t.Attr("figure", fmt.Sprintf("new connections after a cluster moved to another seed: %v", time.Since(began).Round(100*time.Millisecond)))
	for _, n := range []*meshNode{e1, s.endpoints[2]} {
		st, err := s.meshStatus(n)
		if err != nil {
			t.Error(err)
		} else if p, err := st.Peer("c1"); err == nil {
			t.Errorf("%s of the first seed still has %+v", n.name, p)
		}
	}
	isAt(t, s.rig, "after", true, c1.overlay) // which is free where it was
}
