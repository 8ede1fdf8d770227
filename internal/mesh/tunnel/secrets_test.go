// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"encoding/binary"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// stream is what one end says to the other, a packet in every few milliseconds: with a round
// trip of many there are always some under way.
type stream struct {
	from *end
	mu   sync.Mutex
	came map[uint32]bool
}

func streamOf(from *end) *stream {
	s := &stream{from: from, came: map[uint32]bool{}}
	from.other.link.came = func(b []byte) {
		if len(b) < 24 {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.came[binary.BigEndian.Uint32(b[20:])] = true
	}
	return s
}

const said = 5 * time.Millisecond

// flow says packets until it is told to stop, and says how many they were.
func (s *stream) flow(stop <-chan struct{}) (n uint32) {
	for every := time.NewTicker(said); ; n++ {
		select {
		case <-stop:
			every.Stop()
			return n
		case <-every.C:
		}
		s.from.number(n)
	}
}

// TestNoPacketIsLostBetweenSecrets: two ends change to another preshared key one after the other.
// Until both have it every handshake fails: who answers one has a session that the other end does not
// know, and WireGuard would throw the old one away for it as soon as a handshake of this end's own is
// done, with all that the other one sends by it still.
func TestNoPacketIsLostBetweenSecrets(t *testing.T) {
	const trip = 100 * time.Millisecond
	for _, first := range []string{"greater", "lesser"} {
		for _, apart := range []time.Duration{
			0, time.Millisecond, trip / 2, trip/2 + 1, trip - time.Millisecond, trip, 2 * trip, time.Second,
			4900 * time.Millisecond, 5 * time.Second, 5100 * time.Millisecond, 7 * time.Second, 12 * time.Second,
		} {
			for _, looks := range []string{"both", "first", "second"} {
				t.Run(fmt.Sprintf("first %s apart %v looks %s", first, apart, looks), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { turn(t, trip, apart, first, looks) })
				})
			}
		}
	}
}

func turn(t *testing.T, trip, apart time.Duration, first, looks string) {
	one, two := pairBegunBy(t, trip/2, first)
	streams := []*stream{streamOf(one), streamOf(two)}
	one.say()
	time.Sleep(time.Second)
	stop := make(chan struct{})
	var wait sync.WaitGroup
	sent := make([]uint32, len(streams))
	for i, s := range streams {
		wait.Go(func() { sent[i] = s.flow(stop) })
	}
	time.Sleep(6 * time.Second) // WireGuard begins none within 5 s of the last one
	secret := NewSecret([32]byte{7})
	for _, e := range []*end{one, two} {
		before := e.shakes(t)
		wait.Go(func() { // as the owner of the peers does
			if err := e.engine.TryPSK(e.other.key, secret); err != nil {
				t.Error(err)
			}
			for began := time.Now(); e.shakes(t) == before; time.Sleep(limit.PeeringSoon) {
				if time.Since(began) > 20*time.Second {
					t.Error("there is no handshake with the new secret")
					return
				}
				if looks == "both" || (looks == "first") == (e == one) { // else WireGuard's own tries come, a little later
					if err := e.engine.Handshake(e.other.key); err != nil {
						t.Error(err)
					}
				}
			}
		})
		time.Sleep(apart)
	}
	time.Sleep(22 * time.Second) // two tries
	close(stop)
	wait.Wait()
	time.Sleep(time.Second)
	for i, s := range streams {
		lost, at := 0, uint32(0)
		s.mu.Lock()
		for n := range sent[i] {
			if !s.came[n] {
				lost++
				at = n
			}
		}
		s.mu.Unlock()
		if lost > 0 || sent[i] < uint32(25*time.Second/said) {
			t.Errorf("%d of %d packets were lost of stream %d, the last one after %v", lost, sent[i], i, time.Duration(at)*said)
		}
	}
}

func (e *end) shakes(t *testing.T) uint64 {
	all, err := e.engine.Stats()
	if err != nil || len(all) != 1 {
		t.Error(all, err)
		return 0
	}
	return all[0].Shakes
}
