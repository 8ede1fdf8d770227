// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/internal/mesh/endpoint"
	"github.com/tombolo-io/tombolo/internal/mesh/peering"
	"github.com/tombolo-io/tombolo/internal/mesh/routing"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// changing are members that change.
type changing struct {
	*knower
	mu     sync.Mutex
	result roster.Result
	more   chan struct{}
}

func (c *changing) Result() (roster.Result, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.result, c.more
}

func (c *changing) set(r roster.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.result = r
	close(c.more)
	c.more = make(chan struct{})
}

func (c *changing) Under(string) []seal.ClusterID { return nil }

type applying struct {
	peering.Engine
	peering.Traffic
	apply func()
}

func (a *applying) Apply(tunnel.Config) error { a.apply(); return nil }

type bound struct{ socket }

func (bound) Port() uint16        { return 1 }
func (bound) Has(netip.Addr) bool { return true }

type noKernel struct{ routing.Kernel }

// TestNewsDuringARequest: members that change while the loop carries out a request are looked at soon.
func TestNewsDuringARequest(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		m, k := newRoom(t, dir, nil)
		members, engine := &changing{knower: k, more: make(chan struct{})}, &applying{apply: func() {}}
		m.o.Members = members
		p := &parts{way: way{endpoints: &endpoint.Endpoints{}}}
		p.carrier.socket = bound{}
		private, err := ecdh.X25519().GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if p.routing, err = routing.New(routing.Parts{Kernel: noKernel{}, Log: slog.New(slog.DiscardHandler)}); err != nil {
			t.Fatal(err)
		}
		p.peering, err = peering.New(peering.Parts{Private: private, Socket: bound{}, Engine: engine, Traffic: engine, Datapath: peering.NewDatapath(nil)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = m.loop(ctx, p) })
		defer wg.Wait()
		defer cancel()
		time.Sleep(time.Second)
		b := ranged("b", "nb", "10.2.0.0/16")
		b.Key = member.Key{1}
		engine.apply = func() {
			engine.apply = func() {}
			members.set(roster.Result{Members: []roster.Member{b}})
		}
		m.ask(tunneled{topology.Peers{}})
		time.Sleep(time.Second)
		if known := m.state.Load().world.result.Members; len(known) != 1 {
			t.Errorf("a second later %d members are known", len(known))
		}
	})
}
