// SPDX-License-Identifier: Apache-2.0

//go:build lab

package product

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

const (
	balancerAddr = "198.51.100.20" // what the world knows, with one port
	edgeAddr     = "198.51.100.30"
)

// haproxy is a TCP load balancer that tells the edge its clients, and looks often whether it lives. It gives each look
// 50 ms, which a busy machine may not have, and takes no edge away for that.
const haproxy = `
global
  maxconn 1000
defaults
  mode tcp
  timeout connect 5s
  timeout client 1h
  timeout server 1h
frontend front
  bind 198.51.100.20:443
  default_backend edges
backend edges
  option tcp-check
  server edge1 198.51.100.30:443 send-proxy-v2 check inter 50ms fall 1000
`

// TestOneDoorBehindALoadBalancer: clients behind a NAT, a real load balancer with the PROXY protocol, the edge, a hub,
// and two clusters with equal ranges, whose agents come in by the same door.
func TestOneDoorBehindALoadBalancer(t *testing.T) {
	t.Parallel()
	r := newRig(t, "door", 4, 1) // the last two are clients
	balancer, front := r.server("lb", balancerAddr), r.server("edge", edgeAddr)
	for i := range 2 {
		r.serveTLS(r.world.Sites[i].Backend, lab.BackendAddr+":7443", clusterOf(i))
	}
	state, run := r.directory("hub"), r.directory("run")
	r.hub = &role{
		host: r.world.Control, log: filepath.Join(r.dir, "hub.log"), writable: []string{state, run},
		args: []string{"hub", "--state-dir", state, "--run-dir", run, "--log-level", "debug", "--listen", ":8443", "--advertise", balancerAddr + ":443"},
	}
	r.startHub()
	dir := r.directory("edge")
	r.verb("certificate", "issue", "--role", "edge", "--name", "e1", "--out", filepath.Join(dir, "h1.pem"))
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte("apiVersion: tombolo.dev/v1alpha1\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "tenants"), 0o700); err != nil {
		t.Fatal(err)
	}
	client, stranger := r.world.Sites[2], r.world.Sites[3]
	records := filepath.Join(dir, "audit.jsonl")
	write("edge.yaml", fmt.Sprintf(`kind: EdgeConfig
listeners:
- {name: tls, listen: "%s:443", protocol: tls, proxyProtocol: {from: [%s]}}
hubs: [{name: h1, address: "%s:8443", certificate: %s/h1.pem}]
tenants: [%s/tenants]
policies: [%s/policy.yaml]
audit: {path: %s}
runDir: %s/run
`, edgeAddr, balancerAddr, lab.ControlAddr, dir, dir, dir, records, dir))
	write("policy.yaml", fmt.Sprintf(`kind: AccessPolicy
rules:
- {name: office, clusters: [c1, c2], flows: [api], sources: [%s], allow: ['*']}
`, client.Public))
	write("tenants/hub.yaml", `kind: EdgeTenant
metadata: {name: hub}
spec:
  ways:
  - {flow: vpn, protocols: [tombolo-session/1, tombolo-join/1, tombolo-relay/1], upstreams: ["`+lab.ControlAddr+`:8443"]}
`)
	for i := range 2 {
		write("tenants/"+clusterOf(i)+".yaml", strings.ReplaceAll(`kind: EdgeTenant
metadata: {name: NAME}
spec:
  ways:
  - {flow: api, names: [api.NAME.example.org], hubs: [{name: h1, target: "`+lab.BackendAddr+`:7443"}]}
`, "NAME", clusterOf(i)))
	}
	own := exec.Command("chown", "-R", fmt.Sprint(user, ":", user), dir)
	if out, err := own.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	e := &role{host: front, log: filepath.Join(r.dir, "edge.log"), writable: []string{dir}, args: []string{"edge", "--config", filepath.Join(dir, "edge.yaml")}}
	confined := &lab.Confinement{UID: user, GID: user, Writable: e.writable}
	if err := front.Sysctl("ipv4/ip_unprivileged_port_start", "0"); err != nil {
		t.Fatal(err)
	}
	e.process = labtest.Start(t, front, e.log, confined, append([]string{r.program}, e.args...)...)
	r.eventually("the edge is ready", startWithin, e, func() error { return labtest.Ready(front, "http://127.0.0.1:8447/readyz", nil) })
	config := filepath.Join(r.dir, "haproxy.cfg")
	if err := os.WriteFile(config, []byte(haproxy), 0o600); err != nil {
		t.Fatal(err)
	}
	labtest.Start(t, balancer, filepath.Join(r.dir, "haproxy.log"), nil, "haproxy", "-db", "-f", config)
	for i := range 2 { // whose join lines know the balancer alone
		r.startAgent(i, 0)
	}

	for range 3 {
		for i := range 2 {
			r.eventually("the client is let in", startWithin, e, func() error { return greetedOver(client.Agents[0], clusterOf(i)) })
		}
	}
	var alert tls.AlertError
	for i := range 2 {
		if err := greetedOver(stranger.Agents[0], clusterOf(i)); err == nil || !errors.As(err, &alert) && !strings.Contains(err.Error(), "access denied") {
			t.Errorf("%s let a stranger in: %v", clusterOf(i), err)
		}
	}
	if err := greetedOver(client.Agents[0], "c3"); err == nil {
		t.Error("an unknown name was let in")
	}
	r.eventually("the records are there", startWithin, e, func() error { return r.recorded(records, client, stranger) })
}

