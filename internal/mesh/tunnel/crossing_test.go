// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
)

// link is a TUN without a kernel.
type link struct {
	out    chan []byte
	closed chan struct{}
	wake   chan struct{}
	events chan tun.Event
	once   sync.Once
	came   func([]byte)
}

func (l *link) File() *os.File           { return nil }
func (l *link) MTU() (int, error)        { return 1420, nil }
func (l *link) Name() (string, error)    { return "link", nil }
func (l *link) Events() <-chan tun.Event { return l.events }
func (l *link) BatchSize() int           { return 1 }

func (l *link) Wake() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *link) Close() error {
	l.once.Do(func() { close(l.closed); close(l.events) })
	return nil
}

func (l *link) Read(bufs [][]byte, sizes []int, offset int) (int, error) {
	select {
	case <-l.closed:
		return 0, os.ErrClosed
	case <-l.wake:
		return 0, nil
	case b := <-l.out:
		sizes[0] = copy(bufs[0][offset:], b)
		return 1, nil
	}
}

func (l *link) Write(bufs [][]byte, offset int) (int, error) {
	for _, b := range bufs {
		l.came(b[offset:])
	}
	return len(bufs), nil
}

// end is one of two real engines in a world whose packets take a time of their own.
type end struct {
	link    *link
	engine  *Engine
	secret  Secret
	key     member.Key
	addr    netip.Addr
	other   *end
	delay   time.Duration
	lose    int64         // of the first packets
	mute    bool          // the other one drops its handshakes
	seen    func([]byte)  // by somebody on the way
	late    time.Duration // of its handshakes, beside the delay
	sent    atomic.Int64
	arrived atomic.Pointer[time.Time] // when the first packet of the other one was there
}

// Relay has the packets arrive at the other end, later.
func (e *end) Relay(_ string, _ member.Key, packets [][]byte) {
	for _, p := range packets {
		if e.seen != nil {
			e.seen(p)
		}
		if e.sent.Add(1) <= e.lose || e.mute && isInitiation(p) {
			continue
		}
		p = append([]byte(nil), p...)
		delay := e.delay
		if isInitiation(p) {
			delay += e.late
		}
		time.AfterFunc(delay, func() { e.other.engine.Receive(e.key, p) })
	}
}

// say sends a packet into the tunnel.
func (e *end) say() { e.number(0) }

// number sends a packet with a number.
func (e *end) number(n uint32) {
	b := make([]byte, 60)
	binary.BigEndian.PutUint32(b[20:], n)
	b[0], b[8], b[9] = 0x45, 64, 253
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	copy(b[12:], e.addr.AsSlice())
	copy(b[16:], e.other.addr.AsSlice())
	e.link.out <- b
}

// pairBegunBy gives two ends, that with the key of this name ("greater" or "lesser") first.
func pairBegunBy(t *testing.T, delay time.Duration, first string) (one, two *end) {
	t.Helper()
	greater, lesser := pairOfEnds(t, delay)
	if first == "lesser" {
		return lesser, greater
	}
	return greater, lesser
}

