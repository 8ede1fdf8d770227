// SPDX-License-Identifier: Apache-2.0

package ipsectunnel

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// counting is a network in which nobody answers, some at once and some not at all.
type counting struct {
	mu        sync.Mutex
	now, most int
	dials     map[netip.AddrPort]int
}

func (c *counting) Dial(ctx context.Context, to netip.AddrPort, _ netip.Addr, _ *tls.Config) (Conn, error) {
	c.mu.Lock()
	c.now, c.dials[to] = c.now+1, c.dials[to]+1
	c.most = max(c.most, c.now)
	c.mu.Unlock()
	if to.Addr().As4()[3]%2 == 0 {
		<-ctx.Done()
	} else {
		run.Wait(ctx, time.Second/10)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now--
	return nil, errors.New("nobody is there")
}

func (*counting) Run(ctx context.Context, _ func(context.Context, Conn)) error {
	<-ctx.Done()
	return nil
}

// TestManyPeersAtOnce: so many exchanges are begun at a time and no more, and each peer has its turn, however long others
// do not answer.
func TestManyPeersAtOnce(t *testing.T) {
	const peers = 300
	synctest.Test(t, func(t *testing.T) {
		net, k := &counting{dials: map[netip.AddrPort]int{}}, &kernel{}
		e, err := New(Parts{Kernel: k, Link: k, Transport: net, Port: port,
			Local: func(to netip.Addr) (netip.Addr, error) { return to, nil }})
		if err != nil {
			t.Fatal(err)
		}
		seed := [32]byte{1: 1}
		cfg := tunnel.Config{Key: tunnel.NewSecret(seed), Signer: tunnel.NewSigner(ed25519.NewKeyFromSeed(seed[:]))}
		for i := range peers {
			p := tunnel.Peer{Probes: true}
			binary.BigEndian.PutUint32(p.Key[:], uint32(i+1)<<8)
			p.Pin = member.Pin(p.Key)
			cfg.Peers = append(cfg.Peers, p)
		}
		if err := e.Apply(cfg); err != nil {
			t.Fatal(err)
		}
		g := run.NewGroup(t.Context())
		g.Go("engine", e.Run)
		for i, p := range cfg.Peers {
			to := netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)})
			e.SetPath(p.Key, path.Path{Addr: netip.AddrPortFrom(to, port)}, netip.AddrFrom4([4]byte{192, 0, 2, 1}))
		}
		least := func(after time.Duration, want int) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			net.mu.Lock()
			defer net.mu.Unlock()
			n := 1 << 30
			for _, d := range net.dials {
				n = min(n, d)
			}
			if len(net.dials) != peers || n < want {
				t.Errorf("%d of %d peers had a turn, of which one had %d, want %d", len(net.dials), peers, n, want)
			}
		}
		// Half of them keep their places for all of an exchange's time.
		round := peers / 2 * exchangeTime / mostBegun
		least(round+yield+2*exchangeTime, 1)
		least(4*(round+longestPause), 4)
		if net.most != mostBegun {
			t.Errorf("%d exchanges at once, want %d", net.most, mostBegun)
		}
		early := map[byte]int{}
		for _, p := range e.peers {
			early[p.early]++
		}
		if len(early) < peers/2 {
			t.Errorf("the keys of %d peers are due at %d different times", peers, len(early))
		}
		g.Stop()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
}
