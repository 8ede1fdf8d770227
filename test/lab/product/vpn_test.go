// SPDX-License-Identifier: Apache-2.0

//go:build lab

package product

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

const (
	seedAddr       = "198.51.100.50"
	otherSeedAddr  = "198.51.100.51"
	vpnDestination = "outbound|1194||vpn-seed-server.shoot--p--c1.svc.cluster.local"
	vpnMapped      = "240.1.0." // of 10.42.0.0/24
)

// vpnRig is a control plane with a VPN server, an edge in front of it, and a cluster behind a NAT.
type vpnRig struct {
	*rig
	site       int // of the cluster, from 0
	vpnDir     string
	handshake  string // tlsAuth or tlsCrypt
	seed, edge *lab.Host
	front      *role
}

func newVPNRig(t *testing.T, word string, agents int) *vpnRig {
	r := newRig(t, word, 1, agents)
	seed := r.server("seed", seedAddr)
	r.startHub()
	r.startAgent(0, 0) // a cluster is known by its first agent
	return vpnOn(r, seed, seedAddr)
}

// vpnOn makes what both ends need, for a server at a host.
func vpnOn(of *rig, seed *lab.Host, addr string) *vpnRig {
	of.t.Helper()
	r := &vpnRig{rig: of, vpnDir: filepath.Join(of.dir, "vpn"), handshake: "tlsAuth", seed: seed, edge: of.server("edge", edgeAddr)}
	if err := os.Mkdir(r.vpnDir, 0o755); err != nil {
		r.t.Fatal(err)
	}
	r.issue("server", "vpn-server", "--host", addr, "--host", otherSeedAddr)
	r.issue("apiserver", "client")
	if _, err := labtest.Run(r.world.Control, startWithin, nil, r.program, "vpn", "key", "--out", r.path("tls.key")); err != nil {
		r.t.Fatal(err)
	}
	r.startFront(addr)
	return r
}

func (r *vpnRig) path(name string) string { return filepath.Join(r.vpnDir, name) }

func (r *vpnRig) issue(name, role string, more ...string) {
	r.t.Helper()
	r.verb(append([]string{"certificate", "issue", "--role", role, "--cluster", clusterOf(r.site), "--name", name, "--out", r.path(name + ".pem")},
		more...)...)
}

