// SPDX-License-Identifier: Apache-2.0

package ipsectunnel

import (
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/mesh/disco"
)

func TestTrialPasses(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, c := range map[string]struct {
		t      trial
		chosen bool
		used   bool
		want   bool
	}{
		"nothing is known":               {trial{}, false, false, false},
		"two answers":                    {trial{answers: trialAnswers - 1}, false, false, false},
		"three answers":                  {trial{answers: trialAnswers}, false, false, true},
		"it rests":                       {trial{answers: trialAnswers, until: now.Add(1)}, false, false, false},
		"it has rested":                  {trial{answers: trialAnswers, until: now}, false, false, true},
		"chosen, an answer is missing":   {trial{lately: 1}, true, false, true},
		"chosen, none is answered":       {trial{lately: trialSilent, asked: ago(trialEvery)}, true, false, false},
		"the peer has gone back":         {trial{answers: trialAnswers, used: ago(time.Hour)}, true, false, false},
		"and it is noted":                {trial{answers: trialAnswers, used: ago(time.Hour)}, false, false, false},
		"used":                           {trial{used: ago(time.Hour)}, true, true, true},
		"used, some are not answered":    {trial{lately: trialSilent - 1, asked: ago(trialEvery)}, true, true, true},
		"used, none is answered":         {trial{lately: trialSilent, asked: ago(trialEvery)}, true, true, false},
		"used, the newest is just sent":  {trial{lately: trialSilent, asked: now}, true, true, true},
		"used, and the peer rests":       {trial{used: ago(time.Hour), refused: true}, true, true, false},
		"used, and it is to rest":        {trial{answers: 9, until: now.Add(1)}, true, true, false},
		"used, not received for a while": {trial{unheard: ago(trialUnheard - 1)}, true, true, true},
		"used, not received":             {trial{unheard: ago(trialUnheard)}, true, true, false},
	} {
		if got := c.t.passes(now, c.chosen, c.used); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestTrialNext(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, c := range map[string]struct {
		t          trial
		used, busy bool
		ask        bool
		rest       time.Duration
		why        string
	}{
		"at first":            {ask: true},
		"just asked":          {t: trial{asked: ago(trialEvery / 2)}},
		"asked before":        {t: trial{asked: ago(trialEvery)}, ask: true},
		"used and busy":       {t: trial{asked: ago(trialEvery)}, used: true, busy: true, ask: true},
		"used and idle":       {t: trial{asked: ago(trialEvery)}, used: true},
		"idle for long":       {t: trial{asked: ago(trialIdle)}, used: true, ask: true},
		"idle, not answered":  {t: trial{asked: ago(trialEvery), lately: 1}, used: true, ask: true},
		"the peer rests":      {t: trial{asked: ago(trialEvery), refused: true}},
		"the peer has rested": {t: trial{asked: ago(trialIdle), refused: true}, ask: true},
		"the peer rests, and has gone back": {t: trial{asked: ago(trialEvery), refused: true, used: ago(time.Minute)},
			rest: trialRest, why: "the peer has gone back to UDP"},
		"it rests":             {t: trial{asked: ago(time.Hour), until: now.Add(1)}},
		"nothing has answered": {t: trial{asked: ago(trialEvery), lately: trialSilent}, rest: trialRest, why: "nothing answers there"},
		"again": {t: trial{asked: ago(trialEvery), lately: trialSilent, rests: 2}, rest: 4 * trialRest,
			why: "nothing answers there"},
		"again and again": {t: trial{asked: ago(trialEvery), lately: trialSilent, rests: 1000}, rest: trialRestMost,
			why: "nothing answers there"},
		"it ended": {t: trial{asked: ago(trialEvery), lately: trialSilent, used: ago(time.Minute), rests: 1}, used: true,
			rest: 2 * trialRest, why: "nothing answers there any more"},
		"after long": {t: trial{asked: ago(trialEvery), lately: trialSilent, used: ago(trialSteady), rests: 5}, used: true,
			rest: trialRest, why: "nothing answers there any more"},
		"not received": {t: trial{asked: ago(trialEvery), unheard: ago(trialUnheard), used: ago(time.Minute)}, used: true,
			rest: trialRest, why: "the peer receives none of the packets"},
		"the peer went back": {t: trial{asked: ago(trialEvery), answers: 9, used: ago(time.Minute)}, rest: trialRest,
			why: "the peer has gone back to UDP"},
	} {
		got, ask := c.t.next(now, c.used, c.busy)
		rest := time.Duration(0)
		if got.until.After(now) && got.until != c.t.until {
			rest = got.until.Sub(now)
		}
		if ask != c.ask || rest != c.rest || rest > 0 && (got.why != c.why || got.answers != 0 || got.passes(now, false, false)) {
			t.Errorf("%s: asks %v, rests for %v because %q", name, ask, rest, got.why)
		}
	}
}

func TestTrialAnswers(t *testing.T) {
	now := time.Now()
	x := trial{sends: 5, sent: 5, used: now}
	ask := func(id uint64) { x = x.ask(now, id) }
	answer := func(a disco.Trial) {
		a.Answer = true
		x = x.answered(now, a)
	}
	require := func(what string, lately, answers int, unheard bool) {
		t.Helper()
		if x.lately != lately || x.answers != answers || x.unheard.IsZero() == unheard {
			t.Errorf("%s: %+v", what, x)
		}
	}
	answer(disco.Trial{ID: 1})
	answer(disco.Trial{})
	require("nobody has asked", 0, 0, false)
	ask(1)
	ask(2)
	require("two questions", 2, 0, false)
	answer(disco.Trial{ID: 1})
	require("the first is answered", 0, 1, false)
	answer(disco.Trial{ID: 1})
	require("and once more", 0, 1, false)
	answer(disco.Trial{ID: 2})
	require("the second is answered", 0, 2, false)
	ask(3)
	ask(4)
	require("none in a row", 2, 0, false)
	for id := uint64(10); id < 10+trialIDs; id++ {
		ask(id)
	}
	answer(disco.Trial{ID: 4})
	require("it is too late", 2+trialIDs, 0, false)
	answer(disco.Trial{ID: 12, Rests: true})
	require("the peer rests", 0, 0, false)
	x.sends += trialSent - 1
	answer(disco.Trial{ID: 13})
	require("few are not received", 0, 1, false)
	x.sends++
	answer(disco.Trial{ID: 14})
	require("many are not", 0, 2, true)
	answer(disco.Trial{ID: 15, Heard: 1})
	require("some are", 0, 3, false)
	x.sends, x.used = x.sends+trialSent, time.Time{}
	answer(disco.Trial{ID: 16, Heard: 1})
	require("what was sent in UDP does not count", 0, 4, false)
}
