// SPDX-License-Identifier: Apache-2.0

package wireguard_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/wireguard"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/wireguard/wireguardtest"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// TestHandshakesAreSeen: one that is asked for comes, is counted once, and says where the
// peer is; without a session the packet that needed it arrives.
func TestHandshakesAreSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := two(t)
		a.knows(t, b, 1, 0)
		b.knows(t, a, 1, 0)
		a.Say(b.inside, a.inside, 7)
		time.Sleep(time.Second)
		s := a.stat(t)
		if !b.Got(7) || s.Shakes != 1 || s.Handshake.IsZero() || s.Heard != b.at || s.Age != 0 || !s.Asked.IsZero() || s.LastSent.IsZero() {
			t.Errorf("got %v: %+v", b.Got(7), s)
		}
		if s = b.stat(t); s.Shakes != 1 || s.LastReceived.IsZero() || s.Received == 0 {
			t.Errorf("the other end: %+v", s)
		}
		if err := a.d.Handshake(b.key); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if s = a.stat(t); s.Shakes != 1 || !s.Asked.IsZero() {
			t.Errorf("while a session stood: %+v", s)
		}
		time.Sleep(3 * time.Minute)
		if err := a.d.Handshake(b.key); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if s = a.stat(t); s.Shakes != 2 {
			t.Errorf("after the session: %+v", s)
		}
	})
}

// TestWake: a peer that is watched wakes with its first packet, answered or not, and not
// with keepalives.
func TestWake(t *testing.T) {
	defer goleak.VerifyNone(t)
	synctest.Test(t, func(t *testing.T) {
		a, b := two(t)
		a.knows(t, b, 1, 0)
		b.knows(t, a, 1, 0)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.d.Run(ctx) }()
		expect := func(what string, n int) {
			t.Helper()
			time.Sleep(2 * limit.WireGuardLook)
			if got := a.wakes(); got != n {
				t.Errorf("%s: woken %d times, want %d", what, got, n)
			}
		}
		a.Say(b.inside, a.inside, 1)
		expect("not watched", 0)
		a.d.Watch(b.key)
		expect("nothing", 0)
		a.Say(b.inside, a.inside, 2)
		expect("sent", 1)
		a.Say(b.inside, a.inside, 3)
		expect("only once", 1)
		time.Sleep(20 * time.Second)
		a.d.Watch(b.key)
		if err := b.d.Handshake(a.key); err != nil { // a keepalive, for the session stands
			t.Fatal(err)
		}
		expect("a keepalive", 1)
		b.Say(a.inside, b.inside, 4)
		expect("received", 2)
		a.mu.Lock()
		a.cut = true
		a.mu.Unlock()
		time.Sleep(4 * time.Minute)
		a.d.Watch(b.key)
		expect("silence", 2)
		a.Say(b.inside, a.inside, 5)
		expect("a packet that waits for a handshake", 3)
		if x, ok := a.d.Activity(b.key); !ok || x.Asked.IsZero() {
			t.Errorf("it is not known that one waits: %+v", x)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Minute) // what the twin began has ended
	})
}

// TestOnlyWhatDiffersIsTold by the messages that the kernel gets, and no range that stays
// or moves is nobody's meanwhile.
func TestOnlyWhatDiffersIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnd(t, 1)
		var keys []member.Key
		var peers []tunnel.Peer
		for i := range 40 {
			_, k := wireguardtest.Key(t)
			keys = append(keys, k)
			peers = append(peers, tunnel.Peer{Key: k, PSK: tunnel.NewSecret([32]byte{1}), Ranges: []netip.Prefix{
				netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), 0, 0}), 16), netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 112, 1, byte(i)}), 32),
			}})
		}
		apply := func(what string, messages, entries int) [][]wgtypes.PeerConfig {
			t.Helper()
			e.Told()
			if err := e.d.Apply(tunnel.Config{Key: e.own, Peers: peers}); err != nil {
				t.Fatal(err)
			}
			told, all := e.Told()
			n := 0
			for _, m := range told {
				n += len(m)
			}
			if all != messages || n != entries {
				t.Errorf("%s: %d messages with %d peers, want %d with %d", what, all, n, messages, entries)
			}
			return told
		}
		apply("all", 3, 40) // the key, and two with peers
		apply("nothing", 0, 0)
		peers[3].PSK = tunnel.NewSecret([32]byte{2})
		told := apply("a preshared key", 1, 1)
		if c := told[0][0]; c.PublicKey != wgtypes.Key(keys[3]) || !c.UpdateOnly || c.AllowedIPs != nil || c.Endpoint != nil || c.PersistentKeepaliveInterval != nil || c.ReplaceAllowedIPs {
			t.Errorf("more was told: %+v", c)
		}
		r := peers[4].Ranges[0]
		peers[4].Ranges, peers[5].Ranges = peers[4].Ranges[1:], append(peers[5].Ranges, r)
		apply("a range that moves", 1, 1)
		lost := peers[6].Ranges[0]
		peers[6].Ranges = peers[6].Ranges[1:]
		apply("a range that goes", 1, 2)
		moved := peers[39].Ranges
		peers = peers[:39]
		peers[7].Ranges = append(peers[7].Ranges, moved[0])
		apply("a peer that goes, and leaves a range", 2, 2)
		holes := e.Holes()
		if len(holes) != 2 || holes[lost] != 1 || holes[moved[1]] != 1 {
			t.Errorf("nobody's for a while were %v", holes)
		}
	})
}