func (r *vpnRig) write(name, text string) string {
	r.t.Helper()
	if err := os.WriteFile(r.path(name), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return r.path(name)
}

// startFront starts the edge with its CONNECT port.
func (r *vpnRig) startFront(server string) {
	r.t.Helper()
	r.write("tenant.yaml", `apiVersion: tombolo.dev/v1alpha1
kind: EdgeTenant
metadata: {name: c1}
spec:
  ways:
  - {flow: vpn, destinations: ["`+vpnDestination+`"], upstreams: ["`+server+`:1194"]}
`)
	config := r.write("edge.yaml", fmt.Sprintf(`apiVersion: tombolo.dev/v1alpha1
kind: EdgeConfig
listeners:
- {name: connect, listen: "%s:8132", protocol: connect}
tenants: [%s]
runDir: %s/run-edge
`, edgeAddr, r.path("tenant.yaml"), r.vpnDir))
	r.front = &role{host: r.edge, log: filepath.Join(r.dir, "edge.log")}
	r.front.process = labtest.Start(r.t, r.edge, r.front.log, nil, r.program, "edge", "--config", config)
	r.eventually("the edge is ready", startWithin, r.front,
		func() error { return labtest.Ready(r.edge, "http://127.0.0.1:8447/readyz", nil) })
}

// startServer starts a server on a host; more is what its configuration has beside the rest.
func (r *vpnRig) startServer(h *lab.Host, name, more string) *role {
	r.t.Helper()
	config := r.write(name+".yaml", fmt.Sprintf(`apiVersion: tombolo.dev/v1alpha1
kind: VPNServerConfig
cluster: %s
runDir: %s/run-%s
log: {level: debug}
%s: %s
ranges: [{range: 10.42.0.0/24, as: 240.1.0.0/24}]
connect: {}
%s`, clusterOf(r.site), r.vpnDir, name, r.handshake, r.path("tls.key"), more))
	return r.startEnd(h, "server", name, config)
}

func (r *vpnRig) startEnd(h *lab.Host, end, name, config string) *role {
	r.t.Helper()
	x := &role{host: h, log: filepath.Join(r.dir, clusterOf(r.site)+"-"+name+".log"), args: []string{"vpn", end, "--config", config}}
	x.process = labtest.Start(r.t, h, x.log, nil, append([]string{r.program}, x.args...)...)
	return x
}

// startClient starts a client on an agent's host.
func (r *vpnRig) startClient(i int, servers string) *role {
	r.t.Helper()
	name := fmt.Sprintf("client-%d", i+1)
	r.issue(name, "vpn-client")
	config := r.write(name+".yaml", fmt.Sprintf(`apiVersion: tombolo.dev/v1alpha1
kind: VPNClientConfig
cluster: %s
runDir: %s/run-%s
log: {level: debug}
identity: {bundle: %s}
%s: %s
ranges: [{range: 10.42.0.0/24, as: 240.1.0.0/24}]
servers: %s
`, clusterOf(r.site), r.vpnDir, name, r.path(name+".pem"), r.handshake, r.path("tls.key"), servers))
	return r.startEnd(r.world.Sites[r.site].Agents[i], "client", name, config)
}

func (r *vpnRig) ready(x *role, port int) {
	r.t.Helper()
	r.eventually("packets pass", reconnectWithin, x, func() error {
		return labtest.Ready(x.host, fmt.Sprintf("http://127.0.0.1:%d/readyz", port), nil)
	})
}

// throughEdge is a server as a client reaches it by the edge.
const throughEdge = `[{address: "vpn.c1.example.org:1194", proxy: {address: "` + edgeAddr + `:8132", destination: "` + vpnDestination + `"}}]`

// mapped is the address by which the backend is reached, with a port.
func mapped(port string) string {
	return vpnMapped + lab.BackendAddr[strings.LastIndexByte(lab.BackendAddr, '.')+1:] + ":" + port
}

// mustDial is dialFrom where packets pass: one may still be lost.
func (r *vpnRig) mustDial(h *lab.Host, to string) (conn net.Conn, in *bufio.Reader) {
	r.t.Helper()
	r.eventually(to+" greets", reconnectWithin, nil, func() (err error) {
		conn, in, err = r.dialFrom(h, to)
		return err
	})
	return conn, in
}

// dialFrom connects from a host to the cluster, and wants its greeting.
func (r *vpnRig) dialFrom(h *lab.Host, to string) (net.Conn, *bufio.Reader, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), 3*time.Second)
	defer cancel()
	conn, err := h.DialContext(ctx, "tcp", to)
	if err != nil {
		return nil, nil, err
	}
	conn.SetDeadline(time.Now().Add(time.Minute))
	in := bufio.NewReader(conn)
	line, err := in.ReadString('\n')
	if err == nil && line != greeting+clusterOf(r.site)+"\n" {
		err = fmt.Errorf("%q", line)
	}
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	return conn, in, nil
}

// echoes wants a connection to carry a text there and back.
func (r *vpnRig) echoesText(conn net.Conn, in *bufio.Reader, text string) error {
	conn.SetDeadline(time.Now().Add(reconnectWithin))
	if _, err := fmt.Fprintln(conn, text); err != nil {
		return err
	}
	line, err := in.ReadString('\n')
	if err == nil && line != text+"\n" {
		err = fmt.Errorf("%q came back", line)
	}
	return err
}

// connectTo asks a server for a target by CONNECT, as kube-apiserver does.
func (r *vpnRig) connectTo(server, bundle, target string) error {
	cert, ca, err := trust.ReadBundle("client", r.path(bundle))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), 5*time.Second)
	defer cancel()
	raw, err := r.world.Control.DialContext(ctx, "tcp", server+":9443")
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	conn := tls.Client(raw, &tls.Config{ServerName: server, RootCAs: roots, Certificates: []tls.Certificate{*cert}})
	defer conn.Close()
	_, name, err := greeted(conn, target, 5*time.Second)
	if err == nil && name != "c1" {
		err = fmt.Errorf("%s answers", name)
	}
	return err
}

