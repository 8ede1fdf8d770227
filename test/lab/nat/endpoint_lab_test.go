// SPDX-License-Identifier: Apache-2.0

//go:build lab

package nat_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/mesh/endpoint"
	"github.com/tombolo-io/tombolo/internal/mesh/nat"
	"github.com/tombolo-io/tombolo/internal/mesh/netcheck"
	"github.com/tombolo-io/tombolo/internal/mesh/portmap"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
	"github.com/tombolo-io/tombolo/test/lab"
)

// asNode is set in a process of this test that is a node, with the mesh's real socket.
const asNode = "TOMBOLO_TEST_ENDPOINT"

// nodeConfig is what such a node is told.
type nodeConfig struct {
	Servers     []endpoint.Server
	PortMapping bool
	UPnP        bool // no NAT-PMP
	Relay       string
}

// nodeWord is what it says when it is asked.
type nodeWord struct {
	Status         endpoint.Status
	Moved, Changed int64
	Check          json.RawMessage
	UDP            nat.Tri
}

// beNode is what `tombolo mesh` does with the package. It answers each line of its
// input, and ends gracefully with it.
func beNode(text string) (err error) {
	var c nodeConfig
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	tun, err := tunnel.OpenTun(ctx, "tombolo0", 1420, tunnel.AllOffloads())
	if err != nil {
		return err
	}
	socket, err := tunnel.OpenSocket(ctx, tunnel.SocketConfig{Port: lab.NodePort, Mark: 0x20, Offloads: tunnel.AllOffloads()})
	if err != nil {
		return err
	}
	engine, err := tunnel.Open(ctx, tunnel.Parts{Socket: socket, Tun: tun, Log: log})
	if err != nil {
		return err
	}
	var moved, changed atomic.Int64
	p := endpoint.Parts{
		Socket: socket, Servers: func() []endpoint.Server { return c.Servers }, PortMapping: c.PortMapping,
		Overlay: func() []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix("100.112.0.0/12")} },
		Moved:   func() { moved.Add(1) }, Changed: func() { changed.Add(1) }, Log: log, Metrics: telemetry.NewEndpoint(prometheus.NewRegistry()),
		Relays: func() []netcheck.Relay { return []netcheck.Relay{{Name: "hub", Measure: dial(c.Relay)}} },
	}
	if c.UPnP {
		p.Ways = []portmap.Mapper{portmap.UPnP{}}
	}
	e, err := endpoint.New(p)
	if err != nil {
		return err
	}
	g := run.NewGroup(ctx)
	g.Go("socket", func(ctx context.Context) error {
		return socket.Run(ctx, tunnel.Handlers{STUN: func(from netip.AddrPort, _ netip.Addr, b []byte) { e.STUN(from, b) }})
	})
	g.Go("endpoints", e.Run)
	out := json.NewEncoder(os.Stdout)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		w := nodeWord{Status: e.Status(), Moved: moved.Load(), Changed: changed.Load()}
		if in.Text() == "check" {
			r, err := e.Netcheck(ctx)
			if err != nil {
				return err
			}
			w.UDP = r.UDP
			if w.Check, err = json.Marshal(r); err != nil {
				return err
			}
		}
		if err := out.Encode(w); err != nil {
			return err
		}
	}
	g.Stop()
	return errors.Join(g.Wait(), engine.Close(), socket.Close())
}

// dial measures how long a TCP connection takes to come about.
func dial(address string) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) {
		begin := time.Now()
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return 0, err
		}
		return time.Since(begin), conn.Close()
	}
}

// node is such a process.
type node struct {
	t    *testing.T
	in   io.WriteCloser
	out  *json.Decoder
	p    *lab.Process
	errs bytes.Buffer
	last nodeWord
}

func startNode(t *testing.T, h *lab.Host, c nodeConfig) *node {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), asNode+"="+string(text))
	inRead, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, outWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inRead, outWrite, &n.errs
	n.in, n.out = in, json.NewDecoder(out)
	if n.p, err = h.Start(cmd); err != nil {
		t.Fatal(err)
	}
	inRead.Close()
	outWrite.Close()
	t.Cleanup(func() { in.Close(); n.p.Wait(); out.Close() })
	return n
}

func (n *node) say(word string) nodeWord {
	n.t.Helper()
	var w nodeWord
	if _, err := io.WriteString(n.in, word+"\n"); err != nil {
		n.t.Fatal(err)
	}
	if err := n.out.Decode(&w); err != nil {
		n.in.Close()
		n.t.Fatalf("%v, %v: %s", err, n.p.Wait(), n.errs.String())
	}
	n.last = w
	return w
}

// until waits until the list is as it should be.
func (n *node) until(what string, want ...string) {
	n.t.Helper()
	n.await(what, func(list []string) bool { return slices.Equal(list, want) })
}