// recorded wants the records of what the clients did, by the addresses of their NATs, and no others.
func (r *rig) recorded(file string, client, stranger *lab.Site) error {
	allowed, denied, unknown := 0, 0, 0
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for in := audit.NewReader(file, bytes.NewReader(data)); ; {
		rec, err := in.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		host, _, _ := net.SplitHostPort(rec.Source)
		switch {
		case rec.Code == "ok" && rec.Egress == "api" && host == client.Public && rec.Verdict == audit.Allow && rec.Rule == "office" &&
			rec.Asked == "api."+rec.Cluster+".example.org":
			allowed++
		case rec.Code == "policy_denied" && host == stranger.Public && rec.Verdict == audit.Deny && rec.Reason != "":
			denied++
		case rec.Code == "name_unknown" && host == client.Public:
			unknown++
		case rec.Egress == "vpn" && (host == r.world.Sites[0].Public || host == r.world.Sites[1].Public):
		default: // a health check of the balancer, too
			return fmt.Errorf("a record that nobody has caused: %+v", rec)
		}
	}
	if allowed < 6 || denied != 2 || unknown != 1 {
		return fmt.Errorf("%d allowed, %d denied, %d unknown", allowed, denied, unknown)
	}
	return nil
}

// server adds a public server.
func (r *rig) server(name, addr string) *lab.Host {
	r.t.Helper()
	h, err := r.lab.Host(name)
	if err == nil {
		err = errors.Join(r.lab.Link(lab.End{Host: h, Name: "eth0", Addr: addr},
			lab.End{Host: r.world.Internet, Name: name, Addr: "198.51.100.1"}), h.Default("198.51.100.1"))
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return h
}

// serveTLS greets over TLS with the cluster's name.
func (r *rig) serveTLS(h *lab.Host, addr, cluster string) {
	r.t.Helper()
	ln, err := h.Listen("tcp", addr)
	if err != nil {
		r.t.Fatal(err)
	}
	cert := runtest.Certificate(r.t)
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				s := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{cert}})
				fmt.Fprintf(s, "%s%s\n", greeting, cluster)
				_ = s.CloseWrite()
				_, _ = io.Copy(io.Discard, s)
			}()
		}
	}()
}

// greetedOver asks for the API server of a cluster at the one door, and wants its own answer.
func greetedOver(h *lab.Host, cluster string) error {
	raw, err := h.DialContext(context.Background(), "tcp", balancerAddr+":443")
	if err != nil {
		return err
	}
	defer raw.Close()
	if err := raw.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	conn := tls.Client(raw, &tls.Config{ServerName: "api." + cluster + ".example.org", InsecureSkipVerify: true})
	if err := conn.Handshake(); err != nil {
		return err
	}
	defer conn.Close()
	line, err := io.ReadAll(conn) // to the end: unread bytes would reset the tunnel
	if err != nil || string(line) != greeting+cluster+"\n" {
		return fmt.Errorf("%s said %q: %v", cluster, line, err)
	}
	return nil
}