func (r *vpnRig) status(x *role, socket string) (st admin.VPNStatus) {
	r.t.Helper()
	out, err := labtest.Run(x.host, startWithin, nil, r.program, "vpn", "status", "--admin-socket", socket, "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &st)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return st
}

// TestVPN: a server beside a control plane and clients in a cluster behind a NAT, which dial through the edge.
func TestVPN(t *testing.T) {
	t.Parallel()
	r := newVPNRig(t, "vpn", 2)
	server := r.startServer(r.seed, "server", fmt.Sprintf("identity: {bundle: %s}\n", r.path("server.pem")))
	first := r.startClient(0, throughEdge)
	r.ready(first, 8450)
	r.ready(server, 8449)

	conn, in := r.mustDial(r.seed, mapped("7000"))
	defer conn.Close()
	if err := r.echoesText(conn, in, strings.Repeat("x", 100_000)); err != nil {
		t.Errorf("a large text: %v", err)
	}
	backend, _, _ := strings.Cut(mapped(""), ":")
	if out, err := labtest.Run(r.seed, startWithin, nil, "ping", "-c", "1", "-W", "5", "-s", "1400", backend); err != nil {
		t.Errorf("ping: %v %s", err, out)
	}
	if err := r.connectTo(seedAddr, "apiserver.pem", lab.BackendAddr+":7000"); err != nil {
		t.Errorf("CONNECT: %v", err)
	}
	r.refusals()

	r.opensNothing(first)

	t.Run("a certificate is renewed under traffic", func(t *testing.T) {
		before := r.status(first, r.path("run-client-1")+"/vpn-client/vpn.sock")
		if err := os.Rename(r.path("client-1.pem"), r.path("former.pem")); err != nil {
			t.Fatal(err)
		}
		r.issue("client-1", "vpn-client")
		r.eventually("it shows the new one", reconnectWithin, first, func() error {
			st := r.status(first, r.path("run-client-1")+"/vpn-client/vpn.sock")
			if st.Expires.After(before.Expires) && st.Unready == "" && st.Tunnels[0].Since.After(before.Tunnels[0].Since) {
				return nil
			}
			return fmt.Errorf("until %v, %s", st.Expires, st.Unready)
		})
		if err := r.echoesText(conn, in, "still here"); err != nil {
			t.Errorf("the connection has not lived on: %v", err)
		}
	})

	for range 20 { // of nobody, who says nothing: more than there may be clients
		if idle, err := first.host.DialContext(t.Context(), "tcp", seedAddr+":1194"); err == nil {
			defer idle.Close()
		}
	}
	second := r.startClient(1, throughEdge)
	r.ready(second, 8450)
	socket := r.path("run-server") + "/vpn-server/vpn.sock"
	r.eventually("the second client stands by", reconnectWithin, server, func() error {
		st := r.status(server, socket)
		if len(st.Peers) == 2 && st.Peers[0].Active && !st.Peers[1].Active && !st.Peers[1].Answered.IsZero() {
			return nil
		}
		return fmt.Errorf("%+v", st.Peers)
	})

	r.edits(server, first, second, socket)

	t.Run("a client dies", func(t *testing.T) {
		st := r.status(server, socket)
		at := 0
		for i, name := range []string{"client-1", "client-2"} {
			for _, p := range st.Peers {
				if p.Active && p.Name == name {
					at = i
				}
			}
		}
		victim := []*role{first, second}[at]
		victim.process.Signal(syscall.SIGKILL)
		<-victim.process.Done()
		took := r.eventually("new connections go through the other one", reconnectWithin, server, func() error {
			c, _, err := r.dialFrom(r.seed, mapped("7000"))
			if err == nil {
				c.Close()
			}
			return err
		})
		t.Attr("figure", fmt.Sprintf("new connections after a client's kill -9: %v", took.Round(100*time.Millisecond)))
		victim.process = labtest.Start(t, victim.host, victim.log, nil, append([]string{r.program}, victim.args...)...)
		r.ready(victim, 8450)
	})

	t.Run("OpenVPN dies under a connection", func(t *testing.T) {
		c, in := r.mustDial(r.seed, mapped("7000"))
		defer c.Close()
		r.killOpenVPN(filepath.Join(r.path("run-server"), "vpn-server", "openvpn"))
		if err := r.echoesText(c, in, "still here"); err != nil {
			t.Errorf("the connection has not lived on: %v", err)
		}
		r.ready(server, 8449)
	})

	t.Run("nothing is left", func(t *testing.T) {
		for _, x := range []*role{server, first, second} {
			x.process.Signal(syscall.SIGTERM)
			<-x.process.Done()
			for _, look := range [][]string{{"ip", "-o", "link"}, {"ip", "rule"}, {"ip", "-6", "rule"}, {"nft", "list", "tables"}} {
				out, err := labtest.Run(x.host, startWithin, nil, look[0], look[1:]...)
				if err != nil || strings.Contains(out, "tombolo-vpn") || strings.Contains(out, "tombolo_vpn") || strings.Contains(out, "lookup 182") {
					t.Errorf("%s: %v left %v\n%s", x.log, look, err, out)
				}
			}
		}
	})
}

// edits changes what a server's configuration and the kernel of a client say, while both run.
func (r *vpnRig) edits(server, first, second *role, socket string) {
	t := r.t
	t.Run("who may come no more is sent away", func(t *testing.T) {
		text, err := os.ReadFile(r.path("server.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		r.write("server.yaml", string(text)+"clients: [client-1]\n")
		r.eventually("the other one is gone", reconnectWithin, server, func() error {
			if st := r.status(server, socket); len(st.Peers) != 1 || st.Peers[0].Name != "client-1" {
				return fmt.Errorf("%+v", st.Peers)
			}
			return nil
		})
		r.write("server.yaml", string(text))
		r.ready(second, 8450)
	})

	t.Run("rules that somebody removes are put back", func(t *testing.T) {
		if _, err := labtest.Run(first.host, startWithin, nil, "nft", "flush", "ruleset"); err != nil {
			t.Fatal(err)
		}
		r.eventually("they are back", reconnectWithin, first, func() error {
			_, err := labtest.Run(first.host, startWithin, nil, "nft", "list", "chain", "inet", "tombolo_vpn0", "input")
			return err
		})
	})
}

// opensNothing tries to reach the server's machine from the cluster.
func (r *vpnRig) opensNothing(client *role) {
	r.t.Run("the cluster opens nothing", func(t *testing.T) {
		for _, to := range []string{"192.168.123.1:9443", "192.168.123.1:22"} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if c, err := client.host.DialContext(ctx, "tcp", to); err == nil {
				c.Close()
				t.Errorf("the cluster reached %s", to)
			}
			cancel()
		}
	})
}

// refusals tries what a CONNECT may not do.
func (r *vpnRig) refusals() {
	r.t.Helper()
	for target, want := range map[string]string{
		"192.0.2.1:443": "policy_denied", "10.43.0.1:443": "policy_denied", "169.254.169.254:80": "policy_denied",
		lab.BackendAddr + ":1": "dial_refused",
	} {
		err := r.connectTo(seedAddr, "apiserver.pem", target)
		var refused *refusal
		if !errors.As(err, &refused) || refused.code != want {
			r.t.Errorf("%s: %v, want %s", target, err, want)
		}
	}
	r.issue("not-a-client", "vpn-client")
	if err := r.connectTo(seedAddr, "not-a-client.pem", lab.BackendAddr+":7000"); err == nil {
		r.t.Error("a vpn-client was served by CONNECT")
	}
}

// killOpenVPN kills the process with a configuration in a folder.
func (r *vpnRig) killOpenVPN(dir string) {
	r.t.Helper()
	if err := syscall.Kill(r.openVPN(dir), syscall.SIGKILL); err != nil {
		r.t.Fatal(err)
	}
}

// openVPN is the process with a configuration in a folder.
func (r *vpnRig) openVPN(dir string) (pid int) {
	r.t.Helper()
	out, err := exec.Command("pgrep", "-f", "--", "--config "+filepath.Join(dir, "openvpn.conf")).Output()
	if err == nil {
		pid, err = strconv.Atoi(strings.TrimSpace(string(out)))
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return pid
}

// wrote wants a text in a log.
func (r *vpnRig) wrote(log, text string) error {
	data, err := os.ReadFile(log)
	if err == nil && !strings.Contains(string(data), text) {
		err = fmt.Errorf("%s does not say %s", filepath.Base(log), text)
	}
	return err
}