func (n *node) await(what string, ok func(list []string) bool) {
	n.t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		var list []string
		for _, e := range n.say("status").Status.Endpoints {
			list = append(list, string(e.Kind)+" "+e.At.String())
		}
		if ok(list) {
			n.t.Logf("%s: %q", what, list)
			return
		}
		if time.Now().After(end) {
			n.t.Fatalf("%s: %q; %+v", what, list, n.last.Status)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// end ends the node gracefully.
func (n *node) end() {
	n.t.Helper()
	n.in.Close()
	if err := n.p.Wait(); err != nil {
		n.t.Fatalf("%v: %s", err, n.errs.String())
	}
}

func hubs(g *lab.Grid) (out []endpoint.Server) {
	for _, s := range slices.Concat(g.STUN4, g.STUN6) {
		out = append(out, endpoint.Server{Name: "hub", HostPort: s.String()})
	}
	return out
}

// TestEndpointsBehindAHomeNAT: the list has the endpoint that the world sees; after the
// provider renumbers, and after the router lost its mappings, it has the new one.
func TestEndpointsBehindAHomeNAT(t *testing.T) {
	t.Parallel()
	g := gridOf(t, "crowded")
	n := startNode(t, g.A.Host, nodeConfig{Servers: hubs(g)})
	own := "own " + netip.AddrPortFrom(g.A.Addr4, lab.NodePort).String()
	at := func(a netip.Addr, list []string) bool {
		return len(list) == 2 && list[0] == own && strings.HasPrefix(list[1], "mapped "+a.String()+":")
	}
	n.await("at first", func(list []string) bool { return at(g.A.Public4, list) })
	first := n.last.Status.Endpoints[1].At
	if first.Port() == lab.NodePort {
		t.Errorf("%v: the neighbour has that port", first)
	}
	// The router is switched off and on: the port is nobody's, and the node is first.
	if err := g.A.Forget(); err != nil {
		t.Fatal(err)
	}
	n.until("without mappings", own, "mapped "+netip.AddrPortFrom(g.A.Public4, lab.NodePort).String())
	fresh, err := g.A.Renumber()
	if err != nil {
		t.Fatal(err)
	}
	n.await("renumbered", func(list []string) bool { return at(fresh, list) })
	if n.last.Moved != 0 || n.last.Status.Varies {
		t.Errorf("%+v", n.last)
	}
	n.end()
}

// TestEndpointsOfAMovedNode: another address of its own; the paths must prove themselves.
func TestEndpointsOfAMovedNode(t *testing.T) {
	t.Parallel()
	g := gridOf(t, "port-restricted")
	n := startNode(t, g.A.Host, nodeConfig{Servers: hubs(g)})
	seen := "mapped " + netip.AddrPortFrom(g.A.Public4, lab.NodePort).String()
	own := "own " + netip.AddrPortFrom(g.A.Addr4, lab.NodePort).String()
	n.until("at first", own, seen)
	if err := g.A.Host.Run(t.Context(), exec.Command("ip", "address", "add", "10.77.0.1/24", "dev", "eth0")); err != nil {
		t.Fatal(err)
	}
	n.until("another address", own, "own 10.77.0.1:51820", seen)
	if n.last.Moved != 1 {
		t.Errorf("moved %d times", n.last.Moved)
	}
	if err := g.A.Host.Run(t.Context(), exec.Command("ip", "link", "add", "veth9", "type", "veth", "peer", "name", "veth8")); err != nil {
		t.Fatal(err)
	}
	if err := g.A.Host.Run(t.Context(), exec.Command("ip", "route", "replace", "default", "via", g.A.Gateway4.String(), "metric", "77")); err != nil {
		t.Fatal(err)
	}
	n.await("another default route", func([]string) bool { return n.last.Moved == 2 })
	n.end()
}

// TestEndpointsOfARouterThatMaps: the mapped port is told, by NAT-PMP and by UPnP alike,
// and taken away at the end.
func TestEndpointsOfARouterThatMaps(t *testing.T) {
	t.Parallel()
	for name, upnp := range map[string]bool{"nat-pmp": false, "upnp": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := gridOf(t, "port-mapped")
			rules := func() string {
				cmd := exec.Command("nft", "list", "table", "inet", "miniupnpd")
				var out bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &out
				if err := g.A.Router.Run(t.Context(), cmd); err != nil {
					t.Fatalf("%v: %s", err, out.String())
				}
				return out.String()
			}
			n := startNode(t, g.A.Host, nodeConfig{Servers: hubs(g), PortMapping: true, UPnP: upnp, Relay: netip.AddrPortFrom(netip.MustParseAddr(lab.HubAddr), 443).String()})
			want := "portmap " + netip.AddrPortFrom(g.A.Public4, lab.NodePort).String()
			n.await("mapped", func(list []string) bool { return len(list) > 2 && slices.Contains(list, want) })
			if s := n.last.Status.PortMapping; s.Method != name || !s.Until.After(time.Now()) {
				t.Errorf("%+v", s)
			}
			if text := rules(); !strings.Contains(text, "51820") {
				t.Errorf("the router maps nothing: %s", text)
			}
			// A check beside it takes nothing away.
			if w := n.say("check"); w.UDP != nat.Yes || !strings.Contains(string(w.Check), `"method":"`+name+`"`) {
				t.Errorf("%s", w.Check)
			}
			if text := rules(); !strings.Contains(text, "51820") {
				t.Errorf("the check took the mapping away: %s", text)
			}
			// A router that was restarted has forgotten it: what STUN servers see tells so.
			if err := errors.Join(g.A.Mapping.Stop(), g.A.Forget()); err != nil {
				t.Fatal(err)
			}
			var err error
			if g.A.Mapping, err = lab.StartPortMapping(g.A.Router, "lan", "wan", true); err != nil {
				t.Fatal(err)
			}
			n.await("mapped again", func([]string) bool { return strings.Contains(rules(), "51820") })
			n.await("told again", func(list []string) bool { return slices.Contains(list, want) })
			n.end()
			if text := rules(); strings.Contains(text, "51820") {
				t.Errorf("the router still maps: %s", text)
			}
		})
	}
}

