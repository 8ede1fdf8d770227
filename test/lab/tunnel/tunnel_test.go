// SPDX-License-Identifier: Apache-2.0

//go:build lab

package tunnel

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// TestClearInsideEncryptedOutside: TCP of some megabytes both ways, at the smallest and
// the usual MTU, with each offload and without it.
func TestClearInsideEncryptedOutside(t *testing.T) {
	all := tunnel.AllOffloads()
	for name, c := range map[string]struct {
		mtu  int
		want tunnel.Offloads
	}{
		"all":            {1420, all},
		"none":           {1420, tunnel.Offloads{}},
		"small MTU":      {1280, all},
		"small, none":    {1280, tunnel.Offloads{}},
		"without gso":    {1420, tunnel.Offloads{UDPGRO: true, TunTSO: true, TunGRO: true}},
		"without gro":    {1380, tunnel.Offloads{UDPGSO: true, TunTSO: true, TunGRO: true}},
		"without tso":    {1420, tunnel.Offloads{UDPGSO: true, UDPGRO: true, TunGRO: true}},
		"without tungro": {1420, tunnel.Offloads{UDPGSO: true, UDPGRO: true, TunTSO: true}},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t, c.mtu, c.want, nil)
			outside, inside := a.capture(t, "one"), a.capture(t, link)
			conn := a.dial(t, b.echo(t))
			exchange(t, conn, bytes.Repeat([]byte(marker), 4<<20/len(marker)))
			runtest.Eventually(t, "the capture", func() bool {
				_, encrypted, _ := outside.counts()
				clear, _, _ := inside.counts()
				return encrypted > 0 && clear > 0
			})
			if clear, _, other := outside.counts(); clear != 0 || other != 0 {
				t.Errorf("outside: %d packets in clear, %d that are not WireGuard's", clear, other)
			}
			for _, o := range append(a.socket.Offloads(), a.tun.Offloads()...) {
				wanted := map[string]bool{"udp_gso": c.want.UDPGSO, "udp_gro": c.want.UDPGRO, "tun_tso": c.want.TunTSO, "tun_gro": c.want.TunGRO}[o.Name]
				if o.On != wanted || !o.On && o.Why != "turned off by the configuration" || o.On && o.Why != "" {
					t.Errorf("%+v, wanted: %v", o, wanted)
				}
			}
			if n := a.tun.Lost.Load() + b.tun.Lost.Load() + a.socket.Counts().Unsent.Load() + b.socket.Counts().Unsent.Load(); n != 0 {
				t.Errorf("the kernel refused %d packets", n)
			}
		})
	}
}

// TestWaySwappedUnderTCP: direct by one cable, by the other, by a relay, and back; the
// connection stays, and what it carries is whole.
func TestWaySwappedUnderTCP(t *testing.T) {
	r := &relay{nodes: map[member.Key]*node{}}
	a, b := pair(t, 1420, tunnel.AllOffloads(), r)
	one, two := a.capture(t, "one"), a.capture(t, "two")
	conn := a.dial(t, b.echo(t))
	var rounds atomic.Uint64
	stopped := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		text := bytes.Repeat([]byte(marker), 32<<10/len(marker))
		for {
			select {
			case <-stopped:
				return
			default:
				exchange(t, conn, text)
				rounds.Add(1)
			}
		}
	})
	pass := func() {
		t.Helper()
		until := rounds.Load() + 10
		runtest.Eventually(t, "traffic", func() bool { return rounds.Load() >= until })
	}
	for range 3 {
		a.way(t, b, direct("192.0.2.2"))
		b.way(t, a, direct("192.0.2.1"))
		pass()
		a.way(t, b, direct("198.51.100.2"))
		b.way(t, a, direct("198.51.100.1"))
		pass()
		was := r.packets()
		a.way(t, b, path.Path{Relay: "h"})
		b.way(t, a, path.Path{Relay: "h"})
		pass()
		if r.packets() == was {
			t.Error("nothing went by the relay")
		}
	}
	close(stopped)
	wg.Wait()
	for name, c := range map[string]*capture{"one": one, "two": two} {
		if clear, encrypted, other := c.counts(); clear != 0 || other != 0 || encrypted == 0 {
			t.Errorf("%s: %d in clear, %d of WireGuard, %d others", name, clear, encrypted, other)
		}
	}
	if s, err := a.engine.Stats(); err != nil || len(s) != 1 || s[0].Handshake.IsZero() {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestWholeAndCutPackets: over a link that takes 1,300 bytes a large ordinary packet passes in
// pieces, one that must pass whole is refused, and after that ordinary ones pass as before.
func TestWholeAndCutPackets(t *testing.T) {
	a, b := pair(t, 1420, tunnel.AllOffloads(), nil)
	a.setMTU(t, "one", 1300)
	b.setMTU(t, "one", 1300)
	to := netip.MustParseAddrPort("192.0.2.2:51820")
	ping := func(size int) []byte {
		return append([]byte{0xf5, 0x54, 0x42, 0x01}, make([]byte, size-4)...)
	}
	arrives := func(size int) {
		t.Helper()
		select {
		case p := <-b.probes:
			if len(p) != size {
				t.Errorf("%d bytes came, not %d", len(p), size)
			}
		case <-runtest.Within(t).Done():
			t.Fatalf("%d bytes did not come", size)
		}
	}
	for range 2 {
		if err := a.socket.Send(to, netip.Addr{}, ping(1400)); err != nil {
			t.Fatal(err)
		}
		arrives(1400)
		if err := a.socket.SendWhole(to, netip.Addr{}, ping(1400)); !errors.Is(err, unix.EMSGSIZE) {
			t.Errorf("a whole packet of 1,400: %v", err)
		}
		if err := a.socket.SendWhole(to, netip.Addr{}, ping(1272)); err != nil {
			t.Fatal(err)
		}
		arrives(1272)
	}
	// Joined packets that are longer than the link takes are cut one by one.
	conn := a.dial(t, b.echo(t))
	exchange(t, conn, bytes.Repeat([]byte(marker), 1<<20/len(marker)))
	if n := a.socket.Counts().Unsent.Load(); n != 0 {
		t.Errorf("%d packets were not sent", n)
	}
	for _, o := range a.socket.Offloads() {
		if !o.On {
			t.Errorf("%+v", o)
		}
	}
}

// TestThreeAndOneDies: of three machines one is killed; the others go on, and it is back
// with the same key.
func TestThreeAndOneDies(t *testing.T) {
	a, b := pair(t, 1420, tunnel.AllOffloads(), nil)
	conn := a.dial(t, b.echo(t))
	exchange(t, conn, []byte(marker))
	b.stop()
	if s, err := a.engine.Stats(); err != nil || len(s) != 1 {
		t.Fatal(s, err)
	}
	if _, err := conn.Write([]byte(marker)); err != nil { // into the void
		t.Fatal(err)
	}
	b.start(t, 1420, tunnel.AllOffloads())
	meet(t, a, b)
	b.way(t, a, direct("192.0.2.1"))
	// The machine's TCP never noticed: its connection goes on. WireGuard of a tries anew
	// after 15 s by itself; b has a reason of its own.
	if err := b.engine.Handshake(a.key); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(marker))
	if n, err := conn.Read(got); err != nil || string(got[:n]) != marker {
		t.Fatalf("%q, %v", got[:n], err)
	}
	exchange(t, conn, []byte(fmt.Sprint("again ", marker)))
}

