// SPDX-License-Identifier: Apache-2.0

package liveness_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/liveness"
)

func start() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func TestNext(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	const live, idle = limit.DeadLive, limit.DeadIdle
	never := 1000 * s
	for name, c := range map[string]struct {
		received, ping, live time.Duration // before now; never for ping and live: not at all
		want                 liveness.Step
	}{
		"a new session is pinged at once":                       {0, never, never, liveness.Step{Ping: true, Wait: 10 * s}},
		"a new session that is live is pinged every second":     {0, never, 0, liveness.Step{Ping: true, Wait: s}},
		"an idle session waits for its next ping":               {4 * s, 4 * s, never, liveness.Step{Wait: 6 * s}},
		"an idle session is pinged after ten seconds":           {10 * s, 10 * s, never, liveness.Step{Ping: true, Wait: 10 * s}},
		"bytes of the peer put a ping off":                      {3 * s, 10 * s, never, liveness.Step{Wait: 7 * s}},
		"and that of a live session":                            {300 * ms, 9 * s, 9 * s, liveness.Step{Wait: 700 * ms}},
		"but a round trip is measured now and then":             {0, 30 * s, never, liveness.Step{Ping: true, Wait: 10 * s}},
		"of a live session, too":                                {0, 30 * s, 9 * s, liveness.Step{Ping: true, Wait: s}},
		"and is waited for no longer":                           {0, 29500 * ms, 9 * s, liveness.Step{Wait: 500 * ms}},
		"an idle session waits no longer than to its death":     {idle - s, s, never, liveness.Step{Wait: s}},
		"an idle session lives until its bound":                 {idle - ms, 9 * s, never, liveness.Step{Wait: ms}},
		"a last ping waits no longer than to death":             {idle - ms, 10 * s, never, liveness.Step{Ping: true, Wait: ms}},
		"an idle session is dead at its bound":                  {idle, 0, never, liveness.Step{Dead: true}},
		"an idle session is dead after its bound":               {99 * s, never, never, liveness.Step{Dead: true}},
		"a live session waits for its next ping":                {300 * ms, 300 * ms, 9 * s, liveness.Step{Wait: 700 * ms}},
		"a live session is pinged after a second":               {s, s, 9 * s, liveness.Step{Ping: true, Wait: s}},
		"a live session lives until its bound":                  {live - ms, 500 * ms, 9 * s, liveness.Step{Wait: ms}},
		"a live session is dead at its bound":                   {live, 0, 9 * s, liveness.Step{Dead: true}},
		"a session that turns live after long idle is not dead": {25 * s, 5 * s, 0, liveness.Step{Wait: s}},
		"it has the full live bound from then on":               {25 * s, ms, live - ms, liveness.Step{Wait: ms}},
		"and is dead when that has passed":                      {25 * s, ms, live, liveness.Step{Dead: true}},
		"a byte since then counts":                              {s, ms, 5 * s, liveness.Step{Wait: 999 * ms}},
		"a clock that went back does not kill and still waits":  {-5 * s, -5 * s, never, liveness.Step{Wait: 15 * s}},
	} {
		t.Run(name, func(t *testing.T) {
			now := start()
			f := liveness.Facts{LastReceived: now.Add(-c.received)}
			if c.ping != never {
				f.LastPing = now.Add(-c.ping)
			}
			if c.live != never {
				f.LiveSince = now.Add(-c.live)
			}
			if got := liveness.Next(f, now); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

// TestLooks: what passes before a look that was due does not count as silence.
func TestLooks(t *testing.T) {
	const s = time.Second
	type look struct{ heard, at, due, missed time.Duration } // after the start; due is the next look
	for name, looks := range map[string][]look{
		"in time":                          {{0, 0, s, 0}, {0, s, 2 * s, 0}, {0, 2 * s, 3 * s, 0}},
		"before its time, for it was rung": {{0, 0, s, 0}, {0, s / 2, s, 0}},
		"late":                             {{0, 0, s, 0}, {0, 5 * s, 6 * s, 4 * s}, {0, 6 * s, 7 * s, 4 * s}},
		"late twice":                       {{0, 0, s, 0}, {0, 5 * s, 6 * s, 4 * s}, {0, 9 * s, 10 * s, 7 * s}},
		"late, and heard since":            {{0, 0, s, 0}, {0, 5 * s, 6 * s, 4 * s}, {5 * s, 6 * s, 7 * s, 0}},
		"late, and heard before":           {{0, 0, s, 0}, {s / 2, 5 * s, 6 * s, 4 * s}},
		"late, and heard when it woke":     {{0, 0, s, 0}, {9 * s / 2, 5 * s, 6 * s, s / 2}},
		"the first is never late":          {{0, 9 * s, 10 * s, 0}},
		"a clock that went back":           {{9 * s, 9 * s, 10 * s, 0}, {9 * s, s, 2 * s, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			var l liveness.Looks
			for i, x := range looks {
				if got := l.Look(start().Add(x.heard), start().Add(x.at)); got != x.missed {
					t.Errorf("look %d: missed %v, want %v", i, got, x.missed)
				}
				l.Next(start().Add(x.due))
			}
		})
	}
}

// TestMissed: what was missed puts death off, and not the ping.
func TestMissed(t *testing.T) {
	now := start()
	f := liveness.Facts{LastReceived: now.Add(-9 * time.Second), LastPing: now.Add(-8 * time.Second), LiveSince: now.Add(-time.Hour)}
	if got := liveness.Next(f, now); !got.Dead {
		t.Errorf("nothing was missed: %+v", got)
	}
	f.Missed = 8 * time.Second
	if got, want := liveness.Next(f, now), (liveness.Step{Ping: true, Wait: time.Second}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	f.LastPing = now
	if got, want := liveness.Next(f, now.Add(limit.DeadLive-time.Second)), (liveness.Step{Dead: true}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestASessionOverTime runs a session as its owner does: it asks when something
// changes and when the answer says so. The peer answers pings until it falls silent.
func TestASessionOverTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := start()
		silent := now.Add(draw(t, "silent after", 0, 60*time.Second))
		toggles := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) time.Duration {
			return draw(t, "toggle after", time.Millisecond, 40*time.Second)
		}), 0, 5).Draw(t, "toggles")
		rtt := draw(t, "round trip", 0, 900*time.Millisecond)

		f := liveness.Facts{LastReceived: now}
		toggle := now // the next change between idle and live
		var idleSince time.Time
		next := func() {
			toggle = now.Add(time.Hour)
			if len(toggles) > 0 {
				toggle, toggles = now.Add(toggles[0]), toggles[1:]
			}
		}
		next()
		var answer time.Time // when an answer is due, if one is
		for {
			step := liveness.Next(f, now)
			if step.Dead {
				break
			}
			if step.Wait <= 0 {
				t.Fatalf("wait %v with %+v at %v", step.Wait, f, now.Sub(start()))
			}
			if step.Ping {
				if gap := now.Sub(f.LastPing); !f.LastPing.IsZero() && gap < limit.PingLive {
					t.Fatalf("pinged again after %v", gap)
				}
				f.LastPing = now
				if at := now.Add(rtt); at.Before(silent) && answer.IsZero() {
					answer = at
				}
			}
			wake := now.Add(step.Wait)
			if toggle.Before(wake) {
				wake = toggle
			}
			if !answer.IsZero() && !answer.After(wake) {
				wake = answer
			}
			now = wake
			if now.Equal(answer) {
				f.LastReceived, answer = now, time.Time{}
			}
			if now.Equal(toggle) {
				if f.LiveSince.IsZero() {
					f.LiveSince = now
				} else {
					f.LiveSince, idleSince = time.Time{}, now
				}
				next()
			}
		}
		quiet := now.Sub(f.LastReceived)
		switch {
		case !f.LiveSince.IsZero() && (quiet < limit.DeadLive || now.Sub(f.LiveSince) < limit.DeadLive):
			t.Fatalf("dead after %v of silence, live for %v", quiet, now.Sub(f.LiveSince))
		case !f.LiveSince.IsZero() && quiet > limit.DeadLive && now.Sub(f.LiveSince) > limit.DeadLive:
			t.Fatalf("dead only after %v of silence, live for %v", quiet, now.Sub(f.LiveSince))
		case f.LiveSince.IsZero() && quiet < limit.DeadIdle:
			t.Fatalf("idle, dead after %v of silence", quiet)
		// A live session may have been silent for longer than the idle bound, with
		// its own bound not yet over: it dies in the moment when it turns idle.
		case f.LiveSince.IsZero() && quiet > limit.DeadIdle && !now.Equal(idleSince):
			t.Fatalf("idle, dead only after %v of silence, idle for %v", quiet, now.Sub(idleSince))
		}
		if now.Before(silent) {
			t.Fatal("dead although the peer answers")
		}
	})
}

func draw(t *rapid.T, what string, low, high time.Duration) time.Duration {
	return time.Duration(rapid.Int64Range(int64(low/time.Millisecond), int64(high/time.Millisecond)).Draw(t, what)) * time.Millisecond
}
