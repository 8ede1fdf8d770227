// SPDX-License-Identifier: Apache-2.0

package keyconn_test

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"io"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/mesh/espudp"
	"github.com/tombolo-io/tombolo/internal/mesh/keyconn"
	"github.com/tombolo-io/tombolo/internal/mesh/keyexchange"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
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

// node is a socket with its port.
type node struct {
	id     keyexchange.Identity
	socket *espudp.Socket
	port   *keyconn.Port
	at     netip.AddrPort
	known  atomic.Pointer[keyexchange.Pin]
	handle func(context.Context, *keyconn.Conn)
	serves int // connections that are handled, at the end
	stop   func()
}

func newNode(t testing.TB, n byte, handle func(*node, *keyconn.Conn)) *node {
	t.Helper()
	x := &node{id: identity(t, n)}
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	if x.socket, err = espudp.Open(ctx, espudp.Settings{}); err != nil {
		t.Fatal(err)
	}
	x.at = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), x.socket.Port())
	know := func(p keyexchange.Pin) bool { k := x.known.Load(); return k != nil && *k == p }
	if x.port, err = keyconn.Open(x.socket.Packets(), x.id.Server(know)); err != nil {
		t.Fatal(err)
	}
	ran := make(chan error, 2)
	go func() { ran <- x.socket.Run(ctx, tunnel.Handlers{}) }()
	go func() {
		ran <- x.port.Run(ctx, func(_ context.Context, c *keyconn.Conn) {
			if handle != nil {
				handle(x, c)
			}
		})
	}()
	x.stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-ran, <-ran, x.port.Close(), x.socket.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(x.stop)
	return x
}

func (n *node) know(other *node) {
	p := other.id.Pin()
	n.known.Store(&p)
}

// states note keys.
type states struct {
	spi  uint32
	mu   sync.Mutex
	keys map[uint32]keyexchange.Key
}

func newStates(spi uint32) *states { return &states{spi: spi, keys: map[uint32]keyexchange.Key{}} }

func (s *states) SPI() (uint32, error)                        { return s.spi, nil }
func (s *states) Receive(spi uint32, k keyexchange.Key) error { return s.take(spi, k) }
func (s *states) Send(spi uint32, k keyexchange.Key) error    { return s.take(spi, k) }
func (s *states) take(spi uint32, k keyexchange.Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys[spi] = k
	return nil
}

// TestKeysAreExchanged again and again, each time others.
func TestKeysAreExchanged(t *testing.T) {
	theirs := newStates(0x2002)
	answered := make(chan error, 1)
	b := newNode(t, 2, func(n *node, c *keyconn.Conn) {
		_, err := keyexchange.Respond(c, n.id, theirs)
		answered <- err
	})
	a := newNode(t, 1, nil)
	a.know(b)
	b.know(a)
	var before keyexchange.Key
	for epoch := range uint64(5) {
		ours := newStates(0x1001)
		c, err := a.port.Dial(runtest.Within(t), b.at, netip.Addr{}, a.id.Client(b.id.Pin()))
		if err != nil {
			t.Fatal(err)
		}
		if s := c.ConnectionState(); s.CurveID != tls.X25519MLKEM768 || s.DidResume || s.Version != tls.VersionTLS13 {
			t.Errorf("%v, resumed %v, version %#x", s.CurveID, s.DidResume, s.Version)
		}
		got, err := keyexchange.Initiate(c, a.id, epoch, ours)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := <-answered; err != nil { // the last message is never lost to Close
			t.Error(err)
		}
		if got.In != 0x1001 || got.Out != 0x2002 {
			t.Errorf("%+v", got)
		}
		k := ours.keys[0x1001]
		theirs.mu.Lock()
		if *k.Get() != *theirs.keys[0x1001].Get() || !before.IsZero() && *before.Get() == *k.Get() {
			t.Error("keys differ at both ends, or are those of the exchange before")
		}
		theirs.mu.Unlock()
		before = k
	}
}

var _ = io.EOF
var _ = fault.CodeSelf
var _ = time.Second
