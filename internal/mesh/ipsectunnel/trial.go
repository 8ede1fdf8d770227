// SPDX-License-Identifier: Apache-2.0

package ipsectunnel

import (
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/mesh/disco"
)

// trial is what is known of protocol 50 on the line to a peer. It is asked there, and answered: an answer says that
// packets pass both ways. While ESP goes there, the answers also say how many packets of that the peer has received:
// a network may pass what asks and drop ESP.
type trial struct {
	ids      [trialIDs]uint64 // of the questions that may be answered, the newest first
	asked    time.Time        // when the newest was asked
	lately   int              // questions since the last answer
	answers  int              // questions in a row that were answered
	until    time.Time        // it is not tried before
	refused  bool             // the peer rests
	rests    int              // how often it has stopped, or has not begun to pass
	used     time.Time        // since when packets go there; zero: they do not
	heard    uint64           // packets that the peer has received, as it said last
	sent     uint64           // packets that were sent when it said another number for the first time
	unheard  time.Time        // since when packets are sent of which the peer receives none; zero: it does
	why      string           // it was given up
	receives uint64           // packets of ESP without UDP that came from the peer
	sends    uint64           // and that were sent to it
}

const (
	trialIDs = 8
	// trialEvery is how often it is asked while packets go to the peer, or while it is not known, and trialIdle how
	// often while none do.
	trialEvery, trialIdle = time.Second / 2, 10 * time.Second
	// trialAnswers are as many in a row as it takes to begin, and trialSilent are the questions without an answer after
	// which it has ended, the newest of them a while ago: both within the mesh's bound, with the time of an exchange.
	trialAnswers, trialSilent = 3, 6
	// trialUnheard is how long the peer may receive nothing of trialSent packets or more. Both nodes read their counters
	// once a second, or less often if there are many peers.
	trialUnheard, trialSent = 5 * time.Second, 16
	// trialRest is how long it is not tried again; it doubles up to trialRestMost, and is trialRest again after packets
	// have gone there for trialSteady.
	trialRest, trialRestMost = 30 * time.Second, 16 * time.Minute
	trialSteady              = 10 * time.Minute
)

// passes reports whether packets are to go by protocol 50.
//
//	chosen: they are to
//	used: they do now
func (t trial) passes(now time.Time, chosen, used bool) bool {
	switch {
	case now.Before(t.until), !used && !t.used.IsZero(): // the peer has gone back, and that is not noted yet
		return false
	case chosen, used:
		return t.ended(now) == ""
	}
	return t.answers >= trialAnswers
}

// ended is why packets do not pass any more; empty: they do.
func (t trial) ended(now time.Time) string {
	switch {
	case t.lately >= trialSilent && now.Sub(t.asked) >= trialEvery-trialEvery/4:
		return "nothing answers there any more"
	case t.refused && !t.used.IsZero():
		return "the peer has gone back to UDP"
	case !t.unheard.IsZero() && now.Sub(t.unheard) >= trialUnheard:
		return "the peer receives none of the packets"
	}
	return ""
}

// next is what is known once some time has passed, and whether to ask now.
//
//	used: packets go by protocol 50
//	busy: packets were sent to the peer lately
func (t trial) next(now time.Time, used, busy bool) (_ trial, ask bool) {
	if now.Before(t.until) {
		return t, false
	}
	every := trialEvery
	if used && !busy && t.lately == 0 && t.unheard.IsZero() || !used && t.used.IsZero() && t.refused {
		every = trialIdle
	}
	if now.Before(t.asked.Add(every - trialEvery/4)) { // who calls does so every trialEvery, more or less
		return t, false
	}
	why := t.ended(now)
	switch {
	case !used && !t.used.IsZero() && why == "":
		why = "the peer has gone back to UDP"
	case !used && t.used.IsZero() && why != "":
		why = "nothing answers there"
	}
	switch {
	case why != "":
		return t.rest(now, why), false
	case used && t.used.IsZero():
		t.used = now
	}
	return t, true
}

// ask notes that a question is asked.
func (t trial) ask(now time.Time, id uint64) trial {
	if t.lately > 0 {
		t.answers = 0
	}
	t.asked, t.lately = now, t.lately+1
	copy(t.ids[1:], t.ids[:])
	t.ids[0] = id
	return t
}

// answered notes an answer, if it is one.
func (t trial) answered(now time.Time, a disco.Trial) trial {
	i := slices.Index(t.ids[:], a.ID)
	if a.ID == 0 || i < 0 {
		return t
	}
	t.ids[i] = 0
	t.lately, t.answers, t.refused = 0, t.answers+1, a.Rests
	if a.Rests {
		t.answers = 0
	}
	switch {
	case a.Heard != t.heard || t.used.IsZero():
		t.heard, t.sent, t.unheard = a.Heard, t.sends, time.Time{}
	case t.sends-t.sent < trialSent:
	case t.unheard.IsZero():
		t.unheard = now
	}
	return t
}

// reason is why packets go there, or do not.
func (t trial) reason(now time.Time, used bool) string {
	switch {
	case used:
		return "packets of protocol 50 pass both ways"
	case now.Before(t.until):
		return "protocol 50: " + t.why
	case t.refused:
		return "protocol 50: the peer has given it up for now"
	}
	return "it is not known yet whether packets of protocol 50 pass"
}

// rest has it not be tried for a while.
func (t trial) rest(now time.Time, why string) trial {
	if !t.used.IsZero() && now.Sub(t.used) >= trialSteady {
		t.rests = 0
	}
	t.until = now.Add(min(trialRest<<min(t.rests, 10), trialRestMost))
	t.rests, t.why = t.rests+1, why
	t.lately, t.answers, t.refused, t.used, t.unheard = 0, 0, false, time.Time{}, time.Time{}
	t.ids, t.sent = [trialIDs]uint64{}, t.sends
	return t
}
