// SPDX-License-Identifier: Apache-2.0

package system

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/base/store"
	"github.com/tombolo-io/tombolo/internal/edge"
	"github.com/tombolo-io/tombolo/internal/mesh/attach"
)

// front is a running edge.
type front struct {
	*process
	t            *testing.T
	port         string // on loopback
	records, dir string
	log          *journal
}

// startEdge runs an edge with one TLS port and no tenants.
func startEdge(t *testing.T) *front {
	t.Helper()
	f := &front{t: t, dir: runtest.Dir(t), log: &journal{}}
	f.records = filepath.Join(f.dir, "audit.jsonl")
	cfg, err := edge.ParseConfig("edge.yaml", fmt.Appendf(nil, "apiVersion: tombolo.dev/v1alpha1\nkind: EdgeConfig\n"+
		"healthListen: 127.0.0.1:0\nrunDir: %s\ntenants: [%s]\naudit: {path: %s}\nlisteners: [{name: tls, listen: '127.0.0.1:0', protocol: tls}]\n", runtest.Dir(t), f.dir, f.records))
	if err != nil {
		t.Fatal(err)
	}
	log, reg := f.log, prometheus.NewRegistry()
	writer, err := audit.New(cfg.Audit, audit.Options{Log: log.logger(), Reg: reg})
	if err != nil {
		t.Fatal(err)
	}
	e := edge.New(cfg, edge.Options{Log: log.logger(), Reg: reg, Audit: writer})
	f.process = start(func(soft, hard context.Context) error {
		return writer.While(soft, func() error { return e.Run(soft, hard) })
	})
	t.Cleanup(func() {
		if err := f.stop(); err != nil {
			t.Errorf("edge: %v", err)
		}
		if t.Failed() {
			t.Logf("edge's log:\n%s", tail(log.String()))
		}
	})
	runtest.Eventually(t, "the edge is ready", func() bool { return len(log.records("edge is ready")) > 0 })
	at := log.records("edge is ready")[0]["listen"].([]any)[0].(string)
	_, f.port, _ = strings.Cut(at, ":")
	return f
}

// tenant writes the file of one, whose ways are in YAML.
func (f *front) tenant(name, ways string) {
	f.t.Helper()
	text := "apiVersion: tombolo.dev/v1alpha1\nkind: EdgeTenant\nmetadata: {name: " + name + "}\nspec:\n  ways:\n" + ways
	if err := store.Write(filepath.Join(f.dir, name+".yaml"), []byte(text)); err != nil { // whole, or not at all
		f.t.Fatal(err)
	}
}

