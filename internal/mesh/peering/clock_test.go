// SPDX-License-Identifier: Apache-2.0

package peering_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/mesh/peering"
)

// forget has an engine lose its sessions, as one that starts anew.
func (e *engine) forget(deaf bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.deaf = deaf
	for _, p := range e.now.peers {
		p.session, p.ids = time.Time{}, [2]uint64{}
	}
}

// hear has it take the handshakes of others or not.
func (e *engine) hear(deaf bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.deaf = deaf
}

// TestAClockThatWasPutBack: a node starts anew, and its clock is behind that of its life before:
// the peer drops its handshakes as replays. It has traffic, and the peer has none. It
// asks for a handshake of the peer, and packets pass, whether the peer has a session with
// the life before or none any more. The status says what is wrong meanwhile.
func TestAClockThatWasPutBack(t *testing.T) {
	for name, idle := range map[string]time.Duration{"the peer has a session": 0, "the peer has none": 5 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, a, b := settled(t)
				if _, lost := talk(b, a, 100*time.Millisecond, time.Second); lost > 0 {
					t.Fatalf("%d packets are lost before", lost)
				}
				time.Sleep(idle)
				a.engine.hear(true)
				b.engine.forget(false)
				told := false
				took := w.until(2*time.Minute, "packets", func() bool {
					k := counter.Add(1)
					b.engine.say(a.inside, k)
					time.Sleep(100 * time.Millisecond)
					synctest.Wait()
					told = told || strings.Contains(b.report(a).Why, "no handshake is answered for 1")
					return a.engine.has(k)
				})
				if most := peering.PeeringAsk + peering.PeeringShake + peering.PeeringLook; took > most {
					t.Errorf("packets pass after %v, want %v at most", took, most)
				}
				if !told {
					t.Error("meanwhile the status does not say that no handshake is answered")
				}
				time.Sleep(time.Minute)
				before := a.engine.called("Handshake")
				if _, lost := talk(b, a, 100*time.Millisecond, 5*time.Second); lost > 0 {
					t.Errorf("%d packets are lost later", lost)
				}
				if why := b.report(a).Why; why != "" {
					t.Errorf("the status still says %q", why)
				}
				if n := a.engine.called("Handshake") - before; n > 0 {
					t.Errorf("the peer begins %d handshakes for which nobody asks any more", n)
				}
			})
		})
	}
}
