// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/mesh/relayproto"
	"github.com/tombolo-io/tombolo/internal/stream/hub/quota"
)

// aRelay is one with nodes a and b, which have no connections.
func aRelay(t testing.TB) (a, b *Node) {
	t.Helper()
	r := New(&Total{}, quota.Defaults().Relay)
	for _, into := range []**Node{&a, &b} {
		*into = &Node{relay: r, Name: map[bool]string{true: "a", false: "b"}[into == &a], out: newQueue(r.pool), known: map[string]*Node{}}
		(*into).absent.set(relayAbsent)
		if _, err := r.enter(*into); err != nil {
			t.Fatal(err)
		}
	}
	return a, b
}

// sources reads what waits for a node, and fails if it is not whole frames.
func sources(t testing.TB, n *Node) (out []string) {
	t.Helper()
	if n.out.wait == nil {
		return nil
	}
	b := n.out.wait.b
	for len(b) > 0 {
		kind, body, rest, need, err := relayproto.Next(b)
		if need > 0 || err != nil {
			t.Fatalf("damaged: %d, %v", need, err)
		}
		switch kind {
		case relayproto.Packet, relayproto.Absent:
			name, _, err := relayproto.ParseNamed(body)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, fmt.Sprintf("%d %s", kind, name))
		default:
			out = append(out, fmt.Sprint(kind))
		}
		b = rest
	}
	return out
}

func wg(size int) []byte { return append([]byte{4, 0, 0, 0}, make([]byte, size-4)...) }

// FuzzRelayed: what a node sends may be anything, in pieces of any length. Nothing
// panics, queues keep their bound, and what another node gets has the true source.
func FuzzRelayed(f *testing.F) {
	f.Add(relayproto.AppendPacket(relayproto.AppendPacket(nil, "b", wg(100)), "c", wg(100)), uint8(7))
	f.Add(relayproto.AppendPing(relayproto.AppendEnd(nil, relayproto.Reason{Code: "x"}), relayproto.Ping, 1), uint8(1))
	f.Add(relayproto.AppendPacket(nil, "b", []byte{0xf5, 0x54, 0x42, 1}), uint8(255))
	f.Add([]byte{2, 0, 0, 1, 0}, uint8(3))
	f.Fuzz(func(t *testing.T, said []byte, piece uint8) {
		a, b := aRelay(t)
		var buf []byte
		for len(said) > 0 {
			n := min(len(said), int(piece)+1)
			buf = append(buf, said[:n]...)
			said = said[n:]
			rest, err := a.take(buf, time.Unix(1, 0))
			if err != nil {
				break
			}
			if buf = append([]byte(nil), rest...); len(buf) > relayproto.Head+limit.RelayFrame {
				t.Fatalf("%d bytes are kept", len(buf))
			}
		}
		for _, s := range sources(t, b) {
			if s != "2 a" {
				t.Fatalf("b got %q", s)
			}
		}
		sources(t, a)
		if a.out.waiting() > limit.RelayQueue || b.out.waiting() > limit.RelayQueue {
			t.Fatal("a queue is beyond its bound")
		}
	})
}

