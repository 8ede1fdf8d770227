// SPDX-License-Identifier: Apache-2.0

//go:build lab

package tunnel

import (
	"bytes"
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/mesh/disco"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

func TestMain(m *testing.M) { os.Exit(labtest.Main(m)) }

const link = "tombolo0"

// node is a machine with an engine.
type node struct {
	host   *lab.Host
	inside netip.Addr
	secret tunnel.Secret
	key    member.Key
	tun    *tunnel.Tun
	socket *tunnel.Socket
	engine *tunnel.Engine
	relay  *relay
	probes chan []byte
	stop   func()
}

// relay is one in memory, between namespaces.
type relay struct {
	mu    sync.Mutex
	nodes map[member.Key]*node
	count int
}

type by struct {
	*relay
	self member.Key
}

func (r by) Relay(_ string, peer member.Key, packets [][]byte) {
	r.mu.Lock()
	to := r.nodes[peer]
	r.count += len(packets)
	r.mu.Unlock()
	for _, p := range packets {
		to.engine.Receive(r.self, p)
	}
}

func (r *relay) packets() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

func newNode(t *testing.T, h *lab.Host, inside string, r *relay) *node {
	t.Helper()
	k, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{
		host: h, inside: netip.MustParseAddr(inside), relay: r, probes: make(chan []byte, 16),
		secret: tunnel.NewSecret([32]byte(k.Bytes())), key: member.Key(k.PublicKey().Bytes()),
	}
	return n
}

func (n *node) start(t *testing.T, mtu int, want tunnel.Offloads) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var text runtest.Transcript
	err := n.host.Do(func() (err error) {
		if n.tun, err = tunnel.OpenTun(ctx, link, mtu, want); err != nil {
			return err
		}
		if n.socket, err = tunnel.OpenSocket(ctx, tunnel.SocketConfig{Port: 51820, Mark: 0x20, Offloads: want}); err != nil {
			return err
		}
		parts := tunnel.Parts{Socket: n.socket, Tun: n.tun, Log: slog.New(slog.NewTextHandler(&text, nil))}
		if n.relay != nil {
			n.relay.mu.Lock()
			n.relay.nodes[n.key] = n
			n.relay.mu.Unlock()
			parts.Relay = by{n.relay, n.key}
		}
		if n.engine, err = tunnel.Open(ctx, parts); err != nil {
			return err
		}
		return setUp(n.inside)
	})
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() {
		ran <- n.socket.Run(ctx, tunnel.Handlers{Probe: func(_ netip.AddrPort, _ netip.Addr, p []byte) { n.probes <- bytes.Clone(p) }})
	}()
	n.stop = sync.OnceFunc(func() {
		ended := n.engine.Close()
		cancel()
		if err := errors.Join(ended, <-ran, n.socket.Close()); err != nil {
			t.Error(err)
		}
		for line := range strings.Lines(text.String()) {
			if strings.Contains(line, "level=WARN") && !strings.Contains(line, "updated MTU") { // asked for outside of the namespace
				t.Errorf("WireGuard says %s", line)
			}
		}
	})
	t.Cleanup(n.stop)
}

// setUp gives the TUN its address, with a range of /24, and sets it up.
func setUp(addr netip.Addr) error {
	return ioctl(link, func(fd int, ifr *unix.Ifreq) error {
		if err := ifr.SetInet4Addr(addr.AsSlice()); err != nil {
			return err
		}
		if err := unix.IoctlIfreq(fd, unix.SIOCSIFADDR, ifr); err != nil {
			return err
		}
		if err := ifr.SetInet4Addr([]byte{255, 255, 255, 0}); err != nil {
			return err
		}
		if err := unix.IoctlIfreq(fd, unix.SIOCSIFNETMASK, ifr); err != nil {
			return err
		}
		ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
	})
}

// setMTU lowers the MTU of a link of the host.
func (n *node) setMTU(t *testing.T, name string, mtu uint32) {
	t.Helper()
	if err := n.host.Do(func() error {
		return ioctl(name, func(fd int, ifr *unix.Ifreq) error {
			ifr.SetUint32(mtu)
			return unix.IoctlIfreq(fd, unix.SIOCSIFMTU, ifr)
		})
	}); err != nil {
		t.Fatal(err)
	}
}

func ioctl(name string, do func(fd int, ifr *unix.Ifreq) error) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	return do(fd, ifr)
}

