// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/test/lab"
)

var errNotYet = errors.New("not yet")

// awaitKey waits until a node has a handshake with another one's new key.
func awaitKey(n, other *node, key string) {
	n.rig.t.Helper()
	n.rig.eventually(n.name+" has the new key of "+other.name, n.role, func() error {
		out, err := n.verb("status", "-o", "json")
		if err == nil && !strings.Contains(out, key) {
			err = errNotYet
		}
		return err
	})
}

// pod is a host behind a node, in a range that the node announces.
type pod struct {
	host  *lab.Host
	addr  string
	share string // the range
	// addr6 and share6 are those of IPv6, if it has some.
	addr6, share6 string
}

// bridge is how network plugins call the link to a node's pods.
const bridge = "cni0"

// podBehind plugs a host into the node's machine by a link of the name, which forwards
// for it.
func (r *rig) podBehind(place *lab.Place, link string, number int) pod {
	r.t.Helper()
	host, err := r.lab.Host(place.Host.Name() + "-pod")
	if err != nil {
		r.t.Fatal(err)
	}
	p := pod{host: host, addr: fmt.Sprintf("10.99.%d.10", number), share: fmt.Sprintf("10.99.%d.0/24", number)}
	gateway := fmt.Sprintf("10.99.%d.1", number)
	err = errors.Join(
		place.Host.Sysctl("ipv4/ip_forward", "1"),
		r.lab.Link(lab.End{Host: place.Host, Name: link, Addr: gateway}, lab.End{Host: host, Name: "eth0", Addr: p.addr}),
		host.Default(gateway), host.Echo(echo), r.lab.AwaitLinks())
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// TestMeshRoaming: everything around two nodes changes while packets flow between pods
// behind them. The packets find their way again each time, and none of them in clear.
func TestMeshRoaming(t *testing.T) {
	t.Parallel()
	r := ofPlaces(t, "port-restricted", "port-restricted", "dual-stack")
	here, there := r.grid.All[0], r.grid.All[1]
	podA, podB := r.podBehind(here, bridge, 1), r.podBehind(there, bridge, 2)
	a := r.node(here, settings{ranges: []string{podA.share}})
	b := r.node(there, settings{ranges: []string{podB.share}})
	w := &walk{rig: r, a: a, b: b, podA: podA, podB: podB, wires: map[string]*lab.Capture{"a": a.wire, "b": b.wire}}
	w.others(a)
	w.before = w.kernel(a.host)
	together(a, b)
	known(a, b)
	awaitDirect(a, b)
	w.flows("at first")
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"the public address changes", w.renumbered},
		{"the router forgets its mappings", w.forgotten},
		{"the hub is killed and comes back", w.hubKilled},
		{"the discovery service is away", w.discoveryAway},
		{"a node sleeps", w.slept},
		{"a node is killed", w.killed},
		{"a node ends", w.ended},
		{"the node is carried to another network", w.moved},
	} {
		if !r.step(step.name, step.do) {
			break // what follows would tell of this one again
		}
	}
}

// walk is the rig of TestMeshRoaming.
type walk struct {
	*rig
	a, b       *node
	podA, podB pod
	wires      map[string]*lab.Capture // at every cable that the nodes had
	before     string                  // what a's kernel had
}

// flows waits until packets pass in both directions, between the nodes and their pods.
func (w *walk) flows(when string) time.Duration {
	w.t.Helper()
	begin := time.Now()
	var longest time.Duration
	for _, f := range []*lab.Flood{
		w.a.flood(w.b.overlay4), w.b.flood(w.a.overlay6),
		w.rig.flood(w.podA.host, netip.MustParseAddr(w.podB.addr)), w.rig.flood(w.podB.host, netip.MustParseAddr(w.podA.addr)), w.a.flood(netip.MustParseAddr(w.podB.addr)),
	} {
		longest = max(longest, w.awaitAfter(f, begin))
		f.End()
	}
	w.t.Logf("%s: packets pass after %v", when, longest.Round(time.Millisecond))
	return longest
}

// again waits for packets and then for the direct way.
func (w *walk) again(t *testing.T, when string) {
	t.Helper()
	begin := time.Now()
	w.flows(when)
	t.Logf("%s: direct after %v", when, max(0, awaitDirect(w.a, w.b).Sub(begin)).Round(time.Millisecond))
	w.deaf(t)
}

// deaf: nobody on any cable has heard what was said within the mesh.
func (w *walk) deaf(t *testing.T) {
	t.Helper()
	for name, wire := range w.wires {
		if heard, err := wire.With([]byte(marker)); err != nil || heard > 0 {
			t.Errorf("%d packets at %s in clear (%v)", heard, name, err)
		}
	}
}

func (w *walk) renumbered(t *testing.T) {
	old := w.a.place.Public4
	fresh, err := w.a.place.Renumber()
	if err != nil {
		t.Fatal(err)
	}
	w.again(t, "with another address")
	w.eventually("b reaches a at its new address", nil, func() error {
		p, err := w.b.peer(w.a)
		if err == nil && !strings.HasPrefix(p.Path, fresh.String()+":") {
			err = fmt.Errorf("it does by %s; the address was %s, and is %s", p.Path, old, fresh)
		}
		return err
	})
}