// TestOneDoorForAll: behind one address and port of an edge are an API server, a hub that is found by its name,
// and another one that is found by our protocols. Agents, nodes and clients work through it, and the hubs know
// them by their own addresses.
func TestOneDoorForAll(t *testing.T) {
	f := startEdge(t)
	behind := "proxyProtocol: {from: [127.0.0.0/8]}"
	named := startHub(t, hubSpec{name: "named", at: "localhost:" + f.port, extra: behind})
	other := startHub(t, hubSpec{name: "other", at: "127.0.0.1:" + f.port, extra: behind})
	api := runtest.Serve(t, func(c *net.TCPConn) {
		defer c.Close()
		s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{runtest.Certificate(t)}})
		io.Copy(s, s)
	})
	f.tenant("named", "  - {flow: vpn, names: [localhost], upstreams: ['"+named.listen+"'], proxyProtocol: v2}\n")
	f.tenant("other", "  - {flow: vpn, protocols: [tombolo-session/1, tombolo-join/1, tombolo-relay/1], upstreams: ['"+other.listen+"'], proxyProtocol: v1}\n")
	f.tenant("api", "  - {flow: api, names: [api.c1.example.org], upstreams: ['"+api.Addr()+"']}\n")
	runtest.Eventually(t, "the tenants are in force", func() bool {
		loaded := f.log.records("tenants loaded")
		return len(loaded) > 0 && loaded[len(loaded)-1]["tenants"] == 3.0
	})

	var peers []string // as the hubs know them
	for _, h := range []*testHub{named, other} {
		startAgent(t, agentSpec{join: h.token("c1").Join})
		line := h.nodeToken("c1", "", 2).String()
		a := startNode(t, attach.Config{Node: "a", Join: line}, nil).up(t)
		b := startNode(t, attach.Config{Node: "b", Join: line}, nil).up(t)
		reach(t, a, b)
		reach(t, b, a)
		st := h.status("c1")
		if len(st.Agents) != 1 || st.Relay.Nodes != 2 {
			t.Fatalf("%+v", st)
		}
		peers = append(peers, st.Agents[0].Peer, st.Relay.Connected[0].Peer, st.Relay.Connected[1].Peer)
	}
	dir := runtest.Dir(t)
	named.clientFiles(dir, "c1")
	conn, err := library("localhost:"+f.port, dir).DialContext(runtest.Within(t), "tcp", runtest.Echo(t).Addr())
	if err != nil {
		t.Fatal(err)
	}
	comesBack(t, conn)
	conn.Close()
	direct, err := tls.Dial("tcp", "127.0.0.1:"+f.port, &tls.Config{ServerName: "api.c1.example.org", InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	comesBack(t, direct)
	direct.Close()

	// Nobody goes past the edge, nor sends a header of their own through it.
	for name, text := range map[string]string{
		"none":   "",
		"twice":  "PROXY TCP4 203.0.113.7 192.0.2.1 4711 443\r\nPROXY TCP4 203.0.113.8 192.0.2.1 4711 443\r\n",
		"broken": "PROXY TCP4 203.0.113.7\r\n",
	} {
		c, err := net.Dial("tcp", named.listen)
		if err != nil {
			t.Fatal(err)
		}
		closing(t, c)
		io.WriteString(c, text)
		if err := tls.Client(c, &tls.Config{InsecureSkipVerify: true}).Handshake(); err == nil {
			t.Errorf("%s: a connection without a header of the edge was let in", name)
		}
	}
	refused := func() (n int) {
		for _, r := range named.log.records("refused") {
			if r["code"] == "proxy_header" {
				n++
			}
		}
		return n
	}
	runtest.Eventually(t, "the hub refused each", func() bool { return refused() == 3 })

	if err := f.stop(); err != nil {
		t.Error(err)
	}
	var sources []string
	clusters := map[string]int{}
	for _, r := range audited(t, f.records, audit.Filter{}) {
		sources = append(sources, r.Source)
		clusters[r.Cluster]++
	}
	for _, p := range peers {
		if !slices.Contains(sources, p) {
			t.Errorf("a hub knows a peer as %s, which the edge has never seen: %v", p, sources)
		}
	}
	if clusters["named"] < 4 || clusters["other"] < 3 || clusters["api"] != 1 || clusters[""] != 0 {
		t.Errorf("%v", clusters)
	}
}

// comesBack fails unless what is sent comes back.
func comesBack(t *testing.T, c net.Conn) {
	t.Helper()
	got := make([]byte, 5)
	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "hello" {
		t.Fatalf("%q, %v", got, err)
	}
}

// TestAnEdgeDialsThroughAHubThatAsksWhoCalls: a hub that knows its agents by what an edge tells of them takes the
// edge's own connections too, and from an edge that does not say whose they are it takes none.
func TestAnEdgeDialsThroughAHubThatAsksWhoCalls(t *testing.T) {
	h := startHub(t, hubSpec{extra: "proxyProtocol: {from: [127.0.0.0/8]}"})
	file := h.edgeFile("e1")
	e := startHubEdge(t, runtest.Dir(t), "hubs: [{name: h1, address: \""+h.listen+"\", certificate: "+file+", proxyProtocol: v2},"+
		" {name: mute, address: \""+h.listen+"\", certificate: "+file+"}]")
	api := runtest.Serve(t, func(c *net.TCPConn) {
		defer c.Close()
		s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{runtest.Certificate(t)}})
		io.Copy(s, s)
	})
	e.tenant(t, "hub", "  - {flow: vpn, protocols: [tombolo-session/1, tombolo-join/1], upstreams: ['"+h.listen+"'], proxyProtocol: v2}\n")
	e.tenant(t, "c1", "  - {flow: api, names: [api.c1], hubs: [{name: h1, target: '"+api.Addr()+"'}]}\n"+
		"  - {flow: api, names: [mute.c1], hubs: [{name: mute, target: '"+api.Addr()+"'}]}\n")
	runtest.Eventually(t, "the tenants are in force", func() bool { return e.tenants(t).InForce == 2 })
	startAgent(t, agentSpec{join: strings.ReplaceAll(h.token("c1").Join, h.listen, e.listen), extra: "hubs: ['" + e.listen + "']"})
	to := func(name string) (*tls.Conn, error) {
		return tls.Dial("tcp", e.listen, &tls.Config{ServerName: name, InsecureSkipVerify: true})
	}
	conn, err := to("api.c1")
	if err != nil {
		t.Fatal(err)
	}
	comesBack(t, conn)
	conn.Close()
	if conn, err := to("mute.c1"); err == nil {
		conn.Close()
		t.Error("the hub took a connection without a header")
	}
}
