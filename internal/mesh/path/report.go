// SPDX-License-Identifier: Apache-2.0

package path

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// State is the state of a peer's path, in a word.
type State string

// The states.
const (
	Idle    State = "idle"    // lazy, and nobody wants it
	Direct  State = "direct"  // by one of its candidates
	Relayed State = "relayed" // by a hub
	Down    State = "down"    // nothing carries
)

// Report is what is known about the paths to a peer, for people.
type Report struct {
	State      State
	Why        string
	Path       Path
	Since      time.Time // when the path was taken
	Trip       time.Duration
	Size       int // of the largest IP packet that is known to pass; 0: not known
	Candidates []Tried
}

// Tried is one candidate, and the result.
type Tried struct {
	Path     Path
	Kind     Kind
	Near     bool
	Sent     int
	Answers  int
	Trip     time.Duration
	Answered time.Time
	Why      string
}

// Report returns what is known.
func (p *Peer) Report(now time.Time) Report {
	r := Report{Path: p.now, Since: p.changed}
	if t := p.paths[p.now]; t != nil {
		r.Trip, r.Size = t.trip, t.size.passes
	}
	r.State, r.Why = p.reasoned(now)
	for _, w := range p.order() {
		t := p.paths[w]
		r.Candidates = append(r.Candidates, Tried{
			Path: w, Kind: t.kind, Near: t.near, Sent: t.sent, Answers: t.answers, Trip: t.trip, Answered: t.answered,
			Why: p.why(now, w, t),
		})
	}
	return r
}

// State returns only the state, and the largest IP packet that passes on the path in use; 0 while
// that is uncertain.
func (p *Peer) State(now time.Time) (State, int) {
	s, _ := p.state(now)
	if t := p.paths[p.now]; t != nil && p.now.Direct() && t.size.found() {
		return s, t.size.passes
	}
	return s, 0
}

// Places are the addresses at which the peer has proven to be, without a relay, in order; the
// addresses it announces are only claims.
func (p *Peer) Places(now time.Time) []netip.Addr {
	var out []netip.Addr
	add := func(w Path) {
		if a := w.Addr.Addr().Unmap().WithZone(""); w.Direct() && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	for w, t := range p.paths {
		if t.answers > 0 {
			add(w)
		}
	}
	if s, _ := p.state(now); s == Direct { // by a handshake alone, perhaps
		add(p.now)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// reason is why a peer's path is in its state.
type reason int

const (
	unwanted reason = iota
	provenByHandshake
	silentNowhere  // it speaks no probes, and has no candidate
	silentHandless // it speaks no probes, and no handshake came
	provenByPong
	nowhere
	unanswered
	notAtTheHub
	silentAtTheHub
	byTheHub
)

// state is called for all peers again and again, so it builds no text.
func (p *Peer) state(now time.Time) (State, reason) {
	t := p.paths[p.now]
	switch {
	case !p.isWanted(now):
		return Idle, unwanted
	case !p.facts.Probes && p.now.Direct() && recent(p.turn.shook, now, limit.PathHandshake+pathTurn):
		return Direct, provenByHandshake
	case !p.facts.Probes && len(p.facts.Candidates) == 0:
		return Down, silentNowhere
	case !p.facts.Probes:
		return Down, silentHandless
	case p.now.Direct():
		return Direct, provenByPong
	case p.now.IsZero() && len(p.facts.Candidates) == 0:
		return Down, nowhere
	case p.now.IsZero():
		return Down, unanswered
	case recent(t.absent, now, pathAbsent):
		return Down, notAtTheHub
	case t.missed >= pathMissed:
		return Down, silentAtTheHub
	}
	return Relayed, byTheHub
}

// reasoned is the state with its reason, for people.
func (p *Peer) reasoned(now time.Time) (State, string) {
	s, why := p.state(now)
	n := len(p.facts.Candidates)
	switch why {
	case unwanted:
		return s, fmt.Sprintf("no traffic for %v", limit.PathIdle)
	case provenByHandshake:
		return s, "it speaks no probes; there was a handshake"
	case silentNowhere:
		return s, "nobody says where it may be reached, and it speaks no probes"
	case silentHandless:
		return s, "it speaks no probes, and no handshake came"
	case nowhere:
		return s, "nobody says where it may be reached, and no relay has both"
	case unanswered:
		return s, fmt.Sprintf("none of %d candidates answers, and no relay has both", n)
	case notAtTheHub:
		return s, "no candidate answers, and the peer is not at the hub"
	case silentAtTheHub:
		return s, fmt.Sprintf("no candidate answers, nor the peer by the hub to %d pings", p.paths[p.now].missed)
	case byTheHub:
		return s, fmt.Sprintf("none of %d candidates answers", n)
	}
	return s, ""
}

// why says what is known about a path, or why it is not in use.
func (p *Peer) why(now time.Time, w Path, t *track) string {
	switch {
	case w == p.now:
		return "in use"
	case recent(t.absent, now, pathAbsent):
		return "the hub does not know the peer"
	case t.sent == 0 && !w.Direct():
		return "not needed"
	case t.sent == 0:
		return "not tried yet"
	case t.answered.IsZero():
		return fmt.Sprintf("no answer to %d pings", t.sent)
	case t.missed >= pathMissed:
		return fmt.Sprintf("no answer to the last %d pings; answered %v ago", t.missed,
			now.Sub(t.answered).Round(time.Second))
	case !recent(t.answered, now, 2*pathSpare):
		return fmt.Sprintf("answered %v ago", now.Sub(t.answered).Round(time.Second))
	case !w.Direct():
		return "answers; a direct path is better"
	case !t.better.IsZero():
		return fmt.Sprintf("better for %v; taken after %v", now.Sub(t.better).Round(time.Second), pathBetter)
	}
	return "answers; not better than the one in use"
}