func (w *walk) forgotten(t *testing.T) {
	if err := errors.Join(w.a.place.Forget(), w.b.place.Forget()); err != nil {
		t.Fatal(err)
	}
	w.again(t, "after the mappings")
}

// hubKilled: what goes direct does not need the hub, and nodes come back to it.
func (w *walk) hubKilled(t *testing.T) {
	f := w.a.flood(w.b.overlay4)
	w.awaitAfter(f, time.Now())
	begin := time.Now()
	if err := w.hub.process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-w.hub.process.Done()
	w.eventually("a notices that its hub is away", w.a.role, func() error { return w.a.hubs(false) })
	w.flows("without a hub")
	w.startHub()
	for _, n := range []*node{w.a, w.b} {
		w.eventually(n.name+" is at the hub again", n.role, func() error { return n.hubs(true) })
	}
	w.noneLost("they go the direct way, and the hub is away", begin, time.Now(), f)
	f.End()
	w.again(t, "with the hub again")
}

// hubs says nil if the node has, or has not, a connection to some hub.
func (n *node) hubs(connected bool) error {
	s, err := n.status()
	if err != nil {
		return err
	}
	some := false
	for _, h := range s.Hubs {
		some = some || h.Connected
	}
	if some != connected {
		return fmt.Errorf("connected: %v", some)
	}
	return nil
}

// discoveryAway: who knows each other stays so, and finds itself again.
func (w *walk) discoveryAway(t *testing.T) {
	if err := w.discovery.process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-w.discovery.process.Done()
	w.flows("without discovery")
	if err := w.a.place.Forget(); err != nil {
		t.Fatal(err)
	}
	w.again(t, "without discovery and mappings")
	w.startDiscovery()
	w.flows("with discovery again")
}

// slept: a machine that stands still for longer than its paths live.
func (w *walk) slept(t *testing.T) {
	f := w.b.flood(w.a.overlay4)
	w.awaitAfter(f, time.Now())
	w.a.signal(syscall.SIGSTOP)
	w.eventually("b sees that a does not answer", w.b.role, func() error {
		p, err := w.b.peer(w.a)
		if err == nil && p.State == direct {
			err = errNotYet
		}
		return err
	})
	if err := w.a.place.Forget(); err != nil { // meanwhile
		t.Error(err)
	}
	w.a.signal(syscall.SIGCONT)
	t.Logf("packets pass %v after it woke up", w.awaitAfter(f, time.Now()).Round(time.Millisecond))
	f.End()
	w.again(t, "after its sleep")
}

// killed: without the program nothing leaves the machine for the peer's ranges, and
// soon after its restart everything passes again.
func (w *walk) killed(t *testing.T) {
	w.a.kill()
	dead := time.Now()
	floods := []*lab.Flood{
		w.a.flood(w.b.overlay4), w.a.flood(w.b.overlay6), w.a.flood(netip.MustParseAddr(w.podB.addr)), w.rig.flood(w.podA.host, netip.MustParseAddr(w.podB.addr)),
	}
	const tries = 25
	w.eventually("packets were tried without the program", nil, func() error {
		for _, f := range floods {
			if f.Lost(dead).Sent < tries {
				return errNotYet
			}
		}
		return nil
	})
	for _, f := range floods {
		if _, came := f.FirstAfter(dead); came {
			t.Errorf("a packet of %s came back without the program", f)
		}
	}
	w.requireDeaf("a", w.a.wire, w.a.place)
	started := time.Now()
	w.a.begin()
	w.a.awaitUp()
	up := time.Now()
	for _, f := range floods {
		w.requireSoon(t, f, started, up)
		f.End()
	}
	w.again(t, "after the restart")
}

// moved: like a laptop, with its programs running, to a network with other addresses.
func (w *walk) moved(t *testing.T) {
	place, err := w.a.place.MoveTo(w.grid.All[2])
	if err != nil {
		t.Fatal(err)
	}
	w.a.place, w.a.wire = place, w.capture(place)
	w.wires["a at its other place"] = w.a.wire
	w.again(t, "in another network")
	p, err := w.b.peer(w.a)
	if err != nil || !strings.HasPrefix(p.Path, place.Public4.String()+":") {
		t.Errorf("b reaches a by %q, want by %s (%v)", p.Path, place.Public4, err)
	}
	w.requireNoClearText(w.a, w.b)
}

// others puts rules of somebody else into a node's kernel.
func (w *walk) others(n *node) {
	w.t.Helper()
	const rules = `table inet others { chain forward { type filter hook forward priority 10; policy accept; ip daddr 203.0.113.250 counter drop; }; }`
	if _, err := w.command(n.host, nil, "nft", rules); err != nil {
		w.t.Fatal(err)
	}
}

// ended: a graceful end takes everything away that the mesh has made, and others know
// at once that the node has gone.
func (w *walk) ended(t *testing.T) {
	w.a.stop()
	if after := w.kernel(w.a.host); after != w.before {
		t.Errorf("the end has left\n%s\nof what was\n%s", after, w.before)
	}
	w.eventually("b knows that a has left", w.b.role, func() error {
		if p, err := w.b.peer(w.a); err == nil && p.State != "down" {
			return fmt.Errorf("it has it %s", p.State)
		}
		return nil
	})
	together(w.a)
	w.again(t, "after the next start")
}
