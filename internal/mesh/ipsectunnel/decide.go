// SPDX-License-Identifier: Apache-2.0

package ipsectunnel

import (
	"net/netip"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/mesh/kernel/ipsec"
	"github.com/tombolo-io/tombolo/internal/mesh/keyexchange"
)

// Line is a path of packets between two nodes, as this one sees it.
type Line struct {
	Local  netip.Addr
	Remote netip.AddrPort
	Raw    bool // by protocol 50, without UDP: the port says nothing
}

// inUDP is the line of ESP in UDP.
func (l Line) inUDP() Line {
	l.Raw = false
	return l
}

// IsZero reports whether there is none.
func (l Line) IsZero() bool { return !l.Remote.IsValid() }

// sameEnds reports whether the kernel cannot tell apart what is sent by two lines: a policy names addresses alone.
func (l Line) sameEnds(o Line) bool { return l.Local == o.Local && l.Remote.Addr() == o.Remote.Addr() }

// held is a tunnel to a peer.
type held struct {
	keyexchange.Tunnel
	line   Line
	cipher ipsec.Cipher
	own    bool // this node has begun it
	half   bool // and does not know whether the peer sends by it
	made   time.Time
	ends   time.Time // when it goes, since another one has taken its place; zero: none has
	mute   bool      // nothing can be sent by it: there is no state for that
	use    usage     // what was sent by it
	got    usage     // what was received by it
}

// usage is what a state has done.
type usage struct{ bytes, packets uint64 }

// situation is what is known of a peer when it is decided what to do.
type situation struct {
	first  bool // of two nodes that have a reason to begin at one time, this one does
	line   Line // by which packets are to go; zero: none is known, and they go by the newest
	since  time.Time
	held   []held    // in the order in which they were made
	wanted time.Time // when somebody wanted other keys, since packets are not answered; zero: nobody
	busy   bool      // an exchange that this node has begun is under way
	failed int       // exchanges that this node has begun, one after the other
	tried  time.Time
	early  byte // new keys are due up to a tenth before their time, by this of 256: not those of all peers at once
}

// verdict is what is to be done about a peer.
type verdict struct {
	send  int    // of held, by which packets go; -1: none
	begin string // why an exchange is begun; empty: none is
	drop  []int  // of held
	next  time.Time
}

// decide looks at a peer.
func (l Limits) decide(now time.Time, s situation) verdict {
	v := verdict{send: -1}
	for i := range s.held {
		h := &s.held[i]
		end := h.made.Add(l.HardAge)
		if !h.ends.IsZero() && h.ends.Before(end) {
			end = h.ends
		}
		if !now.Before(end) {
			v.drop = append(v.drop, i)
			continue
		}
		v.sooner(end)
		if h.mute || !h.ends.IsZero() {
			continue
		}
		if v.send < 0 || h.line == s.line || s.held[v.send].line != s.line { // the newest on the line, else the newest
			v.send = i
		}
	}
	if s.line.IsZero() || s.busy {
		return v
	}
	why, due := l.reason(s, v)
	if s.failed > 0 {
		if at := s.tried.Add(min(firstPause<<min(s.failed-1, 10), longestPause)); due.Before(at) {
			due = at
		}
	}
	if due.After(now) {
		v.sooner(due)
	} else {
		v.begin = why
	}
	return v
}

// failsLong reports whether keys that were agreed then should have been replaced long ago, whoever has agreed them.
func (l Limits) failsLong(now, made time.Time) bool {
	return !now.Before(made.Add(l.Age + l.Age/4 + failsLong))
}

// reason is why an exchange is to be begun next, and when.
func (l Limits) reason(s situation, v verdict) (why string, due time.Time) {
	switch {
	case v.send < 0 && !s.first:
		return "there is no tunnel", s.since.Add(yield) // the other one has the same reason
	case v.send < 0:
		return "there is no tunnel", s.since
	}
	h := &s.held[v.send]
	// A peer whose router passes on a port calls from another one than it is called at: what came since is as good.
	if h.line != s.line && !(h.line.sameEnds(s.line) && h.line.Raw == s.line.Raw && !h.made.Before(s.since)) {
		switch {
		case !h.line.sameEnds(s.line) || h.line.Raw == s.line.Raw:
			return "the path has changed", s.since
		case !s.line.Raw:
			return "packets do not pass without UDP", s.since
		case s.first:
			return "packets pass without UDP", s.since
		}
		return "packets pass without UDP", s.since.Add(yield)
	}
	for i := range s.held {
		if o := &s.held[i]; o.half && o.ends.IsZero() && !o.made.Before(h.made) {
			// The peer may have taken that for new keys, and soon not receive by this tunnel any more.
			return "an exchange was not completed", o.made
		}
	}
	if s.wanted.After(h.made.Add(shakeAgain)) {
		return "the peer does not answer", s.wanted
	}
	age, bytes, packets := l.Age, l.Bytes, l.Packets
	if !h.own { // who has begun it is due before
		age, bytes, packets = age+age/4, bytes+bytes/4, packets+packets/4
	}
	age -= l.Age / 10 / 256 * time.Duration(s.early)
	if h.use.bytes >= bytes || h.use.packets >= packets {
		return "much was sent", h.made
	}
	return "it is time", h.made.Add(age)
}

func (v *verdict) sooner(t time.Time) {
	if v.next.IsZero() || t.Before(v.next) {
		v.next = t
	}
}

// supersede notes that a tunnel was agreed: what its beginner had before goes, and also all that the peer has
// forgotten, as its new life shows. Nobody sends any more by those from and to the same addresses: the kernel could
// not tell them apart.
func supersede(all []held, is held, now time.Time) []held {
	all = slices.DeleteFunc(all, func(h held) bool { return h.In == is.In && h.Out == 0 }) // it was half of it
	for i := range all {
		h := &all[i]
		if (h.own == is.own || h.Life != is.Life && !h.half) && h.ends.IsZero() {
			h.ends = now.Add(grace)
		}
		if h.line.sameEnds(is.line) {
			h.mute = true
		}
	}
	return append(all, is)
}