// TestEndpointsOverIPv6Only, and where a NAT has another port for each destination.
func TestEndpointsOverIPv6Only(t *testing.T) {
	t.Parallel()
	g := gridOf(t, "ipv6-only")
	n := startNode(t, g.A.Host, nodeConfig{Servers: hubs(g), PortMapping: true})
	own := "own " + netip.AddrPortFrom(g.A.Addr6, lab.NodePort).String()
	n.await("at first", func(list []string) bool {
		answered := slices.ContainsFunc(n.last.Status.Servers, func(s endpoint.Asked) bool { return s.Mapped.IsValid() })
		return answered && slices.Equal(list, []string{own})
	})
	if w := n.say("check"); w.UDP != nat.Yes {
		t.Errorf("%s", w.Check)
	}
	n.end()
}

func TestEndpointsBehindASymmetricNAT(t *testing.T) {
	t.Parallel()
	g := gridOf(t, "symmetric")
	n := startNode(t, g.A.Host, nodeConfig{Servers: hubs(g)})
	n.await("two ports", func(list []string) bool { return len(list) == 3 && n.last.Status.Varies })
	for _, e := range n.last.Status.Endpoints[1:] {
		if e.Kind != endpoint.Mapped || e.At.Addr() != g.A.Public4 {
			t.Errorf("%+v", e)
		}
	}
	n.end()
}

// TestEndpointsWithoutUDP: it says so, and has its own addresses.
func TestEndpointsWithoutUDP(t *testing.T) {
	t.Parallel()
	g := gridOf(t, "udp-blocked")
	ln, err := g.Hub.Listen("tcp4", lab.HubAddr+":443")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	n := startNode(t, g.A.Host, nodeConfig{Servers: hubs(g), Relay: lab.HubAddr + ":443"})
	own := "own " + netip.AddrPortFrom(g.A.Addr4, lab.NodePort).String()
	n.await("nobody answers", func(list []string) bool {
		failing := func(s endpoint.Asked) bool { return s.Why == "no answer" && !s.Failing.IsZero() }
		return slices.Equal(list, []string{own}) && slices.ContainsFunc(n.last.Status.Servers, failing)
	})
	if w := n.say("check"); w.UDP != nat.No || !strings.Contains(string(w.Check), `"relays":[{"name":"hub","latencyMillis":`) {
		t.Errorf("%s", w.Check)
	}
	n.end()
}

// TestCheckWithoutAMesh: `tombolo mesh netcheck` where no mesh runs, in a process that is
// in the place's network.
func TestCheckWithoutAMesh(t *testing.T) {
	t.Parallel()
	g := gridOf(t, "port-mapped")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	text, err := json.Marshal(nodeConfig{Servers: hubs(g)})
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), alone+"="+string(text))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := g.A.Host.Run(t.Context(), cmd); err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	if text := out.String(); !strings.Contains(text, `"udp":"yes"`) || !strings.Contains(text, `"method":"nat-pmp"`) || !strings.Contains(text, g.A.Public4.String()) {
		t.Errorf("%s", text)
	}
}

// alone is set in a process of this test that checks without a mesh.
const alone = "TOMBOLO_TEST_CHECK"

func checkAlone(text string) error {
	var c nodeConfig
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	r, err := endpoint.Check(context.Background(), endpoint.Standalone{Servers: c.Servers, PortMapping: true})
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}