func TestWhatIsNotPassedOn(t *testing.T) {
	a, b := aRelay(t)
	now := time.Unix(1, 0)
	said := relayproto.AppendPacket(nil, "b", wg(limit.RelayDatagram))
	said = relayproto.AppendPacket(said, "b", wg(limit.RelayDatagram+1))
	said = relayproto.AppendPacket(said, "b", []byte("\x16\x03\x01\x02plain"))
	said = relayproto.AppendPacket(said, "b", nil)
	said = relayproto.AppendPacket(said, "b", []byte{0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}) // STUN
	said = relayproto.AppendPacket(said, "b", []byte{0xf5, 0x54, 0x42, 1})
	said = relayproto.AppendPacket(said, "b", []byte("\xf5TBE, and what IPsec has encrypted"))
	said = relayproto.AppendPacket(said, "c", wg(10))
	said = append(said, 77, 0, 0, 1, 9) // of a type to come
	if rest, err := a.take(said, now); len(rest) != 0 || err != nil {
		t.Fatal(rest, err)
	}
	if got := fmt.Sprint(sources(t, b), sources(t, a)); got != "[2 a 2 a 2 a] [3 c]" {
		t.Error(got)
	}
	m := &a.relay.moved
	if m.packets.Load() != 3 || m.foreign.Load() != 4 || m.absent.Load() != 1 || m.bytes.Load() != limit.RelayDatagram+38 {
		t.Errorf("%+v", m)
	}
	for range 1000 {
		if _, err := a.take(relayproto.AppendPacket(nil, "c", wg(10)), now); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(sources(t, a)); n != relayAbsent {
		t.Errorf("%d absences are told in a second", n)
	}
	b.relay.leave(b)
	if _, err := a.take(relayproto.AppendPacket(nil, "b", wg(10)), now); err != nil || m.absent.Load() != 1002 {
		t.Errorf("a node that has left: %d, %v", m.absent.Load(), err)
	}
}

// TestAQueueIsBounded, and its buffers go when a burst is over.
func TestAQueueIsBounded(t *testing.T) {
	a, b := aRelay(t)
	one := relayproto.AppendPacket(nil, "b", wg(1420))
	for range 10_000 {
		if _, err := a.take(one, time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
	}
	full := limit.RelayQueue / relayproto.PacketSize("a", wg(1420))
	if got := len(sources(t, b)); got != full || b.lost.Load() != int64(10_000-full) {
		t.Errorf("%d packets wait, %d are lost", got, b.lost.Load())
	}
	first, _ := b.out.take()
	if b.out.putPacket("a", wg(9000)) { // what is being written counts
		t.Error("beyond the bound")
	}
	b.out.written(len(first.b))
	if !b.out.putPacket("a", wg(1420)) {
		t.Error("what was written leaves no room")
	}
	b.out.give(first)
	if second, _ := b.out.take(); len(sources(t, b)) != 0 || b.out.wait != nil || len(second.b) != relayproto.PacketSize("a", wg(1420)) {
		t.Error("a buffer is kept, or has what was written before")
	}
	b.out.close([]byte("end"))
	if b.out.putPacket("a", wg(10)) {
		t.Error("taken after the end")
	}
	if last, more := b.out.take(); !more || string(last.b) != "end" {
		t.Errorf("the last words: %q", last.b)
	}
	if _, more := b.out.take(); more {
		t.Error("no end")
	}
}

// TestOneRing: the writer of a node is woken once for all that came in one read, of a frame
// that cannot be read behind it too.
func TestOneWakeUp(t *testing.T) {
	a, b := aRelay(t)
	all := append(relayproto.AppendPacket(relayproto.AppendPacket(nil, "b", wg(100)), "b", wg(200)), relayproto.AppendPacket(nil, "nobody", wg(100))...)
	if rest, err := a.take(append(all, byte(relayproto.Packet), 0xff, 0xff, 0xff), time.Unix(1, 0)); err == nil {
		t.Fatalf("%d bytes are left of a frame that is too long", len(rest))
	}
	select {
	case <-b.out.wake:
	default:
		t.Error("nobody told the writer")
	}
	if got := len(sources(t, b)); got != 2 || len(a.woken) != 0 {
		t.Errorf("%d packets wait, and %d rings", got, len(a.woken))
	}
}

func TestRatesOfTheRelay(t *testing.T) {
	a, b := aRelay(t)
	a.relay.Bound(quota.RelayBounds{Nodes: 10, Node: 100_000, Cluster: quota.Unbounded})
	now := time.Unix(1, 0)
	send := func(n *Node, to string) (passed int64) {
		before := n.moved.packets.Load()
		for range 1000 {
			if _, err := n.take(relayproto.AppendPacket(nil, to, wg(1000)), now); err != nil {
				t.Fatal(err)
			}
		}
		a.out.wait, b.out.wait = nil, nil
		return n.moved.packets.Load() - before
	}
	if first, again := send(a, "b"), send(a, "b"); first != 100 || again != 0 {
		t.Errorf("%d and %d packets of 100", first, again)
	}
	now = now.Add(500 * time.Millisecond)
	if later := send(a, "b"); later != 50 {
		t.Errorf("%d packets after half a second", later)
	}
	a.relay.Bound(quota.RelayBounds{Nodes: 10, Node: quota.Unbounded, Cluster: 100_000})
	now = now.Add(time.Hour)
	if one, two := send(a, "b"), send(b, "a"); one+two < 90 || one+two > 100+2*relayLease/1000 { // and what each had taken ahead
		t.Errorf("%d and %d packets of 100 for both", one, two)
	}
	a.relay.Bound(quota.RelayBounds{Nodes: 10, Node: quota.Unbounded, Cluster: quota.Unbounded})
	if all := send(a, "b"); all < 200 { // as many as the queue takes
		t.Errorf("%d packets without a bound", all)
	}
}

func TestPlacesInTheRelay(t *testing.T) {
	total := &Total{}
	r := New(total, quota.RelayBounds{Nodes: 2, Node: quota.Unbounded, Cluster: quota.Unbounded})
	enter := func(name string) (*Node, *Node, error) {
		n := &Node{relay: r, Name: name, out: newQueue(r.pool)}
		older, err := r.enter(n)
		return n, older, err
	}
	a, _, _ := enter("a")
	if _, _, err := enter("b"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := enter("c"); !fault.Has(err, fault.CodeLimit) {
		t.Errorf("a third: %v", err)
	}
	again, older, err := enter("a")
	if err != nil || older != a || !a.gone.Load() || total.conns.Load() != 2 {
		t.Errorf("the same node: %v, %d", err, total.conns.Load())
	}
	r.leave(a) // the older one's end takes nothing away
	if r.Find([]byte("a")) != again || total.conns.Load() != 2 {
		t.Error("the newer one is gone")
	}
	r.leave(again)
	r.leave(again)
	if total.conns.Load() != 1 {
		t.Errorf("%d are counted", total.conns.Load())
	}
	total.conns.Store(limit.RelayHub)
	if _, _, err := enter("c"); !fault.Has(err, fault.CodeLimit) {
		t.Errorf("beyond the hub's bound: %v", err)
	}
	if got := r.Holds(); got != relayCost {
		t.Errorf("holds %d", got)
	}
}

// TestOneClusterLeavesPlacesOfTheRelay has clusters take all that they can get, one after
// the other.
func TestOneClusterLeavesPlacesOfTheRelay(t *testing.T) {
	var total Total
	var before int
	for cluster := range 8 {
		r := New(&total, quota.RelayBounds{Nodes: limit.RelayHub})
		for n := range limit.RelayHub {
			if _, err := r.enter(&Node{relay: r, Name: fmt.Sprint(n)}); err != nil {
				if !fault.Has(err, fault.CodeLimit) || r.full.Load() != 1 {
					t.Errorf("%v, %d refused", err, r.full.Load())
				}
				break
			}
		}
		left := limit.RelayHub - before
		has := len(r.nodes)
		if has < left/2 || has > left/2+1 {
			t.Errorf("cluster %d took %d of the %d places that the others had left", cluster, has, left)
		}
		before += has
	}
}

// ends are the two ends of a TLS connection over a pipe.
func ends(t testing.TB, near, far net.Conn) (hub, node *tls.Conn) {
	t.Helper()
	ca, err := trust.NewAuthority("example.org", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	key, err := trust.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := ca.Issue(trust.Request{Identity: id.Identity{Role: id.RoleHub, Name: "h"}, Key: key.Public(), Life: time.Hour}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	hub = tls.Server(near, &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{leaf.Raw}, PrivateKey: key}}, SessionTicketsDisabled: true, DynamicRecordSizingDisabled: true,
	})
	node = tls.Client(far, &tls.Config{InsecureSkipVerify: true, DynamicRecordSizingDisabled: true})
	done := make(chan error, 1)
	go func() { done <- hub.Handshake() }()
	if err := node.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return hub, node
}

// TestASilentNode: one whose machine is gone without a word is noticed within 30 s,
// one that says anything lives, and one whose certificate has run out does not.
func TestASilentNode(t *testing.T) {
	for name, c := range map[string]struct {
		says  time.Duration // 0: nothing
		life  time.Duration
		after time.Duration
		code  fault.Code
	}{
		"silent":  {0, time.Hour, limit.RelayDead, fault.CodeSessionLost},
		"expires": {10 * time.Second, 65 * time.Second, 70 * time.Second, fault.CodeCertExpired},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				defer near.Close()
				defer far.Close()
				hub, node := ends(t, near, far)
				a, _ := aRelay(t)
				a.conn, a.certEnd = hub, time.Now().Add(c.life)
				begun := time.Now()
				var saying sync.WaitGroup
				defer saying.Wait()
				defer far.Close()
				if c.says > 0 {
					saying.Add(1)
					go func() {
						defer saying.Done()
						for time.Sleep(c.says); ; time.Sleep(c.says) {
							if _, err := node.Write([]byte{99, 0, 0, 0}); err != nil {
								return
							}
						}
					}()
				}
				f := readFault(a.read(time.Now))
				if f.Code != c.code || time.Since(begun) != c.after {
					t.Errorf("%v after %v", f, time.Since(begun))
				}
			})
		})
	}
}