// TestAFailureIsMended by the next Apply.
func TestAFailureIsMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := two(t)
		a.Fail = errors.New("busy")
		cfg := tunnel.Config{Key: a.own, Peers: []tunnel.Peer{{Key: b.key}}}
		if err := a.d.Apply(cfg); err == nil {
			t.Fatal("no error")
		}
		if err := a.d.Apply(cfg); err != nil {
			t.Fatal(err)
		}
		if d, err := a.Device(link); err != nil || len(d.Peers) != 1 {
			t.Errorf("%v, %v", d, err)
		}
	})
}

// TestAPresharedKeyTurns: both ends have another one while a session stands; no packet is
// lost, and the next handshake is made with it.
func TestAPresharedKeyTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := two(t)
		a.knows(t, b, 1, 0)
		b.knows(t, a, 1, 0)
		n, lost := uint64(0), 0
		talk := func(long time.Duration) {
			for end := time.Now().Add(long); time.Now().Before(end); {
				n++
				a.Say(b.inside, a.inside, n)
				time.Sleep(time.Second)
				if !b.Got(n) {
					lost++
				}
			}
		}
		talk(30 * time.Second)
		if err := a.d.TryPSK(b.key, tunnel.NewSecret([32]byte{2})); err != nil {
			t.Fatal(err)
		}
		talk(100 * time.Second) // the rekey comes, and fails: the other end has the old one still
		if err := b.d.TryPSK(a.key, tunnel.NewSecret([32]byte{2})); err != nil {
			t.Fatal(err)
		}
		talk(5 * time.Minute)
		if s := a.stat(t); lost > 0 || time.Since(s.Handshake) > 130*time.Second {
			t.Errorf("%d of %d packets were lost; the last handshake was at %v of %v", lost, n, s.Handshake, time.Now())
		}
	})
}

// TestTakeOver: after a kill traffic flows on, and the next run changes nothing and knows
// what the kernel knows.
func TestTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := two(t)
		a.knows(t, b, 1, 25*time.Second)
		b.knows(t, a, 1, 25*time.Second)
		n := uint64(0)
		talk := func(long time.Duration) {
			t.Helper()
			for end := time.Now().Add(long); time.Now().Before(end); {
				n++
				a.Say(b.inside, a.inside, n)
				time.Sleep(500 * time.Millisecond)
				if !b.Got(n) {
					t.Fatalf("packet %d was lost", n)
				}
			}
		}
		talk(5 * time.Minute) // nobody looks meanwhile: the process is gone
		shook, err := a.Device(link)
		if err != nil {
			t.Fatal(err)
		}
		a.Told()
		a.open(t)
		a.knows(t, b, 1, 25*time.Second)
		if told, all := a.Told(); all != 0 {
			t.Errorf("%d messages: %v", all, told)
		}
		s := a.stat(t)
		age := time.Since(shook.Peers[0].LastHandshakeTime)
		if !s.Handshake.Equal(shook.Peers[0].LastHandshakeTime) || s.Shakes != 1 || s.Heard != b.at || s.Age < age-time.Second || s.Age > age+time.Second {
			t.Errorf("it knows %+v, and the handshake is %v old", s, age)
		}
		talk(time.Minute)
	})
}

// TestAnOldHandshakeProvesNothing: that of a link which was left alone for long is not told.
func TestAnOldHandshakeProvesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := two(t)
		a.knows(t, b, 1, 0)
		b.knows(t, a, 1, 0)
		a.Say(b.inside, a.inside, 1)
		time.Sleep(10 * time.Minute)
		a.open(t)
		a.knows(t, b, 1, 0)
		if s := a.stat(t); !s.Handshake.IsZero() || s.Shakes != 0 {
			t.Errorf("told: %+v", s)
		}
		a.Say(b.inside, a.inside, 2)
		time.Sleep(time.Second)
		if s := a.stat(t); s.Handshake.IsZero() || s.Shakes != 1 || s.Age != 0 {
			t.Errorf("a new one: %+v", s)
		}
	})
}