// pairOfEnds gives two ends, that with the greater key first. They end with the test.
func pairOfEnds(t *testing.T, delay time.Duration) (greater, lesser *end) {
	t.Helper()
	var all []*end
	for i := range 2 {
		e := &end{delay: delay, addr: netip.AddrFrom4([4]byte{100, 112, 0, byte(i + 1)})}
		e.link = &link{out: make(chan []byte), closed: make(chan struct{}), wake: make(chan struct{}, 1), events: make(chan tun.Event)}
		e.link.came = func([]byte) {
			now := time.Now()
			e.arrived.CompareAndSwap(nil, &now)
		}
		k, err := ecdh.X25519().GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		e.secret, e.key = NewSecret([32]byte(k.Bytes())), member.Key(k.PublicKey().Bytes())
		s := &Socket{offloads: &offloads{}}
		s.sessions.init()
		if e.engine, err = Open(context.Background(), Parts{Socket: s, Tun: e.link, Relay: e, Log: slog.New(slog.DiscardHandler)}); err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	greater, lesser = all[0], all[1]
	if string(greater.key[:]) < string(lesser.key[:]) {
		greater, lesser = lesser, greater
	}
	greater.other, lesser.other = lesser, greater
	t.Cleanup(func() {
		greater.close(t)
		lesser.close(t)
	})
	for _, e := range all {
		err := e.engine.Apply(Config{Key: e.secret, Peers: []Peer{{Key: e.other.key, Probes: true, Ranges: []netip.Prefix{netip.PrefixFrom(e.other.addr, 32)}}}})
		if err != nil {
			t.Fatal(err)
		}
		e.engine.SetWay(e.other.key, path.Way{Relay: "h"}, netip.Addr{})
	}
	return greater, lesser
}

// kept are the peers of all ends: WireGuard drains a peer's queues when they are collected, in a
// goroutine outside of the bubble in which they were made, which the runtime does not permit.
var kept struct {
	mu    sync.Mutex
	peers []*device.Peer
}

func (e *end) close(t *testing.T) {
	kept.mu.Lock()
	kept.peers = append(kept.peers, e.engine.now.dev.LookupPeer(device.NoisePublicKey(e.other.key)))
	kept.mu.Unlock()
	if err := e.engine.Close(); err != nil {
		t.Error(err)
	}
}

// TestCrossingHandshakes: whoever begins first, and however long after it the other one does,
// both have their first packet across within two round trips of the second beginning: what
// one handshake takes, and no wait for WireGuard's next try after 5 s. One whose first
// packet is lost begins anew with the other one's.
// (Not tried is the very moment at which the other one's handshake is read: which of the two WireGuard
// makes first is a matter of its goroutines, and the wait is one of 5 s there.)
func TestCrossingHandshakes(t *testing.T) {
	for _, trip := range []time.Duration{10 * time.Millisecond, 120 * time.Millisecond, 600 * time.Millisecond} {
		delay := trip / 2
		for _, apart := range []time.Duration{
			0, time.Millisecond, delay / 2, delay - 1, delay + 1, trip - time.Millisecond, trip, trip + time.Millisecond,
			150*time.Millisecond - delay, 150 * time.Millisecond, 150*time.Millisecond + delay, 2 * trip, 4900 * time.Millisecond,
		} {
			for _, first := range []string{"greater", "lesser"} {
				for _, lost := range []string{"nothing", "greater", "lesser"} {
					if apart < 0 || lost != "nothing" && lost != first { // the second one's handshake is as good as the first one's
						continue
					}
					t.Run(fmt.Sprintf("%v apart %v first %s lost %s", trip, apart, first, lost), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) { cross(t, trip, apart, first, lost) })
					})
				}
			}
		}
	}
}

func cross(t *testing.T, trip, apart time.Duration, first, lost string) {
	one, two := pairBegunBy(t, trip/2, first)
	most := apart + 2*trip
	if lost != "nothing" {
		one.lose = 1
		most += trip
		if apart > 4*time.Second { // WireGuard's next try may be the one that counts, which it puts off by chance
			most += device.RekeyTimeoutJitterMaxMs * time.Millisecond
		}
	}
	began := time.Now()
	one.say()
	time.Sleep(apart)
	two.say()
	time.Sleep(20 * time.Second)
	synctest.Wait()
	for name, e := range map[string]*end{"that began": one, "that began later": two} {
		if at := e.arrived.Load(); at == nil || at.Sub(began) > most {
			t.Errorf("at the end %s the first packet is there at %v after %v, want at most %v", name, at, began, most)
		}
	}
}

// TestCrossingIsBounded: a flood of handshakes costs no more than the bound says, and who has
// nothing under way looks into none.
func TestCrossingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crossing{}
		if now := time.Now(); !c.idle(now) {
			t.Error("without a handshake of our own there is something to look for")
		}
		c.begun(time.Now())
		if c.idle(time.Now()) {
			t.Error("a handshake was begun, and none is looked for")
		}
		looked := 0
		for range 3 * limit.TunnelCrossing {
			if c.may(time.Now()) {
				looked++
			}
		}
		if looked != limit.TunnelCrossing {
			t.Errorf("%d handshakes are looked into within a second, want %d", looked, limit.TunnelCrossing)
		}
		time.Sleep(time.Second)
		if !c.may(time.Now()) {
			t.Error("a second later none is looked into")
		}
		time.Sleep(limit.TunnelAgain)
		if !c.idle(time.Now()) {
			t.Error("an old handshake is waited for")
		}
	})
}

// TestAClockThatIsPutBackIsNoHandshake: what was noted before counts no longer than it would have.
func TestAClockThatIsPutBackIsNoHandshake(t *testing.T) {
	c, now := &crossing{}, time.Now()
	c.begun(now)
	c.came.Store(now.UnixNano())
	for _, at := range []time.Time{now, now.Add(-time.Millisecond), now.Add(time.Millisecond)} {
		if c.idle(at) || !c.beside(at) {
			t.Errorf("at %v after both nothing is under way", at.Sub(now))
		}
	}
	if then := now.Add(-time.Hour); !c.idle(then) || c.beside(then) {
		t.Error("a handshake is under way since an hour to come")
	}
}

