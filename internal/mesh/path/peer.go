// SPDX-License-Identifier: Apache-2.0

package path

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// Path is one path to a peer: directly to an address, or through the relay of a hub. The zero value
// is no path.
type Path struct {
	Addr  netip.AddrPort
	Relay string // name of the hub
}

// Direct reports whether the path goes without a relay.
func (w Path) Direct() bool { return w.Addr.IsValid() }

// IsZero reports whether there is no path.
func (w Path) IsZero() bool { return w == Path{} }

func (w Path) String() string {
	switch {
	case w.Direct():
		return w.Addr.String()
	case w.Relay != "":
		return "relay " + w.Relay
	}
	return "none"
}

// Kind says how an address became a candidate; the most promising kinds come first.
type Kind uint8

// The kinds.
const (
	Static   Kind = iota // configured
	Own                  // an address of the peer itself
	Mapped               // as seen from outside, or given by its router
	Heard                // a valid ping came from there
	Observed             // another member saw it there
)

func (k Kind) String() string {
	return [...]string{"static", "own", "mapped", "heard", "observed"}[k]
}

// Candidate is an endpoint at which a peer may be reached.
type Candidate struct {
	Addr netip.AddrPort
	Kind Kind
	Near bool // on a link of this machine, or in a private network that both are in
}

// Facts are what other sources know about a peer.
type Facts struct {
	Candidates []Candidate // at most limit.PathCandidates count, by kind
	Relays     []string    // hubs at which both are, in the order of this node
	Probes     bool        // it answers pings; else WireGuard's handshakes must do
	Lazy       bool        // nothing is kept open without traffic
	// Soon says that a dead path has to be known sooner than with other peers.
	Soon bool
}

// Send is one thing to send to the peer.
type Send struct {
	To   Path
	Ping uint64 // its id; 0 for a call
	Size int    // of the IP packet that a ping makes; 0 for the smallest
	// Wanted says that this node has traffic with the peer: a lazy one then keeps
	// its end of the path too. Without it two ends would keep each other awake.
	Wanted bool
}

// Call reports whether it is a call, which names this node's endpoints.
func (s Send) Call() bool { return s.Ping == 0 }

// Peer is what one node knows about its paths to another. It is not safe for concurrent use.
type Peer struct {
	rand  func() uint64
	facts Facts
	paths map[Path]*track
	now   Path // in use

	traffic time.Time // newest packet, either way
	wanted  time.Time // when it was last wanted by a ping or call of the peer
	seek    seeking
	called  time.Time // when a call was last sent
	heeded  time.Time // when a call of the peer last counted
	due     time.Time // of the last Next
	changed time.Time // when now last changed
	turn    rotation  // of a peer without probes
}

// New returns a peer about which nothing is known. rand generates ids of pings, which a peer must
// not be able to guess.
func New(rand func() uint64) *Peer { return &Peer{rand: rand, paths: map[Path]*track{}} }

// Path is the path in use.
func (p *Peer) Path() Path { return p.now }

// Learn takes new facts. State of remaining candidates is kept; removed candidates are forgotten,
// except the one in use while it answers: a candidate that a service has forgotten may well be
// alive.
func (p *Peer) Learn(now time.Time, f Facts) {
	f.Candidates = chosen(f.Candidates)
	f.Relays = f.Relays[:min(len(f.Relays), pathRelays)]
	p.facts = f
	stay := map[Path]bool{}
	fresh := false
	withdrawn := p.paths[p.now] != nil && p.paths[p.now].kind == Static
	for _, c := range f.Candidates {
		w := Path{Addr: c.Addr}
		stay[w] = true
		t, ok := p.paths[w]
		if !ok {
			t = &track{since: now, next: now}
			p.paths[w] = t
			fresh = true
		}
		t.kind, t.near = c.Kind, c.Near
	}
	for _, name := range f.Relays {
		w := Path{Relay: name}
		stay[w] = true
		if p.paths[w] == nil {
			p.paths[w] = &track{since: now}
		}
	}
	for w, t := range p.paths {
		if !stay[w] && t.kind != Heard && (w != p.now || !w.Direct()) {
			delete(p.paths, w)
		}
	}
	if withdrawn && !stay[p.now] && !f.Probes && len(f.Candidates) > 0 { // what an operator or a name has taken back
		p.use(now, Path{Addr: f.Candidates[0].Addr}) // the session may go on there
		p.turn.at, p.turn.began = 0, now
	}
	if fresh && !p.now.Direct() {
		p.seek.restart(now)
	}
	p.choose(now)
}

