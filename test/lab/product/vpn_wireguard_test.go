// SPDX-License-Identifier: Apache-2.0

//go:build lab

package product

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/mesh"
	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// The addresses of the lab's seed: endpoint machines, where the first one moves to, and the mesh.
const (
	endpointAddr, otherEndpointAddr, movedEndpointAddr = "198.51.100.61", "198.51.100.62", "198.51.100.63"
	endpointOverlay, otherOverlay                      = "192.168.128.1", "192.168.128.2"
	firstCluster, secondCluster                        = "192.168.128.17", "192.168.128.18"
	seedPrivate                                        = "10.60.0.1"                              // of an endpoint machine, beside the mesh
	endpointLAN, otherLAN, thirdLAN                    = "10.60.1.11", "10.60.1.12", "10.60.1.21" // of the seed's machines
	takeOverWithin                                     = 20 * time.Second
)

// meshNode is a machine in the mesh, as its files say it.
type meshNode struct {
	name, overlay, dir, key string
	*role
}

// said counts words in the log of a machine's mesh.
func (n *meshNode) said(words string) int {
	log, _ := os.ReadFile(n.log)
	return strings.Count(string(log), words)
}

// awaitSaid waits until the words come once more than before.
func (r *wireguardRig) awaitSaid(n *meshNode, words string, before int) {
	r.t.Helper()
	r.eventually("the log of "+n.name+" has "+words, startWithin, n.role, func() error {
		if n.said(words) == before {
			return errors.New("not yet")
		}
		return nil
	})
}

// wireguardRig is a seed with endpoint machines, and clusters that know nothing of each other.
type wireguardRig struct {
	*vpnRig
	nodes map[string]*meshNode
	more  string // in the section mesh of all that it starts
}

