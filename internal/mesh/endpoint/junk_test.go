// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/mesh/nat"
)

// counted is a socket that is asked for its port once in each round.
type counted struct {
	*world
	rounds atomic.Int64
}

func (c *counted) Port() uint16 {
	c.rounds.Add(1)
	return c.world.Port()
}

// What looks like STUN and answers nothing is counted, and makes no round: else it would be
// dearer to us than other junk.
func TestJunkMakesNoRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		seen := at("203.0.113.1:4000")
		w.sees = func(netip.AddrPort) netip.AddrPort { return seen }
		socket := &counted{world: w}
		w.p.Socket = socket
		w.p.Servers = func() []Server { return []Server{{Name: "s", HostPort: "198.51.100.1:3478"}} }
		w.run(func() {
			after(10 * limit.STUNWait)
			if socket.rounds.Load() == 0 || w.failures("refused") != 0 {
				t.Fatalf("%d rounds, %d refused", socket.rounds.Load(), w.failures("refused"))
			}
			before, asked := socket.rounds.Load(), w.requests()
			const bursts = 20
			server := at("198.51.100.1:3478") // who forges its address knows no id either
			for n := range bursts {
				for k := range limit.TunnelSTUN {
					id := nat.ID{byte(n), byte(k)}
					w.e.STUN(server, nat.Answer(nat.Message{ID: id}, at("192.0.2.66:1"), netip.AddrPort{}))
				}
				synctest.Wait()
			}
			if n := socket.rounds.Load() - before; n != 0 {
				t.Errorf("%d packets of junk made %d rounds", bursts*limit.TunnelSTUN, n)
			}
			if n := w.failures("refused"); n != bursts*limit.TunnelSTUN || w.failures("dropped") != 0 {
				t.Errorf("%d refused and %d dropped of %d", n, w.failures("dropped"), bursts*limit.TunnelSTUN)
			}
			if w.requests() != asked {
				t.Error("junk makes the node ask")
			}
			after(limit.STUNKeepLate) // and answers count as ever
			if w.requests() == asked || socket.rounds.Load() == before {
				t.Error("nothing is asked any more")
			}
			w.want("own 192.168.1.2:51820", "mapped 203.0.113.1:4000")
		})
	})
}
