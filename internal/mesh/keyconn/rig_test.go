// SPDX-License-Identifier: Apache-2.0

package keyconn_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/mesh/keyconn"
	"github.com/tombolo-io/tombolo/internal/mesh/keyexchange"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func identity(t testing.TB, n byte) keyexchange.Identity {
	t.Helper()
	id, err := keyexchange.NewIdentity(ed25519.NewKeyFromSeed(append(make([]byte, 31), n)))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// network is one in memory.
type network struct {
	mu   sync.Mutex
	ends map[netip.AddrPort]*wire
	pass func(d datagram) bool // nil: all
	sent []datagram
}

type datagram struct {
	from, to netip.AddrPort
	data     []byte
}

func newNetwork() *network { return &network{ends: map[netip.AddrPort]*wire{}} }

// deliver has a datagram arrive, if somebody is there and has room.
func (n *network) deliver(d datagram) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sent = append(n.sent, d)
	to := n.ends[d.to]
	if to == nil || n.pass != nil && !n.pass(d) {
		return
	}
	select {
	case to.in <- d:
	default:
	}
}

// all are the datagrams that somebody has sent.
func (n *network) all() []datagram {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.sent)
}

func (n *network) filter(pass func(datagram) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pass = pass
}

// wire is the end of it at one address: a keyconn.Packets.
type wire struct {
	network *network
	at      netip.AddrPort
	in      chan datagram
	over    chan struct{}
	once    sync.Once
}

type wireAddress struct{ at, own netip.AddrPort }

func (wireAddress) Network() string                              { return "udp" }
func (a wireAddress) String() string                             { return a.at.String() }
func (a wireAddress) Ends() (netip.AddrPort, netip.Addr)         { return a.at, a.own.Addr() }
func (w *wire) LocalAddr() net.Addr                              { return wireAddress{w.at, w.at} }
func (w *wire) Close() error                                     { return nil }
func (w *wire) SetDeadline(t time.Time) error                    { return w.SetReadDeadline(t) }
func (w *wire) SetWriteDeadline(time.Time) error                 { return nil }
func (w *wire) SetReadBuffer(int) error                          { return nil }
func (w *wire) SetWriteBuffer(int) error                         { return nil }
func (w *wire) Address(to netip.AddrPort, _ netip.Addr) net.Addr { return wireAddress{to, w.at} }

// SetReadDeadline knows one that has passed: the only one that is set.
func (w *wire) SetReadDeadline(t time.Time) error {
	if !t.IsZero() {
		w.once.Do(func() { close(w.over) })
	}
	return nil
}

func (w *wire) ReadFrom(b []byte) (int, net.Addr, error) {
	select {
	case d := <-w.in:
		return copy(b, d.data), w.Address(d.from, w.at.Addr()), nil
	case <-w.over:
		return 0, nil, os.ErrDeadlineExceeded
	}
}

func (w *wire) WriteTo(b []byte, to net.Addr) (int, error) {
	w.network.deliver(datagram{w.at, to.(wireAddress).at, slices.Clone(b)})
	return len(b), nil
}

func (n *network) wire(at string) *wire {
	w := &wire{network: n, at: netip.MustParseAddrPort(at), in: make(chan datagram, 1024), over: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ends[w.at] = w
	return w
}

// node is an identity with a port.
type node struct {
	id   keyexchange.Identity
	port *keyconn.Port
	at   netip.AddrPort
	mu   sync.Mutex
	know []keyexchange.Pin
	from []netip.Addr // addresses of those
	stop func()
}

func (n *node) knows(p keyexchange.Pin) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Contains(n.know, p)
}

func (n *node) isPeer(a netip.Addr) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Contains(n.from, a)
}

// meet has nodes know each other.
func meet(nodes ...*node) {
	for _, n := range nodes {
		n.mu.Lock()
		for _, o := range nodes {
			n.know = append(n.know, o.id.Pin())
			n.from = append(n.from, o.at.Addr())
		}
		n.mu.Unlock()
	}
}

func newNode(t testing.TB, number byte, p keyconn.Packets, at netip.AddrPort, handle func(*node, *keyconn.Conn)) *node {
	t.Helper()
	n := &node{id: identity(t, number), at: at}
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	if n.port, err = keyconn.Open(p, n.id.Server(n.knows), n.isPeer); err != nil {
		t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() {
		ran <- n.port.Run(ctx, func(_ context.Context, c *keyconn.Conn) {
			if handle != nil {
				handle(n, c)
			}
		})
	}()
	n.stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-ran, n.port.Close()); err != nil {
			t.Error(err)
		}
	})
	return n
}

// on makes a node on a network.
func (n *network) on(t testing.TB, number byte, at string, handle func(*node, *keyconn.Conn)) *node {
	t.Helper()
	w := n.wire(at)
	return newNode(t, number, w, w.at, handle)
}

// respond answers each exchange, and reports how it ended.
func respond(s *states, ended chan<- error) func(*node, *keyconn.Conn) {
	return func(n *node, c *keyconn.Conn) {
		_, err := keyexchange.Respond(c, n.id, 1, s)
		if ended != nil {
			ended <- err
		}
	}
}

// exchange is a whole exchange with another node.
func (n *node) exchange(ctx context.Context, to *node, epoch uint64, s *states) error {
	c, err := n.port.Dial(ctx, to.at, netip.Addr{}, n.id.Client(to.id.Pin()))
	if err != nil {
		return err
	}
	_, err = keyexchange.Initiate(c, n.id, keyexchange.Offer{Epoch: epoch}, s)
	return errors.Join(err, c.Close())
}

// states note keys.
type states struct {
	spi  uint32
	mu   sync.Mutex
	keys map[uint32]keyexchange.Key
}

func newStates(spi uint32) *states { return &states{spi: spi, keys: map[uint32]keyexchange.Key{}} }

func (s *states) SPI() (uint32, error)                               { return s.spi, nil }
func (s *states) Offered(keyexchange.Offer) error                    { return nil }
func (s *states) Receive(spi uint32, k keyexchange.Key) error        { return s.take(spi, k) }
func (s *states) Send(t keyexchange.Tunnel, k keyexchange.Key) error { return s.take(t.Out, k) }

func (s *states) take(spi uint32, k keyexchange.Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys[spi] = k
	return nil
}

func (s *states) key(spi uint32) [keyexchange.KeyBytes]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, ok := s.keys[spi]
	if !ok {
		return [keyexchange.KeyBytes]byte{}
	}
	return *k.Get()
}
