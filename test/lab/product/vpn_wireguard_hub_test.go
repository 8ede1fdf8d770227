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
	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// TestWireGuardByTheHub: what the hub writes for an endpoint and for a cluster is all that their meshes and the forward
// need, and a cluster that is switched off is let in no more.
func TestWireGuardByTheHub(t *testing.T) {
	t.Parallel()
	r := &wireguardRig{vpnRig: &vpnRig{rig: newRig(t, "wghub", 1, 1)}, nodes: map[string]*meshNode{}}
	r.vpnDir = r.dir
	e1 := r.node("e1", endpointOverlay)
	r.configuredHub(fmt.Sprintf(`clusters: [{name: c1}]
wireguard:
  range: 192.168.128.0/22
  vpnServer: "{cluster}.seed.test:7000"
  endpoints: [{name: e1, address: "%s:51820", publicKey: "%s"}]
`, endpointAddr, e1.key), "")

	side := filepath.Join(r.dir, "c1-side")
	r.verb("cluster", "wireguard", "c1", "--on", "--directory", side)
	r.verb("cluster", "wireguard", "--endpoint", "e1", "--directory", e1.dir)
	machine := r.server("e1", endpointAddr)
	r.serve(machine, endpointAddr+":7000", "c1") // the cluster's server
	names := r.file(e1, "hosts", "127.0.0.1 localhost\n"+endpointAddr+" c1.seed.test\n")
	r.more = ", policies: [" + r.file(e1, "policy.yaml", `apiVersion: tombolo.dev/v1alpha1
kind: AccessPolicy
rules: [{name: forward, sources: [192.168.128.0/22], allow: ["`+endpointOverlay+`:1194"]}]
`) + "]"
	r.serve(machine, "0.0.0.0:7001", "c1") // as an sshd or a kubelet would listen
	r.mesh(e1, machine, "", names)

	c1 := &meshNode{name: "c1", dir: side}
	r.asWritten(c1, r.world.Sites[0].Agents[0], "")
	r.meets(c1, "e1", endpointAddr)
	forward := r.forwardAsWritten(e1, names)
	greets := func() error {
		conn, _, err := r.dialFrom(c1.host, endpointOverlay+":1194")
		if err == nil {
			conn.Close()
		}
		return err
	}
	r.eventually("the cluster reaches its server by the endpoint", reconnectWithin, forward, greets)
	if conn, _, err := r.dialFrom(c1.host, endpointOverlay+":7001"); err == nil {
		conn.Close()
		t.Error("it reaches another port of the endpoint")
	}

	r.verb("cluster", "wireguard", "c1", "--off")
	r.verb("cluster", "wireguard", "--endpoint", "e1", "--directory", e1.dir)
	r.eventually("it is let in no more", reconnectWithin, forward, func() error {
		if greets() == nil {
			return errors.New("it is")
		}
		return nil
	})
}

// asWritten starts the mesh of a cluster with the files as the hub has written them, but for where its sockets are.
func (r *wireguardRig) asWritten(n *meshNode, h *lab.Host, hosts string) {
	r.t.Helper()
	config := filepath.Join(n.dir, "mesh.yaml")
	text, err := os.ReadFile(config)
	changed := strings.Replace(string(text), "node:\n", "node:\n  runDir: "+n.dir+"/run\n", 1)
	if err := errors.Join(err, os.WriteFile(config, []byte(changed), 0o600)); err != nil {
		r.t.Fatal(err)
	}
	r.startMesh(n, h, config, hosts)
}

// forwardAsWritten is forward with the file that the hub has written.
func (r *wireguardRig) forwardAsWritten(n *meshNode, hosts string) *role {
	r.t.Helper()
	x := &role{host: n.host, log: filepath.Join(r.dir, "forward-"+filepath.Base(n.dir)+".log")}
	x.process = labtest.Start(r.t, n.host, x.log, nil,
		withHosts(hosts, r.program, "vpn", "forward", "--config", filepath.Join(n.dir, "forward.yaml"))...)
	return x
}

// opens waits until a connection from a machine is taken. A client that cannot connect to the endpoint that it prefers
// takes another one, and stays there.
func (r *wireguardRig) opens(from *lab.Host, to string) {
	r.t.Helper()
	r.eventually(to+" takes connections of "+from.Name(), reconnectWithin, nil, func() error {
		conn, err := dialWithin(3*time.Second, from, to)
		if err == nil {
			conn.Close()
		}
		return err
	})
}

