// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/test/lab"
)

// node is a machine that runs `tombolo mesh`.
type node struct {
	*role
	rig      *rig
	place    *lab.Place
	dir      string
	wire     *lab.Capture // of its cable, where all that leaves it passes
	overlay4 netip.Addr
	overlay6 netip.Addr
	started  meshStatus // what it said of itself when it was up
	up       int        // how often it has said so
}

// settings of a node beside those that the place asks for.
type settings struct {
	ranges []string                  // that it announces
	mesh   map[string]any            // fields of mesh
	more   map[string]map[string]any // fields of other sections
	// sources are all that the node has, if there are some: no hub, and no discovery service.
	sources map[string]any
}

// node makes a node at a place, with a token of its own, and starts nothing yet. A node
// that was made there before must have ended.
func (r *rig) node(place *lab.Place, set settings) *node {
	r.t.Helper()
	name := place.Host.Name()
	n := &node{rig: r, place: place, dir: filepath.Join(r.dir, name)}
	n.wire = r.capture(place)
	config := r.write(name+"/mesh.yaml", n.config(set))
	n.role = r.role("node-"+name, place.Host, "mesh", "--config", config)
	again := slices.ContainsFunc(r.nodes, func(other *node) bool { return other.host == n.host })
	r.nodes = append(r.nodes, n)
	if !again {
		if err := place.Host.Echo(echo); err != nil {
			r.t.Fatal(err)
		}
	}
	return n
}