// node makes the keys and the state of a machine.
func (r *wireguardRig) node(name, overlay string) *meshNode {
	r.t.Helper()
	n := &meshNode{name: name, overlay: overlay, dir: filepath.Join(r.dir, "wg-"+name)}
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err == nil {
		n.key = base64.StdEncoding.EncodeToString(key.PublicKey().Bytes())
		err = errors.Join(os.MkdirAll(filepath.Join(n.dir, "state"), 0o700), os.MkdirAll(filepath.Join(n.dir, "secrets"), 0o700),
			os.WriteFile(filepath.Join(n.dir, "state", "wireguard.key"), []byte(base64.StdEncoding.EncodeToString(key.Bytes())+"\n"), 0o600))
	}
	if err == nil {
		_, err = labtest.Run(r.world.Control, startWithin, nil, r.program, "discovery", "secret", "create",
			filepath.Join(n.dir, "cluster.secret"))
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.nodes[name] = n
	return n
}

// file writes a file of a machine, in place: it may be watched, or mounted.
func (r *wireguardRig) file(n *meshNode, name, text string) string {
	r.t.Helper()
	path := filepath.Join(n.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// mesh starts the mesh of a machine, with members if its file is not there yet; hosts is its /etc/hosts, if that is not the machine's.
func (r *wireguardRig) mesh(n *meshNode, h *lab.Host, members, hosts string) {
	r.t.Helper()
	if members != "" {
		r.file(n, "members.yaml", "apiVersion: tombolo.dev/v1alpha1\nkind: MemberList\nmembers:\n"+members)
	}
	config := r.file(n, "mesh.yaml", fmt.Sprintf(`apiVersion: tombolo.dev/v1alpha1
kind: MeshConfig
cluster: {secretFiles: [%[1]s/cluster.secret]}
node: {name: %[2]s, stateDir: %[1]s/state, runDir: %[1]s/run}
announce: {overlay4: %[3]s}
sources: {file: %[1]s/members.yaml}
mesh: {overlay4: 192.168.128.0/22, engine: auto, portMapping: false, masquerade: [10.60.1.0/24]%[4]s}
cache: false
log: {level: debug}
`, n.dir, n.name, n.overlay, r.more))
	r.startMesh(n, h, config, hosts)
}

func (r *wireguardRig) startMesh(n *meshNode, h *lab.Host, config, hosts string) {
	r.t.Helper()
	line := withHosts(hosts, r.program, "mesh", "--config", config)
	n.role = &role{host: h, log: filepath.Join(r.dir, "mesh-"+filepath.Base(n.dir)+".log"), args: line}
	n.process = labtest.Start(r.t, h, n.log, nil, line...)
}

// withHosts has a command see another /etc/hosts, if one is named.
func withHosts(hosts string, line ...string) []string {
	if hosts == "" {
		return line
	}
	return append([]string{"unshare", "--mount", "sh", "-c", `mount --bind "$0" /etc/hosts && exec "$@"`, hosts}, line...)
}

// status is what a mesh says of itself.
func (r *wireguardRig) meshStatus(n *meshNode) (st mesh.Status, err error) {
	out, err := labtest.Run(n.host, startWithin, nil, r.program, "mesh", "status", "--admin-socket", mesh.AdminSocket(n.dir+"/run"), "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &st)
	}
	return st, err
}

// meets wants a machine to have a direct path to a peer, at an address if one is given.
func (r *wireguardRig) meets(n *meshNode, peer, at string) time.Duration {
	r.t.Helper()
	return r.meetsWithin(reconnectWithin, n, peer, at)
}

func (r *wireguardRig) meetsWithin(within time.Duration, n *meshNode, peer, at string) time.Duration {
	r.t.Helper()
	return r.eventually(n.name+" meets "+peer, within, n.role, func() error {
		st, err := r.meshStatus(n)
		if err != nil {
			return err
		}
		p, err := st.Peer(peer)
		if err != nil {
			return err
		}
		if p.State != "direct" || !strings.HasPrefix(p.Path, at) {
			return fmt.Errorf("%s by %q: %s; %v", p.State, p.Path, p.Why, st.Warnings)
		}
		return nil
	})
}

// forward starts what carries connections on an endpoint machine.
func (r *wireguardRig) forward(n *meshNode, clusters string) *role {
	r.t.Helper()
	config := r.file(n, "forward.yaml", fmt.Sprintf("apiVersion: tombolo.dev/v1alpha1\nkind: VPNForwardConfig\nlisten: %s:1194\nclusters:\n%s",
		n.overlay, clusters))
	return r.startEnd(n.host, "forward", "forward-"+n.name, config)
}

// share has a cluster and an endpoint machine share a secret that nobody else has.
func (r *wireguardRig) share(cluster, endpoint *meshNode) {
	r.t.Helper()
	secret, err := os.ReadFile(filepath.Join(cluster.dir, "cluster.secret"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.file(endpoint, "secrets/"+cluster.name, string(secret))
}

func member(n *meshNode, more string) string {
	return fmt.Sprintf("- {name: %s, publicKey: %s, overlay4: %s, mesh: 1%s}\n", n.name, n.key, n.overlay, more)
}

// pings reports whether an address answers a host.
func pings(h *lab.Host, to string) bool {
	_, err := labtest.Run(h, startWithin, nil, "ping", "-c", "1", "-W", "1", to)
	return err == nil
}

// answers wants an address to answer a host.
func answers(h *lab.Host, to string) error {
	if !pings(h, to) {
		return errors.New("no answer")
	}
	return nil
}

// TestVPNOverWireGuard: two clusters behind NATs reach two endpoint machines of a seed over WireGuard, each with a secret
// of its own. The VPN of the first one goes by the endpoint that its address prefers, and by the other one when that
// dies; it follows the first one to another machine. The second cluster is a hostile one.
func TestVPNOverWireGuard(t *testing.T) {
	t.Parallel()
	base := newRig(t, "wgvpn", 2, 1)
	seed := base.server("seed", seedAddr)
	base.startHub()
	base.startAgent(0, 0)
	r := &wireguardRig{vpnRig: vpnOn(base, seed, seedAddr), nodes: map[string]*meshNode{}}
	e1, e2 := r.node("e1", endpointOverlay), r.node("e2", otherOverlay)
	c1, c2 := r.node("c1", firstCluster), r.node("c2", secondCluster)
	names := r.file(c1, "hosts", "127.0.0.1 localhost\n"+otherEndpointAddr+" e2.seed.test\n")

	clusters := ""
	for _, c := range []*meshNode{c1, c2} {
		clusters += member(c, ", secretFile: secrets/"+c.name)
		r.share(c, e1)
		r.share(c, e2)
	}
	machine, other, moved := r.server("e1", endpointAddr), r.server("e2", otherEndpointAddr), r.server("e2b", movedEndpointAddr)
	third := r.seedLAN(machine, other)
	r.mesh(e1, machine, clusters, "")
	r.mesh(e2, other, clusters, "")
	reach := func(more string) string {
		return member(e1, ", endpoints: ['"+endpointAddr+":51820']"+more) + member(e2, ", endpointNames: ['e2.seed.test:51820']")
	}
	r.mesh(c1, r.world.Sites[0].Agents[0], reach(""), names)
	hostile := reach(", ranges: [" + firstCluster + "/32, " + seedPrivate + "/32, 10.60.1.0/24]")
	r.mesh(c2, r.world.Sites[1].Agents[0], strings.ReplaceAll(hostile, "endpointNames: ['e2.seed.test:51820']",
		"endpoints: ['"+otherEndpointAddr+":51820']"), "")
	r.serve(other, otherEndpointAddr+":7000", "c2") // the server of the second cluster, for this test

	targets := fmt.Sprintf("- {name: c1, address: %s, target: '%s:1194'}\n- {name: c2, address: %s, target: '%s:7000'}\n",
		firstCluster, seedAddr, secondCluster, otherEndpointAddr)
	first, second := r.forward(e1, targets), r.forward(e2, targets)
	server := r.startServer(r.seed, "server", fmt.Sprintf("identity: {bundle: %s}\n", r.path("server.pem")))
	for _, c := range []*meshNode{c1, c2} {
		r.meets(c, "e1", endpointAddr)
		r.meets(c, "e2", otherEndpointAddr)
	}
	for _, x := range []*role{first, second} {
		r.ready(x, 8451)
	}
	r.opens(r.seed, seedAddr+":1194")
	r.opens(c1.host, otherOverlay+":1194") // which it prefers
	client := r.startClient(0, fmt.Sprintf("[{addresses: ['%s:1194', '%s:1194']}]\nprefer: %s", endpointOverlay, otherOverlay, firstCluster))
	r.ready(client, 8450)
	r.ready(server, 8449)

	passes := func() error {
		conn, _, err := r.dialFrom(r.seed, mapped("7000"))
		if err == nil {
			conn.Close()
		}
		return err
	}
	conn, _ := r.mustDial(r.seed, mapped("7000"))
	conn.Close()
	by := func() string {
		if st := r.status(client, r.path("run-client-1")+"/vpn-client/vpn.sock"); len(st.Tunnels) == 1 {
			return st.Tunnels[0].By
		}
		return ""
	}
	if got := by(); got != otherOverlay+":1194" {
		t.Errorf("an odd address goes by %q, want the second endpoint", got)
	}
	if st, err := r.meshStatus(e1); err != nil || st.EngineWhy == "" || st.Engine == "auto" {
		t.Errorf("the engine is %q because %q: %v", st.Engine, st.EngineWhy, err)
	}

	config := r.file(e1, "routes.yaml", fmt.Sprintf("apiVersion: tombolo.dev/v1alpha1\nkind: VPNRoutesConfig\nrange: 192.168.128.0/22\n"+
		"endpoints: [{name: e1, address: %s}, {name: e2, address: %s}]\n", endpointLAN, otherLAN))
	route := r.startEnd(third, "routes", "routes", config)
	r.ready(route, 8452)
	r.via(route, otherLAN)
	reaches := func() error { return answers(third, firstCluster) }
	r.eventually("another machine of the seed reaches the cluster", reconnectWithin, route, reaches)

	t.Run("clusters do not see each other, nor the seed", func(t *testing.T) { r.isolated(c2, e1) })

	// The machine that carries the tunnel is cut off and dies, and its name gets another address.
	for _, link := range []string{"eth0", "lan"} {
		if _, err := labtest.Run(other, startWithin, nil, "ip", "link", "set", link, "down"); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []*role{second, e2.role} {
		x.process.Signal(syscall.SIGKILL)
		<-x.process.Done()
	}
	r.file(c1, "hosts", "127.0.0.1 localhost\n"+movedEndpointAddr+" e2.seed.test\n")
	took := r.eventually("packets pass by the other endpoint", takeOverWithin, client, func() error {
		if err := passes(); err != nil {
			return err
		}
		if got := by(); got != endpointOverlay+":1194" {
			return fmt.Errorf("by %s", got)
		}
		return nil
	})
	t.Attr("figure", fmt.Sprintf("new connections after the loss of an endpoint: %v", took.Round(100*time.Millisecond)))

	took = r.via(route, endpointLAN)
	t.Attr("figure", fmt.Sprintf("after that the route of another machine had to be waited for: %v", took.Round(100*time.Millisecond)))
	r.eventually("it reaches the cluster by the other endpoint", reconnectWithin, route, reaches)
	t.Run("clusters open nothing towards the seed's machines", func(t *testing.T) { r.closedTowards(c2, e1, third) })
	r.routeEnds(route)

	up := e2.said("mesh is up")
	r.mesh(e2, moved, clusters, "")
	r.awaitSaid(e2, "mesh is up", up)
	// A peer that has been away for more than a minute is sought each 25 s alone.
	took = r.meetsWithin(25*time.Second+reconnectWithin, c1, "e2", movedEndpointAddr)
	t.Attr("figure", fmt.Sprintf("an endpoint is found by its name at another machine: %v", took.Round(100*time.Millisecond)))
	r.eventually("it answers there", reconnectWithin, e2.role, func() error { return answers(c1.host, otherOverlay) })
}

// seedLAN puts the endpoint machines, which pass on packets, and a third one into one network.
func (r *wireguardRig) seedLAN(machine, other *lab.Host) (third *lab.Host) {
	r.t.Helper()
	lan, err := r.lab.Host("seedlan")
	if err == nil {
		third, err = r.lab.Host("third")
	}
	if err == nil {
		err = errors.Join(lab.LAN(lan, "lan0", "10.60.1.254/24"), lab.Join(lan, "lan0", machine, "lan", endpointLAN+"/24"),
			lab.Join(lan, "lan0", other, "lan", otherLAN+"/24"), lab.Join(lan, "lan0", third, "lan", thirdLAN+"/24"),
			machine.Sysctl("ipv4/ip_forward", "1"), other.Sysctl("ipv4/ip_forward", "1"))
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return third
}

// isolated wants a hostile cluster to reach an endpoint's own address, its own server, and nothing else.
func (r *wireguardRig) isolated(from, endpoint *meshNode) {
	t := r.t
	if _, err := labtest.Run(endpoint.host, startWithin, nil, "ip", "address", "add", seedPrivate+"/32", "dev", "lo"); err != nil {
		t.Fatal(err)
	}
	for _, way := range []struct {
		h  *lab.Host
		to string
	}{{from.host, endpoint.overlay}, {r.nodes["c1"].host, endpoint.overlay}, {endpoint.host, firstCluster}} {
		reaches := func() error { return answers(way.h, way.to) }
		r.eventually(way.h.Name()+" reaches "+way.to, reconnectWithin, nil, reaches)
	}
	for _, to := range []string{firstCluster, seedPrivate} {
		out, err := labtest.Run(from.host, startWithin, nil, r.program, "mesh", "explain", "--admin-socket",
			mesh.AdminSocket(from.dir+"/run"), to)
		if err != nil || !strings.Contains(out, endpoint.name) {
			t.Errorf("packets for %s are not sent to %s, so nothing is shown: %v\n%s", to, endpoint.name, err, out)
		}
		if pings(from.host, to) {
			t.Errorf("%s reaches %s", from.name, to)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if conn, err := from.host.DialContext(ctx, "tcp", to+":1194"); err == nil {
			conn.Close()
			t.Errorf("%s connects to %s", from.name, to)
		}
		cancel()
	}
	r.eventually("its own server greets it", reconnectWithin, nil, func() error {
		conn, _, who, err := heard(from.host, endpoint.overlay+":1194")
		if err != nil {
			return err
		}
		if conn.Close(); who != "c2" {
			return fmt.Errorf("%q does", who)
		}
		return nil
	})
}