// closedTowards dials the seed's machines from a hostile cluster that sends their range to an endpoint, by which they reach
// the cluster in the same moment. That the packets would find their way is shown by an endpoint that announces the range:
// the cluster reaches them for as long as it does.
func (r *wireguardRig) closedTowards(from, endpoint *meshNode, machine *lab.Host) {
	t := r.t
	t.Helper()
	machines := map[string]*lab.Host{thirdLAN + ":7002": machine, endpointLAN + ":7002": endpoint.host}
	for at, h := range machines {
		r.serve(h, at, "a machine of the seed")
		if conn, _, who, err := heard(machine, at); err != nil {
			t.Errorf("nobody listens at %s, so nothing is shown: %v", at, err)
		} else if conn.Close(); who != "a machine of the seed" {
			t.Errorf("%q listens at %s", who, at)
		}
	}
	r.serve(from.host, from.overlay+":7003", "the cluster")
	none := func() error {
		for at := range machines {
			if conn, _, who, err := heardWithin(time.Second, from.host, at); err == nil {
				conn.Close()
				return fmt.Errorf("%s reaches %q at %s", from.name, who, at)
			}
		}
		return nil
	}
	closed := func() {
		t.Helper()
		if conn, _, who, err := heard(machine, from.overlay+":7003"); err != nil || who != "the cluster" {
			t.Errorf("the machine reaches the cluster no more: %q, %v", who, err)
		} else {
			conn.Close()
		}
		if err := none(); err != nil {
			t.Error(err)
		}
		if pings(from.host, thirdLAN) {
			t.Errorf("%s answers to %s", thirdLAN, from.name)
		}
	}
	closed()
	r.announces(endpoint, ", ranges: [10.60.1.0/24]")
	r.eventually("the cluster reaches what the endpoint announces", reconnectWithin, endpoint.role, func() error {
		for at := range machines {
			conn, _, who, err := heardWithin(time.Second, from.host, at)
			if err != nil {
				return err
			}
			if conn.Close(); who != "a machine of the seed" {
				return fmt.Errorf("%q", who)
			}
		}
		return nil
	})
	r.announces(endpoint, "")
	r.eventually("it reaches them no more", reconnectWithin, endpoint.role, none)
	closed()
}

// announces changes what a machine announces beside its address, and waits until it has read that.
func (r *wireguardRig) announces(n *meshNode, more string) {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(n.dir, "mesh.yaml"))
	if err != nil {
		r.t.Fatal(err)
	}
	loaded := n.said("configuration loaded")
	before, rest, _ := strings.Cut(string(text), "announce: {overlay4: "+n.overlay)
	_, after, _ := strings.Cut(rest, "}")
	r.file(n, "mesh.yaml", before+"announce: {overlay4: "+n.overlay+more+"}"+after)
	if err := n.process.Signal(syscall.SIGHUP); err != nil {
		r.t.Fatal(err)
	}
	r.awaitSaid(n, "configuration loaded", loaded)
}

// table is what a machine has in the table of the route.
func (r *wireguardRig) table(x *role) string {
	r.t.Helper()
	out, err := labtest.Run(x.host, startWithin, nil, "sh", "-c", "ip route show table 190; ip rule show | grep 190 || true")
	if err != nil && !strings.Contains(err.Error(), "FIB table does not exist") {
		r.t.Fatal(err)
	}
	return out
}

// via wants the route to go to a machine.
func (r *wireguardRig) via(x *role, hop string) time.Duration {
	r.t.Helper()
	return r.eventually("the route goes to "+hop, takeOverWithin, x, func() error {
		if out := r.table(x); !strings.Contains(out, "192.168.128.0/22 via "+hop+" dev lan") || !strings.Contains(out, "unreachable") {
			return errors.New(out)
		}
		return nil
	})
}

// routeEnds kills what keeps the route, which the next one takes over and removes.
func (r *wireguardRig) routeEnds(x *role) {
	r.t.Helper()
	x.process.Signal(syscall.SIGKILL)
	<-x.process.Done()
	if out := r.table(x); !strings.Contains(out, "via "+endpointLAN) {
		r.t.Errorf("after a kill there is %q", out)
	}
	x.process = labtest.Start(r.t, x.host, x.log, nil, append([]string{r.program}, x.args...)...)
	r.ready(x, 8452)
	r.via(x, endpointLAN)
	x.process.Signal(syscall.SIGTERM)
	<-x.process.Done()
	if out := r.table(x); out != "" {
		r.t.Errorf("a graceful stop left %q", out)
	}
}

// isAt wants a cluster to be on or off, with an address that it keeps.
func isAt(t *testing.T, hub *rig, cluster string, on bool, address string) (k admin.WireGuardCluster) {
	t.Helper()
	hub.eventually(fmt.Sprintf("%s is on: %v", cluster, on), startWithin, hub.hub, func() error {
		hub.verbJSON(&k, "cluster", "wireguard", cluster, "-o", "json")
		if k.On != on || k.Address != address {
			return fmt.Errorf("%+v", k)
		}
		return nil
	})
	return k
}

// sameFiles wants both hubs to write the same files for the cluster's side.
func (s *seedRig) sameFiles(to *rig, n *meshNode) {
	s.t.Helper()
	at := s.directory("files")
	for name, hub := range map[string]*rig{"from": s.rig, "to": to} {
		hub.verb("cluster", "wireguard", n.name, "--directory", filepath.Join(at, name), "--at", "/etc/tombolo/wireguard")
	}
	for _, name := range []string{"cluster.secret", "state/wireguard.key", "members.yaml", "mesh.yaml"} {
		a, err := os.ReadFile(filepath.Join(at, "from", name))
		b, other := os.ReadFile(filepath.Join(at, "to", name))
		if err := errors.Join(err, other); err != nil || string(a) != string(b) {
			s.t.Errorf("%s of the cluster is another one at the other hub: %v", name, err)
		}
	}
}