// capture listens at the port of the LAN into which the place's node is plugged.
func (r *rig) capture(place *lab.Place) *lab.Capture {
	r.t.Helper()
	c, err := place.Router.Capture(place.Host.Name())
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// config is the node's: what its place has decides how it reaches the services.
func (n *node) config(set settings) string {
	r, k := n.rig, n.place.Kind
	service := map[string]any{"url": discoveryAt6, "pin": r.pin, "name": "lab"}
	var hubs []string
	if k.IPv6 {
		hubs = append(hubs, hubAt6)
	}
	if k.IPv4 {
		service["url"], hubs = discoveryAt4, append([]string{hubAt4}, hubs...)
	}
	sources, mesh := map[string]any{"services": []any{service}}, map[string]any{"hubs": hubs}
	if set.sources != nil {
		sources, mesh = set.sources, map[string]any{}
	} else {
		mesh["join"] = "@" + n.token()
	}
	if n.place.Proxy != nil {
		proxy := "http://" + n.place.Proxy.Addr()
		service["proxy"], mesh["proxy"] = proxy, proxy
	}
	for field, value := range set.mesh {
		mesh[field] = value
	}
	whole := map[string]any{
		"apiVersion": "tombolo.dev/v1alpha1", "kind": "MeshConfig",
		"cluster":      map[string]any{"secretFiles": []string{r.secret}},
		"node":         map[string]any{"name": n.place.Host.Name(), "stateDir": filepath.Join(n.dir, "state"), "runDir": filepath.Join(n.dir, "run")},
		"sources":      sources,
		"healthListen": "127.0.0.1:8448",
		"log":          map[string]any{"level": "debug"},
		"mesh":         mesh,
	}
	whole["announce"] = map[string]any{}
	if set.ranges != nil {
		whole["announce"] = map[string]any{"ranges": set.ranges}
	}
	for section, fields := range set.more {
		maps.Copy(whole[section].(map[string]any), fields)
	}
	text, err := json.MarshalIndent(whole, "", "  ") // which is YAML, too
	if err != nil {
		r.t.Fatal(err)
	}
	return string(text) + "\n"
}

// token asks the hub for the node's join line and returns the file with it.
func (n *node) token() string {
	r := n.rig
	r.t.Helper()
	out := r.verb(r.hub.host, "token", "create", "--cluster", cluster, "--node="+n.place.Host.Name(), "-o", "json",
		"--admin-socket", filepath.Join(r.dir, "hub-run", "admin", "hub.sock"))
	var token struct{ Join string }
	if err := json.Unmarshal([]byte(out), &token); err != nil {
		r.t.Fatal(err)
	}
	line, err := trust.ParseJoin(token.Join)
	if err = errors.Join(err, runtest.Plant("the secret of a node's join token", line.Secret)); err != nil {
		r.t.Error(err)
	}
	return r.write(n.place.Host.Name()+"/join", token.Join+"\n")
}

// begin starts the program; n may have run before.
func (n *node) begin() {
	n.rig.t.Helper()
	n.up = n.said("mesh is up")
	n.rig.start(n.role)
}

// awaitUp waits until the kernel has what the node wants, and learns its addresses.
func (n *node) awaitUp() {
	n.rig.t.Helper()
	n.rig.eventually(n.name+" is up", n.role, func() error {
		if n.said("mesh is up") == n.up {
			return errors.New("its log does not say so")
		}
		return nil
	})
	n.rig.eventually(n.name+" tells its addresses", n.role, func() error {
		s, err := n.status()
		if err != nil {
			return err
		}
		four, err4 := addrOf(s.Overlay4)
		six, err6 := addrOf(s.Overlay6)
		n.overlay4, n.overlay6, n.started = four, six, s
		return errors.Join(err4, err6)
	})
}

// addrOf reads an address, with or without a length.
func addrOf(text string) (netip.Addr, error) {
	text, _, _ = strings.Cut(text, "/")
	return netip.ParseAddr(text)
}

func (n *node) said(words string) int {
	log, _ := os.ReadFile(n.log)
	return strings.Count(string(log), words)
}

func (n *node) runs() bool {
	if n.process == nil {
		return false
	}
	select {
	case <-n.process.Done():
		return false
	default:
		return true
	}
}

func (n *node) signal(sig syscall.Signal) {
	n.rig.t.Helper()
	if err := n.process.Signal(sig); err != nil {
		n.rig.t.Fatal(err)
	}
}

// kill ends the program as nobody can prepare for.
func (n *node) kill() {
	n.rig.t.Helper()
	n.signal(syscall.SIGKILL)
	<-n.process.Done()
}

// stop ends the program gracefully.
func (n *node) stop() {
	n.rig.t.Helper()
	if err := n.process.Stop(stopGrace); err != nil {
		n.rig.t.Errorf("%s ended with %v after SIGTERM, want exit code 0", n.name, err)
	}
}

// verb runs `tombolo mesh` with arguments beside the node.
func (n *node) verb(args ...string) (string, error) {
	socket := filepath.Join(n.dir, "run", "mesh", "mesh.sock")
	return n.rig.command(n.host, []string{"TOMBOLO_MESH_SOCKET=" + socket}, n.rig.program, append([]string{"mesh"}, args...)...)
}

// meshStatus is what tests read of `tombolo mesh status -o json`.
type meshStatus struct {
	Kind      string   `json:"kind"`
	Node      string   `json:"node"`
	ID        string   `json:"id"`
	PublicKey string   `json:"publicKey"`
	Engine    string   `json:"engine"`
	EngineWhy string   `json:"engineWhy"`
	Secrets   []string `json:"secrets"`
	Overlay6  string   `json:"overlay6"`
	Overlay4  string   `json:"overlay4"`
	Hubs      []struct {
		Name      string `json:"name"`
		Connected bool   `json:"connected"`
	} `json:"hubs"`
	Announced []struct {
		Range   string   `json:"range"`
		Sources []string `json:"sources"`
	} `json:"announced"`
	Peers    []peerStatus `json:"peers"`
	Problems []struct {
		Kind  string `json:"kind"`
		Node  string `json:"node"`
		Range string `json:"range"`
		Other string `json:"other"`
		Why   string `json:"why"`
	} `json:"problems"`
	Warnings      []string `json:"warnings"`
	Configuration struct {
		Fault   *faultBody `json:"fault"`
		Waiting []string   `json:"waiting"`
	} `json:"configuration"`
	Policy *struct {
		Fault *faultBody `json:"fault"`
	} `json:"policy"`
	TunnelDropped []droppedPackets `json:"tunnelDropped"`
}

type droppedPackets struct {
	Reason  string `json:"reason"`
	Packets uint64 `json:"packets"`
}

// faultBody is a fault as it is printed as data.
type faultBody struct {
	Code string `json:"code"`
	What string `json:"what"`
	Why  string `json:"why"`
	Next string `json:"next"`
}

type peerStatus struct {
	ID         string    `json:"id"`
	Node       string    `json:"node"`
	Overlay6   string    `json:"overlay6"`
	Overlay4   string    `json:"overlay4"`
	Ranges     []string  `json:"ranges"`
	Engine     string    `json:"engine"`
	EngineWhy  string    `json:"engineWhy"`
	State      string    `json:"state"`
	Why        string    `json:"why"`
	Path       string    `json:"path"`
	Since      time.Time `json:"since"`
	MTU        int       `json:"mtu"`
	Handshake  string    `json:"handshake"`
	Secret     string    `json:"secret"`
	Probes     bool      `json:"probes"`
	Sent       uint64    `json:"sent"`
	Received   uint64    `json:"received"`
	Candidates []struct {
		At   string `json:"at"`
		Kind string `json:"kind"`
		Why  string `json:"why"`
	} `json:"candidates"`
	ESP                  string        `json:"esp"`
	SecurityAssociations []association `json:"securityAssociations"`
}

// association is a tunnel of IPsec.
type association struct {
	SPIIn  string `json:"spiIn"`
	SPIOut string `json:"spiOut"`
	Sends  bool   `json:"sends"`
	Raw    bool   `json:"raw"`
}

func (n *node) status() (meshStatus, error) {
	var s meshStatus
	out, err := n.verb("status", "-o", "json")
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		return s, fmt.Errorf("tombolo mesh status: %w\n%s", err, out)
	}
	if s.Kind != "MeshStatus" {
		return s, fmt.Errorf("tombolo mesh status printed a %q", s.Kind)
	}
	return s, nil
}

