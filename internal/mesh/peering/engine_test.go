// SPDX-License-Identifier: Apache-2.0

package peering_test

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/peering"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel/tunneltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machine is a node with a real engine over loopback.
type machine struct {
	name    string
	inside  netip.Addr
	private *ecdh.PrivateKey
	key     member.Key
	tun     *tunneltest.Pipe
	socket  *tunnel.Socket
	engine  *tunnel.Engine
	p       *peering.Peering
	at      netip.AddrPort
	changed atomic.Int32
}

func newPrivate(t testing.TB) (*ecdh.PrivateKey, member.Key) {
	t.Helper()
	k, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k, member.Key(k.PublicKey().Bytes())
}

// secret is one that two nodes have in common, the same for each pair.
func secret(n byte) peering.Secret {
	return peering.Secret{ID: seal.ClusterID{n}, PSK: tunnel.NewSecret([32]byte{n, 1})}
}

func under(numbers ...byte) func(own, peer member.Key) []peering.Secret {
	return func(member.Key, member.Key) (out []peering.Secret) {
		for _, n := range numbers {
			out = append(out, secret(n))
		}
		return out
	}
}

// exchange is a hub in memory: what is sent by it arrives a little later.
type exchange struct {
	mu    sync.Mutex
	nodes map[string]chan delivery
	count int
	off   bool
}

type delivery struct {
	from string
	data []byte
}

// by is the exchange as one node sees it.
type by struct {
	*exchange
	self string
}

func (r by) Send(_, peer string, datagrams ...[]byte) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range datagrams {
		if r.off || r.nodes[peer] == nil {
			continue
		}
		select {
		case r.nodes[peer] <- delivery{r.self, append([]byte(nil), d...)}:
			r.count++
			n++
		default:
		}
	}
	return n
}

func (r *exchange) packets() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