// TestWhoseHandshakesAreDroppedLetsOthersIn: a peer drops all handshakes of an end whose clock was
// put back. With traffic both ways they meet by the other one's, whoever has the greater key.
func TestWhoseHandshakesAreDroppedLetsOthersIn(t *testing.T) {
	for _, muted := range []string{"greater", "lesser"} {
		t.Run(muted, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				greater, lesser := pairOfEnds(t, 5*time.Millisecond)
				ends := map[string]*end{"greater": greater, "lesser": lesser}
				ends[muted].mute = true
				began := time.Now()
				for range 40 { // no longer than WireGuard tries
					greater.say()
					lesser.say()
					time.Sleep(time.Second)
				}
				synctest.Wait()
				most := limit.TunnelFirst + 2*limit.TunnelAgain
				for name, e := range ends {
					if at := e.arrived.Load(); at == nil || at.Sub(began) > most {
						t.Errorf("at the end with the %s key the first packet is there at %v after %v, want at most %v", name, at, began, most)
					}
				}
			})
		})
	}
}

// TestACookieIsNoSession: a peer under load says to come again with a cookie. It may begin itself right
// then, and its handshake is all there is.
func TestACookieIsNoSession(t *testing.T) {
	for _, asked := range []string{"greater", "lesser"} {
		t.Run(asked, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const trip = 20 * time.Millisecond
				one, two := pairBegunBy(t, trip/2, asked)
				one.lose = 1 // the other end reads it, and makes no session
				one.say()
				time.Sleep(trip)
				var checker device.CookieChecker
				checker.Init(device.NoisePublicKey(two.key))
				begun := one.engine.peers.get(two.key).newest.Load().packet
				reply, err := checker.CreateReply(begun, binary.LittleEndian.Uint32(begun[4:]), []byte("from somewhere"))
				if err != nil {
					t.Fatal(err)
				}
				cookie := binary.LittleEndian.AppendUint32([]byte{typeCookie, 0, 0, 0}, reply.Receiver)
				cookie = append(append(cookie, reply.Nonce[:]...), reply.Cookie[:]...)
				one.engine.Receive(two.key, cookie)
				began := time.Now()
				two.say()
				time.Sleep(time.Second)
				synctest.Wait()
				if at := one.arrived.Load(); at == nil || at.Sub(began) > 2*trip {
					t.Errorf("the first packet is there at %v, want within %v of %v", at, 2*trip, began)
				}
			})
		})
	}
}

// TestForgedAnswersChangeNothing: somebody on the way sees all handshakes, and answers each before the
// other end can. He knows no key, and the two ends meet as if he were not there.
func TestForgedAnswersChangeNothing(t *testing.T) {
	const trip = 80 * time.Millisecond
	forged := map[string]func(index []byte) []byte{
		"answer": func(index []byte) []byte {
			p := make([]byte, sizeResponse)
			p[0] = typeResponse
			copy(p[8:], index)
			return p
		},
		"cookie": func(index []byte) []byte {
			p := make([]byte, sizeCookie)
			p[0] = typeCookie
			copy(p[4:], index)
			return p
		},
	}
	for name, forge := range forged {
		for _, victims := range []string{"greater", "lesser", "both"} {
			t.Run(name+" to "+victims, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					greater, lesser := pairOfEnds(t, trip/2)
					ends := map[string]*end{"greater": greater, "lesser": lesser}
					for which, e := range ends {
						if victims != which && victims != "both" {
							continue
						}
						e.seen = func(p []byte) {
							if isInitiation(p) {
								f := forge(p[4:8])
								time.AfterFunc(time.Millisecond, func() { e.engine.Receive(e.other.key, f) })
							}
						}
					}
					began := time.Now()
					greater.say()
					lesser.say()
					time.Sleep(20 * time.Second)
					synctest.Wait()
					for which, e := range ends {
						if at := e.arrived.Load(); at == nil || at.Sub(began) > 2*trip {
							t.Errorf("at the end with the %s key the first packet is there at %v, want within %v of %v", which, at, 2*trip, began)
						}
					}
				})
			})
		}
	}
}

// TestALateHandshakeIsNotAnswered: an end has begun, and answers the other end's handshake before its own
// is there. Nobody could use an answer to that, and WireGuard would keep its session in place of the one
// in use with the next handshake.
func TestALateHandshakeIsNotAnswered(t *testing.T) {
	const trip = 20 * time.Millisecond
	for _, late := range []time.Duration{trip/2 + time.Millisecond, trip, limit.TunnelCrossed} {
		t.Run(late.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				greater, lesser := pairOfEnds(t, trip/2)
				lesser.late = late
				answers := 0
				greater.seen = func(p []byte) {
					if p[0] == typeResponse {
						answers++
					}
				}
				began := time.Now()
				lesser.say()
				greater.say()
				time.Sleep(time.Second)
				synctest.Wait()
				if answers != 0 {
					t.Errorf("a handshake that was late is answered %d times", answers)
				}
				for name, e := range map[string]*end{"greater": greater, "lesser": lesser} {
					if at := e.arrived.Load(); at == nil || at.Sub(began) > 2*trip {
						t.Errorf("at the end with the %s key the first packet is there at %v, want within %v of %v", name, at, 2*trip, began)
					}
				}
			})
		})
	}
}
