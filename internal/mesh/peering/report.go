// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
)

// Report is what is known of a peer, for routing and for people.
type Report struct {
	ID, Name string
	Key      member.Key
	path.Report
	MTU            int           // of the tunnel's packets that pass; 0: not known, or no bound
	Handshake      time.Time     // the newest, by the wall clock; zero: none yet
	Age            time.Duration // of it, by a clock that does not jump
	Sent, Received uint64        // bytes of WireGuard, since the keys of both
	Traffic        time.Time     // the newest packet with content, as far as it is known
	Secret         seal.ClusterID
	Patient        bool  // it stays longer with a preshared key than the peer does
	Unsent         error // why the kernel last refused to send
	Problem        error // it is no peer, for this reason
	Alone          bool  // it reaches no other node of its cluster, as it says
	Apart          bool  // for another engine than this node's
}

// Up reports whether packets can reach the peer, or will when there are some.
func (r Report) Up() bool { return r.State != path.Down }

// Reports are those of all peers, and of those that were refused, by id.
func (p *Peering) Reports() []Report {
	p.turn.Lock()
	p.mu.Lock()
	old := !recent(p.asked, time.Now(), peeringLook) && len(p.peers) > 0
	p.mu.Unlock()
	if old {
		p.refresh()
	}
	p.turn.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	out := slices.Clone(p.refused)
	for _, x := range p.peers {
		out = append(out, p.reportOf(now, x))
	}
	slices.SortFunc(out, func(a, b Report) int { return compare(a.ID, b.ID) })
	return out
}

func compare(a, b string) int { return strings.Compare(a, b) }

func (p *Peering) reportOf(now time.Time, x *peer) Report {
	r := Report{
		ID: x.ID, Name: x.Name, Key: x.Key, Report: x.path.Report(now),
		MTU: tunnelMTU(p.parts.Encrypts, x.via, x.size), Traffic: x.packet, Unsent: x.unsent,
		Handshake: x.link.handshake, Sent: x.link.sent, Received: x.link.received, Secret: x.link.psk.Use,
		Patient: x.link.patient,
	}
	if !x.link.shook.IsZero() {
		r.Age = now.Sub(x.link.shook)
	}
	if long := p.unanswered(now, x); long > 0 && r.State != path.Down && r.State != path.Idle {
		r.add(fmt.Sprintf("no handshake is answered for %v", long.Round(time.Second)))
	}
	if r.Alone = x.alone; r.Alone {
		r.add("it reaches no other node of its own cluster")
	}
	return r
}

func (r *Report) add(why string) { r.Why = strings.TrimPrefix(r.Why+"; "+why, "; ") }

// readings are those of this one and of the one beside it.
func (p *Peering) readings() telemetry.PeeringReadings {
	both := func(read func(p *Peering, what string) float64) func(string) float64 {
		return func(what string) float64 {
			sum := read(p, what)
			if o := p.beside.Load(); o != nil {
				sum += read(o, what)
			}
			return sum
		}
	}
	return telemetry.PeeringReadings{
		Peers: both(inState),
		Bytes: both(func(p *Peering, direction string) float64 {
			if direction == "sent" {
				return float64(p.bytes.sent.Load())
			}
			return float64(p.bytes.received.Load())
		}),
		Relayed: both(func(p *Peering, direction string) float64 {
			if direction == "sent" {
				return float64(p.relayedSent.Load())
			}
			return float64(p.bytes.relayedReceived.Load())
		}),
	}
}

// inState is how many peers are in a state.
func inState(p *Peering, state string) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, n := time.Now(), 0
	for _, x := range p.peers {
		if s, _ := x.path.State(now); string(s) == state {
			n++
		}
	}
	return float64(n)
}