// meet makes nodes each other's peers.
func meet(t *testing.T, nodes ...*node) {
	t.Helper()
	for _, n := range nodes {
		cfg := tunnel.Config{Key: n.secret}
		for _, m := range nodes {
			if m != n {
				cfg.Peers = append(cfg.Peers, tunnel.Peer{Key: m.key, Probes: true, Ranges: []netip.Prefix{netip.PrefixFrom(m.inside, 32)}})
			}
		}
		if err := n.engine.Apply(cfg); err != nil {
			t.Fatal(err)
		}
	}
}

func (n *node) way(t *testing.T, peer *node, w path.Path) {
	t.Helper()
	if !n.engine.SetPath(peer.key, w, netip.Addr{}) {
		t.Fatal("no such peer")
	}
}

func direct(addr string) path.Path {
	return path.Path{Addr: netip.AddrPortFrom(netip.MustParseAddr(addr), 51820)}
}

// marker is what travels within, and must not be seen outside.
const marker = "this text is clear, and nobody outside of the tunnel may read it. "

// echo answers what it is sent, over TCP, at a node's inner address.
func (n *node) echo(t *testing.T) string {
	t.Helper()
	l, err := n.host.Listen("tcp", n.inside.String()+":7")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				io.Copy(c, c)
			})
		}
	})
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// exchange sends text and wants it back.
func exchange(t *testing.T, c net.Conn, text []byte) {
	t.Helper()
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(text)
		sent <- err
	}()
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil {
		t.Fatal(err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, text) {
		t.Fatal("it came back otherwise")
	}
}

func (n *node) dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	ctx := runtest.Within(t)
	c, err := n.host.DialContext(ctx, "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if d, ok := ctx.Deadline(); ok {
		c.SetDeadline(d)
	}
	return c
}

// capture counts what passes a link of a host: frames with the marker, UDP packets of
// WireGuard, and UDP packets of anything else.
type capture struct {
	mu                      sync.Mutex
	clear, encrypted, other int
}

func (n *node) capture(t *testing.T, name string) *capture {
	t.Helper()
	c := &capture{}
	var fd int
	err := n.host.Do(func() (err error) {
		all := uint16(unix.ETH_P_ALL>>8 | unix.ETH_P_ALL&0xff<<8)
		// Packets without link headers: the TUN has none.
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(all)); err != nil {
			return err
		}
		l, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20); err != nil {
			return err
		}
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 20_000}); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: l.Index})
	})
	if err != nil {
		t.Fatal(err)
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		b := make([]byte, 1<<17)
		for {
			k, _, err := unix.Recvfrom(fd, b, 0)
			if err == nil {
				c.look(b[:k])
				continue
			}
			select {
			case <-done:
				return
			default:
			}
		}
	}()
	t.Cleanup(func() { close(done); <-ended; unix.Close(fd) })
	return c
}

func (c *capture) look(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if bytes.Contains(b, []byte(marker[:20])) {
		c.clear++
	}
	if len(b) >= 28 && b[0] == 0x45 && b[9] == unix.IPPROTO_UDP {
		if k := disco.KindOf(b[28:]); k == disco.WireGuard || k == disco.Probe {
			c.encrypted++
		} else if b[6]&0x1f|b[7] == 0 { // not a later piece of a packet
			c.other++
		}
	}
}

func (c *capture) counts() (clear, encrypted, other int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clear, c.encrypted, c.other
}

// pair is two machines with two cables between them.
func pair(t *testing.T, mtu int, want tunnel.Offloads, r *relay) (a, b *node) {
	t.Helper()
	l := labtest.New(t, "tunnel")
	var hosts [2]*lab.Host
	for i, name := range []string{"a", "b"} {
		h, err := l.Host(name)
		if err != nil {
			t.Fatal(err)
		}
		hosts[i] = h
	}
	for _, at := range []struct{ name, a, b string }{{"one", "192.0.2.1", "192.0.2.2"}, {"two", "198.51.100.1", "198.51.100.2"}} {
		if err := l.Link(lab.End{Host: hosts[0], Name: at.name, Addr: at.a}, lab.End{Host: hosts[1], Name: at.name, Addr: at.b}); err != nil {
			t.Fatal(err)
		}
	}
	a, b = newNode(t, hosts[0], "10.77.0.1", r), newNode(t, hosts[1], "10.77.0.2", r)
	a.start(t, mtu, want)
	b.start(t, mtu, want)
	meet(t, a, b)
	a.way(t, b, direct("192.0.2.2"))
	b.way(t, a, direct("192.0.2.1"))
	return a, b
}
