// SPDX-License-Identifier: Apache-2.0

//go:build guest

package kernel_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/base/echo"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/base/stunserver"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/mesh/espudp"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/ipsec"
	"github.com/tombolo-io/tombolo/internal/mesh/keyconn"
	"github.com/tombolo-io/tombolo/internal/mesh/keyexchange"
	"github.com/tombolo-io/tombolo/internal/mesh/nat"
	meshtunnel "github.com/tombolo-io/tombolo/internal/mesh/tunnel"
	"github.com/tombolo-io/tombolo/test/lab"
)

// keyed are ends that agree on keys by themselves, on the port that their ESP has.
type keyed struct {
	*ends
	nodes [2]*keyedNode
	mu    sync.Mutex // of SPIs
}

type keyedNode struct {
	*side
	id        keyexchange.Identity
	socket    *espudp.Socket
	port      *keyconn.Port
	came      chan cameBy
	mu        sync.Mutex // of the device, and of what follows
	responded chan error
}

// cameBy is a probe, or a message of STUN.
type cameBy struct {
	from  netip.AddrPort
	local netip.Addr
	data  string
}

func newKeyed(t *testing.T) *keyed {
	k := &keyed{ends: newEnds(t)}
	k.open()
	g := run.NewGroup(context.Background())
	for i, s := range k.side {
		n := &keyedNode{side: s, came: make(chan cameBy, 64), responded: make(chan error, 1)}
		k.nodes[i] = n
		var err error
		if n.id, err = keyexchange.NewIdentity(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{byte(i)}, 32))); err != nil {
			t.Fatal(err)
		}
		s.do(t, func() (err error) {
			n.socket, err = espudp.Open(g.Context(), espudp.Settings{Port: espudp.Port, Mark: ipsecMark})
			return err
		})
		known := func(p keyexchange.Pin) bool { return p == k.nodes[1-i].id.Pin() }
		if n.port, err = keyconn.Open(n.socket.Packets(), n.id.Server(known), func(netip.Addr) bool { return true }); err != nil {
			t.Fatal(err)
		}
		take := func(from netip.AddrPort, local netip.Addr, b []byte) { n.came <- cameBy{from, local, string(b)} }
		g.Go("socket", func(ctx context.Context) error {
			return n.socket.Run(ctx, meshtunnel.Handlers{Probe: take, STUN: take})
		})
		g.Go("port", func(ctx context.Context) error {
			return n.port.Run(ctx, func(_ context.Context, c *keyconn.Conn) {
				_, err := keyexchange.Respond(c, n.id, 1, k.states(n, c))
				n.responded <- err
			})
		})
	}
	t.Cleanup(func() {
		g.Stop()
		err := g.Wait()
		for _, n := range k.nodes {
			err = errors.Join(err, n.port.Close(), n.socket.Close())
			n.do(t, func() error { return n.device.Close(false) })
		}
		if err != nil {
			t.Error(err)
		}
	})
	return k
}

// next is the next packet that was handed over.
func (n *keyedNode) next(t *testing.T) cameBy {
	t.Helper()
	select {
	case c := <-n.came:
		return c
	case <-runtest.Within(t).Done():
		t.Fatal("nothing was handed over")
		return cameBy{}
	}
}

// keyedStates are the kernel's, for the peer at the other end of a connection.
type keyedStates struct {
	*keyedNode
	k     *keyed
	to    netip.AddrPort
	local netip.Addr
}

func (k *keyed) states(n *keyedNode, c *keyconn.Conn) keyedStates {
	to, local := c.Ends()
	return keyedStates{n, k, to, local}
}

func (s keyedStates) Offered(keyexchange.Offer) error { return nil }

func (s keyedStates) SPI() (uint32, error) {
	s.k.mu.Lock()
	defer s.k.mu.Unlock()
	s.k.next++
	return s.k.next, nil
}

func (s keyedStates) Receive(spi uint32, key keyexchange.Key) error {
	return s.add(ipsec.State{Name: ipsec.Name{To: s.local, SPI: spi}, From: s.to.Addr(), FromPort: s.to.Port(),
		ToPort: espudp.Port}, key)
}