// TestNoTun: a link that is somebody else's is a clash, and leaves nothing.
func TestNoTun(t *testing.T) {
	a, _ := pair(t, 1420, tunnel.Offloads{}, nil)
	err := a.host.Do(func() error {
		_, err := tunnel.OpenTun(t.Context(), link, 1420, tunnel.Offloads{})
		return err
	})
	var f *fault.Fault
	if !errors.As(err, &f) || f.Code != fault.CodeClash || f.Next == "" {
		t.Errorf("a name that is taken: %v", err)
	}
	if _, err := tunnel.OpenTun(t.Context(), "tombolo1", 1279, tunnel.Offloads{}); !errors.As(err, &f) || f.Code != fault.CodeConfig {
		t.Errorf("an MTU that is too small: %v", err)
	}
}

// TestANewKeyUnderTCP: both ends take the new key, and the connection goes on.
func TestANewKeyUnderTCP(t *testing.T) {
	a, b := pair(t, 1420, tunnel.AllOffloads(), nil)
	conn := a.dial(t, b.echo(t))
	text := bytes.Repeat([]byte(marker), 256<<10/len(marker))
	exchange(t, conn, text)
	k, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a.secret, a.key = tunnel.NewSecret([32]byte(k.Bytes())), member.Key(k.PublicKey().Bytes())
	meet(t, a, b)
	b.way(t, a, direct("192.0.2.1"))
	exchange(t, conn, text)
}

// TestWithoutLoopback: where the self-test of the offloads cannot succeed they are off with what
// the test met as the reason, and packets pass without them. With loopback they are on.
func TestWithoutLoopback(t *testing.T) {
	a, b := pair(t, 1420, tunnel.AllOffloads(), nil)
	echo := b.echo(t)
	lo := func(up bool) {
		t.Helper()
		a.stop()
		if err := a.host.Do(func() error {
			link, err := netlink.LinkByName("lo")
			if err != nil {
				return err
			}
			if up {
				return netlink.LinkSetUp(link)
			}
			return netlink.LinkSetDown(link)
		}); err != nil {
			t.Fatal(err)
		}
		a.start(t, 1420, tunnel.AllOffloads())
		meet(t, a, b)
		a.way(t, b, direct("192.0.2.2"))
		b.way(t, a, direct("192.0.2.1"))
		exchange(t, a.dial(t, echo), bytes.Repeat([]byte(marker), 256<<10/len(marker)))
	}
	for _, up := range []bool{false, true} {
		lo(up)
		for _, o := range a.socket.Offloads() {
			silent := strings.HasPrefix(o.Why, "the test over loopback failed: ") && strings.HasSuffix(o.Why, os.ErrDeadlineExceeded.Error())
			if o.On != up || up && o.Why != "" || !up && !silent {
				t.Errorf("with loopback: %v: %+v", up, o)
			}
		}
		for _, o := range a.tun.Offloads() { // which need no loopback
			if !o.On || o.Why != "" {
				t.Errorf("with loopback: %v: %+v", up, o)
			}
		}
	}
}
