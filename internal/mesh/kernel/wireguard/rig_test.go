// SPDX-License-Identifier: Apache-2.0

package wireguard_test

import (
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/wireguard"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/wireguard/wireguardtest"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

const link = wireguardtest.Link

// end is a machine whose only network is the other end's.
type end struct {
	*wireguardtest.Kernel
	d      *wireguard.Device
	own    tunnel.Secret
	key    member.Key
	at     netip.AddrPort
	inside netip.Addr
	mu     sync.Mutex
	woken  int
	cut    bool
}

// two are ends that know each other.
func two(t *testing.T) (a, b *end) {
	t.Helper()
	a, b = newEnd(t, 1), newEnd(t, 2)
	a.Emit, b.Emit = a.to(b), b.to(a)
	return a, b
}

func newEnd(t *testing.T, i byte) *end {
	t.Helper()
	e := &end{Kernel: wireguardtest.New(), at: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, i}), 51820), inside: netip.AddrFrom4([4]byte{100, 112, 0, i})}
	e.own, e.key = wireguardtest.Key(t)
	e.open(t)
	return e
}

func (e *end) open(t *testing.T) {
	t.Helper()
	var err error
	e.d, err = wireguard.Open(wireguard.Settings{Link: link, MTU: 1420, Port: 51820, Mark: 0x20}, wireguard.Parts{Control: e, Links: e, Wake: func(member.Key) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.woken++
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Up(link); err != nil {
		t.Fatal(err)
	}
}

func (e *end) to(o *end) func(netip.AddrPort, []byte) {
	return func(to netip.AddrPort, b []byte) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if to == o.at && !e.cut {
			time.AfterFunc(5*time.Millisecond, func() { o.Come(e.at, b) })
		}
	}
}

func (e *end) wakes() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.woken
}

// knows has an end apply the other.
func (e *end) knows(t *testing.T, o *end, psk byte, keepalive time.Duration) {
	t.Helper()
	p := tunnel.Peer{Key: o.key, PSK: tunnel.NewSecret([32]byte{psk}), Ranges: []netip.Prefix{netip.PrefixFrom(o.inside, 32)}, Keepalive: keepalive, First: o.at}
	if err := e.d.Apply(tunnel.Config{Key: e.own, Peers: []tunnel.Peer{p}}); err != nil {
		t.Fatal(err)
	}
}

func (e *end) stat(t *testing.T) tunnel.Stat {
	t.Helper()
	all, err := e.d.Stats()
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	return all[0]
}
