// SPDX-License-Identifier: Apache-2.0

package peering_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/mesh/peering"
)

// TestRestartWhileAPeerSends: a node that is killed and starts again sends nothing by itself,
// and its peer has a session with the life before. The first pong says that the peer has
// traffic, and packets pass a few round trips (of 20 ms) after the start.
func TestRestartWhileAPeerSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, a, b := settled(t)
		for range 5 { // at each moment between two pings of the peer
			if _, lost := talk(a, b, 100*time.Millisecond, 3*time.Second+170*time.Millisecond); lost > 0 {
				t.Fatalf("%d packets are lost before the restart", lost)
			}
			b.stop()
			synctest.Wait()
			b.engine = newEngine(b)
			next, err := peering.New(peering.Parts{Private: b.private, Socket: b, Engine: b.engine, Traffic: b.engine, Datapath: peering.NewDatapath(hub{b}), Endpoints: b.endpoints, Log: quiet()})
			if err != nil {
				t.Fatal(err)
			}
			b.p = next
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { done <- next.Run(ctx) }()
			b.stop = sync.OnceFunc(func() { cancel(); <-done })
			b.knows(a)
			took := w.until(10*time.Second, "packets after the restart", func() bool {
				k := counter.Add(1)
				a.engine.say(b.inside, k)
				time.Sleep(20 * time.Millisecond)
				synctest.Wait()
				return b.engine.has(k)
			})
			if took > 400*time.Millisecond {
				t.Errorf("packets pass %v after the restart", took)
			}
		}
		b.stop()
	})
}