// peer is what the node says of another one.
func (n *node) peer(other *node) (peerStatus, error) {
	s, err := n.status()
	if err != nil {
		return peerStatus{}, err
	}
	name := other.host.Name()
	i := slices.IndexFunc(s.Peers, func(p peerStatus) bool { return p.Node == name || p.Node == "" && p.ID == name })
	if i < 0 {
		return peerStatus{}, fmt.Errorf("%s does not know %s", n.name, other.name)
	}
	return s.Peers[i], nil
}

// States of a peer.
const (
	idle    = "idle"
	direct  = "direct"
	relayed = "relayed"
)

// awaitState waits until each of two nodes has the other in a state, and returns what
// the first one says of the second.
func awaitState(a, b *node, state string) peerStatus {
	a.rig.t.Helper()
	var found peerStatus
	for _, of := range [][2]*node{{b, a}, {a, b}} {
		a.rig.eventually(fmt.Sprintf("%s has %s %s", of[0].name, of[1].name, state), of[0].role, func() (err error) {
			if found, err = of[0].peer(of[1]); err == nil && found.State != state {
				err = fmt.Errorf("it is %s: %s", found.State, found.Why)
			}
			return err
		})
	}
	return found
}

// awaitDirect waits for direct ways by the verb that users have for it, both ways
// round at once, and returns since when the later one is there.
func awaitDirect(a, b *node) time.Time {
	t := a.rig.t
	t.Helper()
	ended := make(chan error, 2)
	for _, of := range [][2]*node{{a, b}, {b, a}} {
		go func() {
			_, err := of[0].verb("ping", of[1].host.Name(), "--until-direct", "--timeout", patience.String())
			ended <- err
		}()
	}
	var errs []error
	for range 2 {
		errs = append(errs, <-ended)
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("no direct way: %v", err)
	}
	one, other := awaitState(a, b, direct), awaitState(b, a, direct)
	if one.Since.Before(other.Since) {
		return other.Since
	}
	return one.Since
}

// requireWay checks how a direct peer is reached.
func requireWay(n, other *node, families []int) {
	t := n.rig.t
	t.Helper()
	p := awaitState(n, other, direct)
	at, err := netip.ParseAddrPort(p.Path)
	if err != nil {
		t.Errorf("%s reaches %s by %q, want an endpoint", n.name, other.name, p.Path)
		return
	}
	family := 6
	if at.Addr().Unmap().Is4() {
		family = 4
	}
	if !slices.Contains(families, family) {
		t.Errorf("%s reaches %s by %s, which theory does not have: IPv%v", n.name, other.name, p.Path, families)
	}
	if at.Addr() == other.overlay4 || at.Addr() == other.overlay6 {
		t.Errorf("%s reaches %s by %s, through the mesh itself", n.name, other.name, p.Path)
	}
}