func (s keyedStates) Send(t keyexchange.Tunnel, key keyexchange.Key) error {
	return s.add(ipsec.State{Name: ipsec.Name{To: s.to.Addr(), SPI: t.Out}, From: s.local, FromPort: espudp.Port,
		ToPort: s.to.Port(), Sends: true}, key)
}

func (s keyedStates) add(st ipsec.State, key keyexchange.Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Peer, st.Key = 1, ipsec.NewKey(*key.Get())
	return s.device.Add(st)
}

// agree has one node open a connection to the other at an address, and gives the states of both that were made.
func (k *keyed) agree(t *testing.T, by int, to netip.AddrPort, local netip.Addr, epoch uint64) [2][]ipsec.Name {
	t.Helper()
	n, far := k.nodes[by], k.nodes[1-by]
	c, err := n.port.Dial(runtest.Within(t), to, local, n.id.Client(far.id.Pin()))
	if err != nil {
		t.Fatal(err)
	}
	got, err := keyexchange.Initiate(c, n.id, keyexchange.Offer{Epoch: epoch}, k.states(n, c))
	if err := errors.Join(err, c.Close(), <-far.responded); err != nil {
		t.Fatal(err)
	}
	var names [2][]ipsec.Name
	for i, x := range k.nodes { // those by which it sends first
		all, err := x.states()
		if err != nil {
			t.Fatal(err)
		}
		in, out := got.In, got.Out
		if i != by {
			in, out = out, in
		}
		for _, spi := range []uint32{out, in} {
			for _, s := range all {
				if s.SPI == spi {
					names[i] = append(names[i], s.Name)
				}
			}
		}
		if len(names[i]) != 2 {
			t.Fatalf("node %d has the states %v of %+v", i, all, got)
		}
	}
	return names
}

func (n *keyedNode) states() ([]ipsec.Seen, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.device.States()
}

// drop removes the states by which each node sends, or those by which it receives.
func (k *keyed) drop(t *testing.T, names [2][]ipsec.Name, which int) {
	t.Helper()
	for i, n := range k.nodes {
		n.mu.Lock()
		err := n.device.Remove(names[i][which])
		n.mu.Unlock()
		if err != nil {
			t.Error(err)
		}
	}
}

// spis are those of one node's states, as reach looks for them on the wire.
func spis(names [2][]ipsec.Name) []ipsec.Name { return names[0] }

// TestKeysOnThePortOfESP: two nodes agree on keys by QUIC on the port of their ESP in UDP, over IPv6, and over IPv4 with
// a NAT between them; probes and STUN pass beside it.
func TestKeysOnThePortOfESP(t *testing.T) {
	k := newKeyed(t)
	a, b := k.nodes[0], k.nodes[1]
	t.Run("over IPv6", func(t *testing.T) {
		k.t = t
		k.paths(1)
		names := k.agree(t, 0, netip.AddrPortFrom(b.outer[1], espudp.Port), a.outer[1], 1)
		k.reach(spis(names))
		k.ping(t)
		k.drop(t, names, 0)
		k.drop(t, names, 1)
	})
	router, err := k.wireHost.Translate("b", lab.Translation{Mapping: lab.AddressPortDependent,
		Filtering: lab.AddressPortDependent})
	if err == nil {
		err = router.On()
	}
	if err != nil {
		t.Fatal(err)
	}
	outside := netip.MustParseAddr("192.0.2.252")
	t.Run("behind a NAT", func(t *testing.T) {
		k.t = t
		at := k.probes(t, outside)
		k.stun(t, outside)
		a.do(t, func() error {
			return a.device.Apply([]ipsec.Peer{{ID: 1, Local: a.outer[0], Remote: b.outer[0], Ranges: b.ranges}})
		})
		b.do(t, func() error {
			return b.device.Apply([]ipsec.Peer{{ID: 1, Local: b.outer[0], Remote: outside, Ranges: a.ranges}})
		})
		names := k.agree(t, 0, netip.AddrPortFrom(b.outer[0], espudp.Port), a.outer[0], 1)
		k.reach(spis(names))
		k.ping(t)
		names = k.rekeyedBy(t, names, at)
		k.probes(t, outside)
		k.drop(t, names, 0)
		k.drop(t, names, 1)
		k.nothingInClear()
	})
}

