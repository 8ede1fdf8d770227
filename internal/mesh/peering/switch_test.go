// SPDX-License-Identifier: Apache-2.0

package peering_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/mesh/kernel/wireguard/wireguardtest"
	"github.com/tombolo-io/tombolo/internal/mesh/peering"
)

// as begins a node anew with the key that it has and another engine, as a start with another
// mesh.engine does. The others hear what it can do now, and nothing else of it is another.
func (n *node) as(kernel bool, others ...*node) {
	n.w.t.Helper()
	n.stop()
	synctest.Wait()
	n.kernel = nil
	n.engine = newEngine(n)
	var carries wireGuard = n.engine
	data := peering.NewDatapath(hub{n})
	if kernel {
		n.kernel = wireguardtest.New()
		carries = n.inKernel(data)
	}
	p, err := peering.New(peering.Parts{Private: n.private, Socket: n, Engine: carries, Traffic: carries, Datapath: data, Endpoints: n.endpoints, Log: quiet()})
	if err != nil {
		n.w.t.Fatal(err)
	}
	n.p = p
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	n.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			n.w.t.Error(err)
		}
	})
	n.w.t.Cleanup(n.stop)
	meet(append(others, n)...)
}

// TestTheEngineIsSwitched: the same key, by the node's own WireGuard, by the kernel's and back.
// The peer is the same one to both ends, by the same key, and packets pass both ways each time.
func TestTheEngineIsSwitched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, a, b := settled(t)
		for _, kernel := range []bool{true, false} {
			b.as(kernel, a)
			w.until(2*time.Minute, "packets pass both ways", func() bool {
				one, other := counter.Add(1), counter.Add(1)
				a.say(b, one)
				b.say(a, other)
				time.Sleep(time.Second)
				synctest.Wait()
				return b.has(one) && a.has(other)
			})
			for _, of := range [][2]*node{{a, b}, {b, a}} {
				if r := of[0].report(of[1]); r.ID != "id-"+of[1].name || r.Key != of[1].key || r.Handshake.IsZero() || !r.Up() || r.Problem != nil {
					t.Errorf("in the kernel: %v: to %s the other one is %+v", kernel, of[0].name, r)
				}
			}
			if n := len(a.p.Reports()) + len(b.p.Reports()); n != 2 {
				t.Errorf("in the kernel: %v: there are %d peers", kernel, n)
			}
		}
	})
}
