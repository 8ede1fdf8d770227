// SPDX-License-Identifier: Apache-2.0

package keyconn_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/mesh/espudp"
	"github.com/tombolo-io/tombolo/internal/mesh/keyconn"
	"github.com/tombolo-io/tombolo/internal/mesh/keyexchange"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// TestKeysAreExchanged over the sockets of ESP in UDP, in both families, again and again: each time others.
func TestKeysAreExchanged(t *testing.T) {
	var sockets [2]*espudp.Socket
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 2)
	for i := range sockets {
		var err error
		if sockets[i], err = espudp.Open(ctx, espudp.Settings{}); err != nil {
			t.Fatal(err)
		}
		go func() { ran <- sockets[i].Run(ctx, tunnel.Handlers{}) }()
	}
	theirs, answered := newStates(0x2002), make(chan error, 1)
	at := func(i int, a string) netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr(a), sockets[i].Port())
	}
	a := newNode(t, 1, sockets[0].Packets(), at(0, "127.0.0.1"), nil)
	b := newNode(t, 2, sockets[1].Packets(), at(1, "127.0.0.1"), respond(theirs, answered))
	defer func() {
		a.stop()
		b.stop()
		cancel()
		if err := errors.Join(<-ran, <-ran, sockets[0].Close(), sockets[1].Close()); err != nil {
			t.Error(err)
		}
	}()
	meet(a, b)
	to := []netip.AddrPort{b.at, at(1, "127.0.0.77")}
	if sockets[0].Has(netip.IPv6Loopback()) {
		to = append(to, at(1, "::1"))
	}
	seen := map[[keyexchange.KeyBytes]byte]bool{}
	for epoch, at := range to {
		b.at = at
		ours := newStates(0x1001)
		if err := errors.Join(a.exchange(runtest.Within(t), b, uint64(epoch), ours), <-answered); err != nil {
			t.Fatalf("%v: %v", at, err)
		}
		for _, spi := range []uint32{0x1001, 0x2002} {
			k := ours.key(spi)
			if k != theirs.key(spi) || seen[k] {
				t.Errorf("%v: both ends have different keys for %#x, or had them before", at, spi)
			}
			seen[k] = true
		}
	}
}

// TestWhatPasses: full handshakes with keys that a quantum computer does not break, in datagrams that pass where IPv6
// does, also where datagrams are lost.
func TestWhatPasses(t *testing.T) {
	for name, lost := range map[string]int{"all": 0, "three of four": 25} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, answered := newNetwork(), make(chan error, 100)
				a := n.on(t, 1, "192.0.2.1:4500", nil)
				b := n.on(t, 2, "[2001:db8::2]:9999", respond(newStates(0x2002), answered))
				defer a.stop()
				defer b.stop()
				meet(a, b)
				chance := rand.New(rand.NewPCG(1, 2))
				n.filter(func(datagram) bool { return chance.IntN(100) >= lost })
				for range 10 {
					if err := a.exchange(t.Context(), b, 7, newStates(0x1001)); err != nil {
						t.Fatal(err)
					}
					if err := <-answered; err != nil {
						t.Error(err)
					}
				}
				first := 0
				for _, d := range n.all() {
					if d.from == a.at {
						first++ // the first two are the ClientHello
					}
					const most = 1280 - 40 - 8 - 4 // behind IPv6, UDP and the marker
					if len(d.data) > most || d.from == a.at && first <= 2 && len(d.data) != keyconn.PacketBytes {
						t.Errorf("datagram %d from %v has %d bytes", first, d.from, len(d.data))
					}
				}
			})
		})
	}
}

func TestTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		ends := make(chan netip.AddrPort, 1)
		a := n.on(t, 1, "192.0.2.1:4500", nil)
		b := n.on(t, 2, "192.0.2.2:4500", func(_ *node, c *keyconn.Conn) {
			from, local := c.Ends()
			if local != netip.MustParseAddr("192.0.2.2") {
				t.Errorf("it came to %v", local)
			}
			ends <- from
		})
		defer a.stop()
		defer b.stop()
		meet(a, b)
		c, err := a.port.Dial(t.Context(), b.at, netip.Addr{}, a.id.Client(b.id.Pin()))
		if err != nil {
			t.Fatal(err)
		}
		if s := c.ConnectionState(); s.CurveID != tls.X25519MLKEM768 || s.DidResume || s.Version != tls.VersionTLS13 {
			t.Errorf("%v, resumed %v, version %#x", s.CurveID, s.DidResume, s.Version)
		}
		if _, err := c.Write([]byte("x")); err != nil {
			t.Error(err)
		}
		if from := <-ends; from != a.at {
			t.Errorf("it came from %v", from)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestWhoIsNotKnown: neither end talks to anybody but the node that it knows.
func TestWhoIsNotKnown(t *testing.T) {
	for name, c := range map[string]struct {
		setUp  func(a, b *node)
		at     string // where it ends
		reason fault.Code
	}{
		"the other node has another key": {func(a, b *node) { meet(a, b); b.id = identityOf(9) }, "dial", fault.CodeCertInvalid},
		"it does not know this one":      {func(a, _ *node) { meet(a) }, "exchange", fault.CodeSessionLost},
		"another protocol":               {func(a, b *node) { meet(a, b) }, "dial", fault.CodeCertInvalid},
		"nobody is there": {func(a, b *node) {
			meet(a, b)
			b.at = netip.MustParseAddrPort("192.0.2.9:4500")
		}, "dial", fault.CodeMeshAway},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork()
				a := n.on(t, 1, "192.0.2.1:4500", nil)
				b := n.on(t, 2, "192.0.2.2:4500", func(*node, *keyconn.Conn) { t.Error("it is let in") })
				defer a.stop()
				defer b.stop()
				c.setUp(a, b)
				client := a.id.Client(b.id.Pin())
				if name == "another protocol" {
					client.NextProtos = []string{"h3"}
				}
				at := "dial"
				conn, err := a.port.Dial(t.Context(), b.at, netip.Addr{}, client)
				if err == nil {
					at = "exchange"
					_, err = keyexchange.Initiate(conn, a.id, keyexchange.Offer{Epoch: 1}, newStates(0x1001))
					_ = conn.Close()
				}
				if f := fault.From(err); at != c.at || f.Code != c.reason || f.Next == "" && at == "dial" {
					t.Errorf("in the %s: %v (%s), next %q", at, err, f.Code, f.Next)
				}
				synctest.Wait()
				if b.port.Held() != 0 && c.at == "exchange" {
					t.Errorf("%d connections are held", b.port.Held())
				}
			})
		})
	}
}

func identityOf(n byte) keyexchange.Identity { return identity(&testing.T{}, n) }

// TestWhoStops: an end that says nothing more is not waited for longer than the bound says, and holds nothing then.
func TestWhoStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, answered := newNetwork(), make(chan error, 1)
		a := n.on(t, 1, "192.0.2.1:4500", nil)
		b := n.on(t, 2, "192.0.2.2:4500", respond(newStates(0x2002), answered))
		silent := n.on(t, 3, "192.0.2.3:4500", func(_ *node, c *keyconn.Conn) { _, _ = io.Copy(io.Discard, c) })
		defer a.stop()
		defer b.stop()
		defer silent.stop()
		meet(a, b, silent)
		for name, stop := range map[string]func(*keyconn.Conn){
			"the wire is cut": func(*keyconn.Conn) { n.filter(func(datagram) bool { return false }) },
			"it says nothing": func(*keyconn.Conn) {},
		} {
			began := time.Now()
			c, err := a.port.Dial(t.Context(), b.at, netip.Addr{}, a.id.Client(b.id.Pin()))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Write([]byte{1}); err != nil { // of an offer
				t.Fatal(err)
			}
			synctest.Wait()
			stop(c)
			if err := <-answered; err == nil || time.Since(began) > keyconn.ConnWithin {
				t.Errorf("%s: %v after %v", name, err, time.Since(began))
			}
			if err := c.Close(); err == nil {
				t.Errorf("%s: it has closed as if all were read", name)
			}
			n.filter(nil)
		}
		began := time.Now()
		if err := a.exchange(t.Context(), silent, 1, newStates(0x1001)); err == nil || time.Since(began) > keyconn.ConnWithin {
			t.Errorf("with one that does not answer: %v after %v", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if err := a.exchange(ctx, silent, 1, newStates(0x1001)); err == nil || time.Since(began) > 2*time.Second {
			t.Errorf("with a bound of a second: %v after %v", err, time.Since(began))
		}
		c, err := a.port.Dial(t.Context(), silent.at, netip.Addr{}, a.id.Client(silent.id.Pin()))
		began, sent := time.Now(), 0
		for ; err == nil && sent < 30; sent++ { // one that says a little again and again
			_, err = c.Write([]byte{1})
			time.Sleep(time.Second)
		}
		if took := time.Since(began); sent < 5 || took > keyconn.ConnWithin+2*time.Second {
			t.Errorf("a little again and again: %v after %v and %d bytes", err, took, sent)
		}
		_ = c.Close()
		time.Sleep(keyconn.ConnWithin)
		if b.port.Held()+silent.port.Held() != 0 {
			t.Errorf("%d and %d connections are held", b.port.Held(), silent.port.Held())
		}
	})
}
