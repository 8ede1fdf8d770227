// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"sync"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/mesh/relayproto"
)

// outbox is what waits to be written to a hub, by whichever connection is in use.
type outbox struct {
	mu   sync.Mutex
	wait []byte
	wake chan struct{} // one place
}

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1)} }

// packets appends the packets that fit, and says how many and how many bytes these are, and how
// many can be none. The writer is woken when all are there, and writes them at once.
func (o *outbox) packets(peer string, datagrams [][]byte) (taken int, odd, bytes int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, d := range datagrams {
		switch {
		case len(peer) == 0 || len(peer) > 255 || len(d) > limit.RelayDatagram:
			odd++
		case len(o.wait)+relayproto.PacketSize(peer, d) <= limit.RelayQueue:
			o.wait = relayproto.AppendPacket(o.wait, peer, d)
			taken++
			bytes += int64(len(d))
		}
	}
	if taken > 0 {
		o.ring()
	}
	return taken, odd, bytes
}

// control appends a small frame, also where packets find no room.
func (o *outbox) control(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.wait)+len(b) <= limit.RelayQueue+limit.RelayKept {
		o.wait = append(o.wait, b...)
	}
	o.ring()
}

func (o *outbox) ring() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// take returns what waits, in exchange for a buffer that was written.
func (o *outbox) take(written []byte) []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	b := o.wait
	o.wait = written[:0]
	return b
}

func (o *outbox) clear() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.wait = nil
}

func (o *outbox) waiting() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.wait)
}