// probes have one pass from the node behind the NAT, and be answered; where it came from is returned.
func (k *keyed) probes(t *testing.T, outside netip.Addr) netip.AddrPort {
	t.Helper()
	a, b := k.nodes[0], k.nodes[1]
	probe := []byte("\xf5\x54\x42\x01 of the first node")
	to := netip.AddrPortFrom(b.outer[0], espudp.Port)
	if err := errors.Join(a.socket.Send(to, a.outer[0], probe), a.socket.SendWhole(to, a.outer[0], probe)); err != nil {
		t.Fatal(err)
	}
	var got cameBy
	for range 2 {
		got = b.next(t)
		if got.local != b.outer[0] || got.from.Addr() != outside || got.from.Port() == espudp.Port || got.data != string(probe) {
			t.Fatalf("the second node gets %+v", got)
		}
	}
	if err := b.socket.Send(got.from, got.local, probe); err != nil {
		t.Fatal(err)
	}
	if x := a.next(t); x.from != to || x.local != a.outer[0] || x.data != string(probe) {
		t.Errorf("the first node gets %+v", x)
	}
	return got.from
}

// stun has the node behind the NAT ask a server where it is.
func (k *keyed) stun(t *testing.T, outside netip.Addr) {
	t.Helper()
	a, b := k.nodes[0], k.nodes[1]
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var server *stunserver.Server
	b.do(t, func() (err error) {
		server, err = stunserver.Open(ctx, stunserver.Config{Listen: ":3478", Second: stunserver.Off},
			telemetry.NewSTUN(prometheus.NewRegistry()))
		return err
	})
	ran := make(chan error, 1)
	go func() { ran <- server.Run(ctx) }()
	ask := nat.Request(nat.ID{5}, nat.WishNothing)
	if err := a.socket.Send(netip.AddrPortFrom(b.outer[0], 3478), a.outer[0], ask); err != nil {
		t.Fatal(err)
	}
	got := a.next(t)
	if m, err := nat.Parse([]byte(got.data)); err != nil || m.ID != (nat.ID{5}) || m.Mapped.Addr() != outside {
		t.Errorf("the server answers %+v, %v", m, err)
	}
	cancel()
	if err := <-ran; err != nil {
		t.Error(err)
	}
}

// ping has an echo pass between pods, of both families.
func (k *keyed) ping(t *testing.T) {
	t.Helper()
	for family := range 2 {
		if err := k.nodes[0].pod.Do(func() error {
			_, err := echo.Ask(runtest.Within(t), k.nodes[1].inner[family], echo.Options{}, 1000)
			return err
		}); err != nil {
			t.Errorf("%v does not answer: %v (%v)", k.nodes[1].inner[family], err, k.trouble())
		}
	}
}

// rekeyedBy changes the keys while bytes flow: the second node opens the connection, through the NAT. Not one packet may
// be lost to that.
func (k *keyed) rekeyedBy(t *testing.T, names [2][]ipsec.Name, at netip.AddrPort) [2][]ipsec.Name {
	t.Helper()
	a, b := k.nodes[0], k.nodes[1]
	to := netip.AddrPortFrom(b.inner[0], ipsecEcho)
	before := strings.Join(k.trouble(), " ")
	began := time.Now()
	flood, err := a.pod.Flood(to, string(marker))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := a.pod.DialContext(runtest.Within(t), "tcp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for epoch := range uint64(3) {
		done := make(chan error, 1)
		go func() { done <- there(conn, 128<<10) }()
		fresh := k.agree(t, 1, at, b.outer[0], 2+epoch)
		k.drop(t, names, 0) // both have the new ones; what is on its way by the old ones is still received
		if err := errors.Join(<-done, there(conn, 16<<10)); err != nil {
			t.Error(err)
		}
		k.drop(t, names, 1)
		names = fresh
	}
	flood.End()
	if lost := flood.Lost(began); lost.Lost > 0 || lost.Sent == 0 {
		t.Errorf("of datagrams: %v", lost)
	} else {
		t.Attr("figure", fmt.Sprintf("%d datagrams and 432 KiB through 3 changes of keys, none lost", lost.Sent))
	}
	if after := strings.Join(k.trouble(), " "); after != before {
		t.Errorf("packets were lost: %s, before %s", after, before)
	}
	return names
}