func newMachine(t *testing.T, name, inside string, r *exchange) *machine {
	t.Helper()
	m := &machine{name: name, inside: netip.MustParseAddr(inside), tun: tunneltest.NewPipe(true)}
	m.private, m.key = newPrivate(t)
	ctx, cancel := context.WithCancel(context.Background())
	data := peering.NewDatapath(by{r, name})
	var err error
	if m.socket, err = tunnel.OpenSocket(ctx, tunnel.SocketConfig{}); err != nil {
		t.Fatal(err)
	}
	if m.engine, err = tunnel.Open(ctx, tunnel.Parts{Socket: m.socket, Tun: m.tun, Relay: data, Wake: data.Wake, Log: quiet()}); err != nil {
		t.Fatal(err)
	}
	m.at = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), m.socket.Port())
	m.p, err = peering.New(peering.Parts{
		Private: m.private, Socket: m.socket, Engine: m.engine, Traffic: m.engine, Datapath: data, Changed: func() { m.changed.Add(1) },
		Endpoints: func() []netip.AddrPort { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	come := make(chan delivery, 1024)
	r.mu.Lock()
	r.nodes[name] = come
	r.mu.Unlock()
	wg.Go(func() {
		for {
			select {
			case d := <-come:
				m.p.Relayed("hub", d.from, d.data)
			case <-ctx.Done():
				return
			}
		}
	})
	wg.Go(func() {
		if err := m.p.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	wg.Go(func() {
		if err := m.socket.Run(ctx, tunnel.Handlers{Probe: m.p.Probe}); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		if err := m.engine.Close(); err != nil {
			t.Error(err)
		}
		if err := m.socket.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// peer is this machine as another one is told of it.
func (m *machine) peer(at netip.AddrPort, secrets ...byte) peering.Peer {
	return peering.Peer{
		ID: "id-" + m.name, Name: m.name, Key: m.key, Secrets: under(secrets...),
		Facts:  path.Facts{Candidates: []path.Candidate{{Addr: at, Kind: path.Own}}, Relays: []string{"hub"}, Probes: true},
		Ranges: []netip.Prefix{netip.PrefixFrom(m.inside, 32)},
	}
}

func (m *machine) set(t *testing.T, peers ...peering.Peer) {
	t.Helper()
	if err := m.p.Set(peers); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) report(t *testing.T) peering.Report {
	t.Helper()
	all := m.p.Reports()
	if len(all) != 1 {
		t.Fatalf("%d reports", len(all))
	}
	return all[0]
}

// wire is a network between two machines that can be cut: each sees the other at an end of it.
type wire struct {
	ends [2]*net.UDPConn
	cut  atomic.Bool
}

func newWire(t *testing.T, a, b *machine) *wire {
	t.Helper()
	w := &wire{}
	for i := range w.ends {
		c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
		if err != nil {
			t.Fatal(err)
		}
		w.ends[i] = c
	}
	var wg sync.WaitGroup
	for i, to := range []*machine{b, a} {
		wg.Go(func() {
			buf := make([]byte, 1<<16)
			for {
				n, _, err := w.ends[i].ReadFromUDPAddrPort(buf)
				if err != nil {
					return
				}
				if !w.cut.Load() {
					w.ends[1-i].WriteToUDPAddrPort(buf[:n], to.at)
				}
			}
		})
	}
	t.Cleanup(func() {
		for _, c := range w.ends {
			c.Close()
		}
		wg.Wait()
	})
	return w
}

// end is where machine i, 0 or 1, sends to the other one.
func (w *wire) end(i int) netip.AddrPort { return w.ends[i].LocalAddr().(*net.UDPAddr).AddrPort() }

var counter atomic.Uint64

// reach sends packets until one arrives, and says how many were lost before.
func reach(t *testing.T, from, to *machine) (lost int) {
	t.Helper()
	ctx := runtest.Within(t)
	first := counter.Load() + 1
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	send := func() {
		select {
		case from.tun.Out <- tunneltest.Packet(from.inside, to.inside, counter.Add(1), 100):
		case <-ctx.Done():
		}
	}
	send()
	for {
		select {
		case <-again.C:
			send()
		case b := <-to.tun.In:
			if n := tunneltest.Number(b); n >= first {
				return int(n - first)
			}
		case <-ctx.Done():
			t.Fatalf("nothing reaches %s from %s", to.name, from.name)
		}
	}
}

// TestDirectCutRelayedDirect: two machines find each other, their traffic survives the end of the
// path by the relay, and comes back.
func TestDirectCutRelayedDirect(t *testing.T) {
	r := &exchange{nodes: map[string]chan delivery{}}
	a, b := newMachine(t, "a", "10.1.0.1", r), newMachine(t, "b", "10.1.0.2", r)
	w := newWire(t, a, b)
	a.set(t, b.peer(w.end(0), 1))
	b.set(t, a.peer(w.end(1), 1))
	both := func(s path.State) func() bool {
		return func() bool {
			reach(t, a, b)
			return a.report(t).State == s && b.report(t).State == s
		}
	}
	runtest.Eventually(t, "a direct path", both(path.Direct))
	reach(t, b, a)
	if got := a.report(t); got.Path.Addr != w.end(0) || got.Handshake.IsZero() || got.Sent == 0 || got.Secret != secret(1).ID || got.Key != b.key {
		t.Errorf("%+v", got)
	}
	w.cut.Store(true)
	runtest.Eventually(t, "the relay", both(path.Relayed))
	was := r.packets()
	reach(t, b, a)
	if r.packets() == was {
		t.Error("nothing went by the relay")
	}
	w.cut.Store(false)
	runtest.Eventually(t, "a direct path again", both(path.Direct))
	reach(t, b, a)
	runtest.Eventually(t, "an MTU", func() bool { return a.report(t).MTU == 1440 }) // 1,500 less 60
	if a.changed.Load() == 0 {
		t.Error("nobody was told of the MTU")
	}
}

// TestKeysOverRealEngines: one node takes a new key pair and both a new secret, with traffic all
// the while. How much is lost, TestANewKeyOfOurOwn says: its time is not that of this machine.
func TestKeysOverRealEngines(t *testing.T) {
	r := &exchange{nodes: map[string]chan delivery{}}
	a, b := newMachine(t, "a", "10.1.0.1", r), newMachine(t, "b", "10.1.0.2", r)
	w := newWire(t, a, b)
	a.set(t, b.peer(w.end(0), 1))
	b.set(t, a.peer(w.end(1), 1))
	runtest.Eventually(t, "a direct path", func() bool {
		reach(t, a, b)
		return a.report(t).State == path.Direct && b.report(t).State == path.Direct
	})
	reach(t, b, a)
	private, key := newPrivate(t)
	if err := a.p.Rotate(private, tunnel.Signer{}); err != nil {
		t.Fatal(err)
	}
	a.key = key
	b.set(t, a.peer(w.end(1), 1))
	reach(t, a, b)
	reach(t, b, a)
	runtest.Eventually(t, "a session by the new key", func() bool { return b.report(t).Key == key && !a.report(t).Handshake.IsZero() })
	for _, secrets := range [][]byte{{2, 1}, {2}} {
		before := a.report(t).Handshake
		a.set(t, b.peer(w.end(0), secrets...))
		reach(t, a, b)
		b.set(t, a.peer(w.end(1), secrets...))
		runtest.Eventually(t, "a handshake with the new secret", func() bool {
			reach(t, b, a)
			return a.report(t).Secret == secret(2).ID && (len(secrets) == 1 || a.report(t).Handshake.After(before))
		})
	}
	if lost := reach(t, a, b) + reach(t, b, a); lost > 0 {
		t.Errorf("%d packets were lost", lost)
	}
	if a.report(t).State != path.Direct || b.report(t).State != path.Direct {
		t.Errorf("%+v", a.report(t))
	}
}