func TestLimitsOfTheRelay(t *testing.T) {
	amount := func(n int64) *v1alpha1.Amount { return &v1alpha1.Amount{N: n} }
	none := &v1alpha1.Bytes{None: true}
	var problems []string
	add := func(at, format string, args ...any) {
		problems = append(problems, at+": "+fmt.Sprintf(format, args...))
	}
	raw := v1alpha1.HubLimitsConfig{}
	raw.Relay = v1alpha1.RelayLimitsConfig{Nodes: amount(7), NodeBytesPerSecond: none, BytesPerSecond: &v1alpha1.Bytes{N: 1 << 20}}
	table := quota.Parse(raw, add)
	if want := (quota.RelayBounds{Nodes: 7, Node: quota.Unbounded, Cluster: 1 << 20}); table.All.Relay != want || len(problems) > 0 {
		t.Errorf("%+v, %v", table.All.Relay, problems)
	}
	c, err := id.ParseCluster("c1")
	if err != nil {
		t.Fatal(err)
	}
	own := v1alpha1.LimitsConfig{Relay: v1alpha1.RelayLimitsConfig{Nodes: amount(9)}}
	table.Add(c, own, "clusters[0]", add)
	if got := table.Of(c).Relay; got.Nodes != 9 || got.Cluster != 1<<20 {
		t.Errorf("of the cluster: %+v", got)
	}
	raw.Relay = v1alpha1.RelayLimitsConfig{Nodes: &v1alpha1.Amount{None: true}, NodeBytesPerSecond: &v1alpha1.Bytes{N: 1}, BytesPerSecond: &v1alpha1.Bytes{N: 2}}
	quota.Parse(raw, add)
	if got := strings.Join(problems, "\n"); len(problems) != 3 || !strings.Contains(got, "limits.relay.nodes: ") || !strings.Contains(got, "limits.relay.nodeBytesPerSecond: ") || !strings.Contains(got, "limits.relay.bytesPerSecond: ") {
		t.Error(got)
	}
}