// TestRefusals: what cannot be taken stays as it was.
func TestRefusals(t *testing.T) {
	open := func(k *wireguardtest.Kernel, port uint16) error {
		_, err := wireguard.Open(wireguard.Settings{Link: link, MTU: 1420, Port: port, Mark: 0x20}, wireguard.Parts{Control: k, Links: k})
		return err
	}
	kind := func(k *wireguardtest.Kernel, want wireguard.Kind) {
		t.Helper()
		if got, err := k.Kind(link); err != nil || got != want {
			t.Errorf("after it there is a link of kind %v: %v", got, err)
		}
	}
	foreign := wireguardtest.New()
	foreign.Put(link)
	if err := open(foreign, 51820); !fault.Has(err, fault.CodeClash) || fault.From(err).Next == "" {
		t.Errorf("a link of others: %v", err)
	}
	kind(foreign, wireguard.Foreign)
	if was, err := wireguard.Leave(foreign, link); was || err != nil {
		t.Errorf("it was removed: %v", err)
	}
	kind(foreign, wireguard.Foreign)

	busy := wireguardtest.New()
	busy.Busy[51820] = true
	if err := open(busy, 51820); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("a port of others: %v", err)
	}
	kind(busy, wireguard.None)

	broken := wireguardtest.New()
	broken.Fail = errors.New("no")
	if err := open(broken, 51820); err == nil {
		t.Error("no error")
	}
	kind(broken, wireguard.None)

	taken := wireguardtest.New()
	if err := errors.Join(open(taken, 51820), taken.Up(link)); err != nil {
		t.Fatal(err)
	}
	taken.Busy[51821] = true
	if err := open(taken, 51821); !fault.Has(err, fault.CodeAddressBusy) {
		t.Errorf("another port, of others: %v", err)
	}
	kind(taken, wireguard.Ours)
	if d, err := taken.Device(link); err != nil || d.ListenPort != 51820 {
		t.Errorf("the link that was there: %+v, %v", d, err)
	}
	if err := open(taken, 0); err != nil {
		t.Errorf("any port: %v", err)
	}
}

// TestKeep: a link that is kept stays and works on.
func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := two(t)
		a.knows(t, b, 1, 0)
		b.knows(t, a, 1, 0)
		if err := a.d.Close(true); err != nil {
			t.Fatal(err)
		}
		a.Say(b.inside, a.inside, 1)
		time.Sleep(time.Second)
		if !b.Got(1) {
			t.Error("it carries nothing")
		}
		if err := b.d.Close(false); err != nil {
			t.Fatal(err)
		}
		if k, err := b.Kind(link); err != nil || k != wireguard.None {
			t.Errorf("the other stays: %v, %v", k, err)
		}
		time.Sleep(10 * time.Minute)
	})
}

// TestAWayThatIsLate: a handshake that came between the last look and another endpoint
// says that the old one is good.
func TestAWayThatIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := two(t)
		a.knows(t, b, 1, 0)
		b.knows(t, a, 1, 0)
		elsewhere := path.Path{Addr: netip.MustParseAddrPort("192.0.2.99:1")}
		a.Say(b.inside, a.inside, 1)
		time.Sleep(time.Second)
		if !a.d.SetPath(b.key, elsewhere, netip.Addr{}) {
			t.Error("refused")
		}
		if s := a.stat(t); s.Heard != b.at {
			t.Errorf("it goes to %v", s.Heard)
		}
		a.d.SetPath(b.key, elsewhere, netip.Addr{})
		if s := a.stat(t); s.Heard != elsewhere.Addr {
			t.Errorf("it goes to %v", s.Heard)
		}
		time.Sleep(10 * time.Minute)
	})
}

// TestALinkThatIsRenamedForAMomentIsNotGone: package kernel gives it its name back.
func TestALinkThatIsRenamedForAMomentIsNotGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnd(t, 1)
		look := func(there bool) {
			t.Helper()
			if _, err := e.d.Stats(); there != (err == nil) {
				t.Errorf("looked at: %v", err)
			}
		}
		for range 3 {
			e.Rename(link, "x")
			look(false)
			time.Sleep(limit.WireGuardGone - time.Millisecond)
			look(false)
			e.Rename("x", link)
			look(true)
			time.Sleep(limit.WireGuardGone)
		}
		select {
		case <-e.d.Done():
			t.Fatal("it counts as taken away")
		default:
		}
		e.Rename(link, "x")
		look(false)
		time.Sleep(limit.WireGuardGone)
		look(false)
		<-e.d.Done()
	})
}