// chosen returns the candidates that count: each address once, with its best kind, the best kinds
// first.
func chosen(in []Candidate) []Candidate {
	out := slices.Clone(in)
	slices.SortStableFunc(out, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), a.Addr.Compare(b.Addr))
	})
	seen := map[netip.AddrPort]bool{}
	out = slices.DeleteFunc(out, func(c Candidate) bool {
		again := seen[c.Addr] || !c.Addr.IsValid()
		seen[c.Addr] = true
		return again
	})
	return out[:min(len(out), limit.PathCandidates)]
}

// Traffic reports that a packet went to the peer or came from it. It wakes a lazy one.
func (p *Peer) Traffic(now time.Time) {
	if !p.isWanted(now) {
		p.seek.restart(now)
	}
	begins := !p.isActive(now)
	p.traffic = now
	if t := p.paths[p.now]; t != nil && begins { // the next ping is as far away as that of a path without traffic
		t.within(now, p.live())
	}
}

// Moved reports that this machine has other addresses, or was suspended: every path must prove
// itself again, at once.
func (p *Peer) Moved(now time.Time) {
	for _, t := range p.paths {
		t.open, t.missed, t.next, t.size = nil, 0, now, sizing{}
	}
	p.seek.restart(now)
}

// Heard reports that a valid ping of the peer came on a path, and whether the peer has traffic with
// this node.
func (p *Peer) Heard(now time.Time, w Path, wanted bool) {
	if wanted {
		p.want(now)
	}
	t, ok := p.paths[w]
	if !w.Direct() {
		if ok {
			t.absent = time.Time{}
		}
		return
	}
	if !ok {
		p.forgetHeard()
		t = &track{since: now, kind: Heard}
		p.paths[w] = t
	}
	t.heard = now
	if !p.now.Direct() && t.answered.IsZero() { // the hole is open now: use it
		t.pingNow(now)
	}
}

// forgetHeard makes room for another source of pings: those heard longest ago that never answered
// go first.
func (p *Peer) forgetHeard() {
	for {
		var oldest Path
		n := 0
		for w, t := range p.paths {
			if t.kind != Heard || w == p.now {
				continue
			}
			n++
			if o := p.paths[oldest]; o == nil || t.worth(o) < 0 {
				oldest = w
			}
		}
		if n < limit.PathHeard {
			return
		}
		delete(p.paths, oldest)
	}
}

// Called reports that the peer pings all our endpoints now, and its own endpoints at this moment.
func (p *Peer) Called(now time.Time, endpoints []netip.AddrPort) {
	if !p.heeded.IsZero() && now.Sub(p.heeded) < pathCalled {
		return
	}
	p.heeded = now
	p.want(now)
	for _, at := range endpoints {
		w := Path{Addr: at}
		if p.paths[w] == nil && at.IsValid() && len(p.paths) < limit.PathCandidates+limit.PathHeard {
			p.forgetHeard()
			p.paths[w] = &track{since: now, kind: Heard}
		}
	}
	// One round, at once, and no call: it opens our NAT while the peer's pings arrive, and the
	// peer's next pings come with another call. Two nodes that start again at each other's calls
	// would never stop.
	for w, t := range p.paths {
		if w.Direct() {
			t.pingNow(now)
		}
	}
}

// Absent reports that a hub does not know the peer.
func (p *Peer) Absent(now time.Time, hub string) {
	if t := p.paths[Path{Relay: hub}]; t != nil {
		t.absent = now
		p.choose(now)
	}
}

func (p *Peer) want(now time.Time) {
	if !p.isWanted(now) {
		p.seek.restart(now)
	}
	p.wanted = now
}

// isWanted reports whether a path is kept open.
func (p *Peer) isWanted(now time.Time) bool {
	if !p.facts.Lazy {
		return true
	}
	return recent(p.traffic, now, limit.PathIdle) || recent(p.wanted, now, limit.PathIdle)
}

// Wants reports whether this node has traffic with the peer, as its pings say.
func (p *Peer) Wants(now time.Time) bool { return recent(p.traffic, now, limit.PathIdle) }

func (p *Peer) isActive(now time.Time) bool { return recent(p.traffic, now, limit.PathActive) }

func recent(at, now time.Time, within time.Duration) bool {
	return !at.IsZero() && now.Sub(at) < within
}
