// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestChoose(t *testing.T) {
	on := func(bulk ...int) (places []place) {
		for _, n := range bulk {
			places = append(places, place{bulk: max(n, 0), leaving: n < 0})
		}
		return places
	}
	const left = -1
	for _, c := range []struct {
		what        string
		places      []place
		at          int
		bulk, quiet bool
		want        int
	}{
		{"none lives", nil, -1, true, true, -1},
		{"all are left", on(left, left), 0, true, true, -1},
		{"interactive: the oldest", on(0, 0, 0), -1, false, true, 0},
		{"interactive: back to the oldest", on(5, 0), 1, false, false, 0},
		{"interactive: the oldest that stays", on(left, 3, 0), -1, false, true, 1},
		{"one connection", on(7), -1, true, false, 0},
		{"one connection, already there", on(7), 0, true, false, 0},
		{"not the oldest while somebody talks", on(0, 3), -1, true, false, 1},
		{"the emptiest of the others", on(0, 3, 1, 2), -1, true, false, 2},
		{"the oldest too when it is quiet", on(0, 1, 1), -1, true, true, 0},
		{"away from the oldest when somebody talks", on(1, 0), 0, true, false, 1},
		{"away from the oldest even to a full one", on(1, 9), 0, true, false, 1},
		{"away from the oldest when another has none", on(1, 0), 0, true, true, 1},
		{"not away from the oldest when it is quiet", on(1, 1), 0, true, true, 0},
		{"it stays where it is as well", on(0, 1, 0), 1, true, false, 1},
		{"it moves if that is better by two", on(0, 2, 0), 1, true, false, 2},
		{"even to the oldest when it is quiet", on(0, 3, 2), 1, true, true, 0},
		{"but not when somebody talks", on(0, 2, 1), 1, true, false, 1},
		{"away from one that is left", on(0, left, 4), 1, true, false, 2},
		{"away from one that is left, to the oldest if there is no other", on(3, left), 1, true, false, 0},
		{"the oldest is left", on(left, 1, 1), 0, true, false, 2},
	} {
		if got := choose(c.places, c.at, c.bulk, c.quiet, mostConns); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
	for _, c := range []struct {
		what       string
		places     []place
		at, beside int
		quiet      bool
		want       int
	}{
		{"one core may be kept busy", on(0, 3, 0, 0), -1, 1, false, 1},
		{"two may", on(0, 3, 0, 0), -1, 2, false, 2},
		{"away from one too many", on(0, 3, 1, 0), 2, 1, false, 1},
		{"where it is allowed it stays", on(0, 1, 0, 0), 1, 1, false, 1},
		{"those that are left do not count", on(0, left, 3, 0), -1, 1, false, 2},
		{"nor does it matter when it is quiet", on(1, 3, 1, 0), -1, 1, true, 3},
	} {
		if got := choose(c.places, c.at, true, c.quiet, c.beside); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
}

// TestChooseSettles: when each bulk direction has been placed some times in turn,
// none wants to move any more, and the counts differ by one at most.
func TestChooseSettles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		places := make([]place, rapid.IntRange(1, mostConns).Draw(t, "connections"))
		quiet := rapid.Bool().Draw(t, "quiet")
		beside := rapid.IntRange(1, mostConns).Draw(t, "beside")
		at := make([]int, rapid.IntRange(0, 60).Draw(t, "directions"))
		for i := range at {
			at[i] = rapid.IntRange(-1, len(places)-1).Draw(t, "at")
			if at[i] >= 0 {
				places[at[i]].bulk++
			}
		}
		turn := func() (moves int) {
			for i := range at {
				to := choose(places, at[i], true, quiet, beside)
				if to == at[i] {
					continue
				}
				if at[i] >= 0 {
					places[at[i]].bulk--
				}
				places[to].bulk++
				at[i] = to
				moves++
			}
			return moves
		}
		for range 3 {
			turn()
		}
		if n := turn(); n != 0 {
			t.Fatalf("%d directions move for ever: %v", n, places)
		}
		count := places
		if !quiet && len(places) > 1 {
			if places[0].bulk != 0 {
				t.Fatalf("%d stay on the oldest", places[0].bulk)
			}
			count = places[1:min(len(places), 1+beside)]
			for _, p := range places[1+len(count):] {
				if p.bulk != 0 {
					t.Fatalf("%d keep one core too many busy: %v", p.bulk, places)
				}
			}
		}
		if quiet {
			count[0].bulk++ // as if
		}
		least, most := count[0].bulk, count[0].bulk
		for _, p := range count {
			least, most = min(least, p.bulk), max(most, p.bulk)
		}
		if most-least > 1 {
			t.Fatalf("uneven: %v", places)
		}
	})
}

func TestWanted(t *testing.T) {
	for _, c := range []struct{ bulk, most, want int }{
		{0, 1, 1}, {0, 4, 1}, {1, 4, 2}, {2, 4, 3}, {3, 4, 4}, {1000, 4, 4}, {5, 1, 1}, {5, 0, 1},
	} {
		if got := wanted(c.bulk, c.most); got != c.want {
			t.Errorf("wanted(%d, %d) is %d, want %d", c.bulk, c.most, got, c.want)
		}
	}
}

func TestTrips(t *testing.T) {
	const ms = time.Millisecond
	var trips trips
	if trips.least() != 0 {
		t.Error("a round trip before the first")
	}
	for _, c := range []struct{ trip, at, want time.Duration }{
		{20 * ms, time.Second, 20 * ms},
		{30 * ms, 2 * time.Second, 20 * ms},
		{10 * ms, 3 * time.Second, 10 * ms},
		{40 * ms, 70 * time.Second, 10 * ms}, // of the minute before
		{35 * ms, 100 * time.Second, 10 * ms},
		{50 * ms, 135 * time.Second, 35 * ms}, // two minutes later the 10 ms are forgotten
		{60 * ms, 200 * time.Second, 50 * ms},
		{90 * ms, time.Hour, 90 * ms}, // what comes before a long silence says nothing
		{80 * ms, time.Hour + ms, 80 * ms},
	} {
		trips.add(c.trip, c.at)
		if got := trips.least(); got != c.want {
			t.Errorf("at %v the least is %v, want %v", c.at, got, c.want)
		}
	}
}

func TestPace(t *testing.T) {
	const ms = time.Millisecond
	type sent struct {
		n    int
		at   time.Duration
		bulk bool
	}
	for name, list := range map[string][]sent{
		"a little":              {{1000, ms, false}, {1000, 2 * ms, false}},
		"as much as it may":     {{256 << 10, time.Second, false}},
		"one byte more":         {{256 << 10, time.Second, false}, {1, time.Second, true}},
		"slowly for long":       {{200 << 10, time.Second, false}, {200 << 10, 1100 * ms, false}, {200 << 10, 1200 * ms, false}},
		"faster than it leaks":  {{200 << 10, time.Second, false}, {200 << 10, 1050 * ms, true}},
		"bulk until it is paid": {{300 << 10, time.Second, true}, {1, 1100 * ms, true}, {1, 1140 * ms, true}, {1, 1200 * ms, false}},
		"no more than half a second of debt": {{1 << 20, 0, true}, {1 << 20, 0, true}, {1 << 20, 0, true}, {1, 499 * ms, true},
			{1, 501 * ms, false}},
	} {
		var p pace
		for i, s := range list {
			if p.sent(s.n, s.at); p.bulk != s.bulk {
				t.Errorf("%s, %d: bulk %v, want %v", name, i, p.bulk, s.bulk)
			}
		}
	}
	p := pace{level: 1, bulk: true}
	if p.leak(time.Second); p.bulk || p.level != 0 {
		t.Errorf("after a leak %+v", p)
	}
}

func TestActivity(t *testing.T) {
	const ms = time.Millisecond
	at := func(times ...time.Duration) []time.Duration { return times }
	for name, c := range map[string]struct {
		notes []time.Duration
		at    time.Duration
		quiet bool
	}{
		"nothing ever":                        {nil, 5 * time.Second, true},
		"a heartbeat":                         {at(ms, 2*ms, 3*ms), 4 * ms, true},
		"more":                                {at(ms, 2*ms, 3*ms, 4*ms), 5 * ms, false},
		"more, in the second before":          {at(ms, 2*ms, 3*ms, 4*ms), 1900 * ms, false},
		"more, in the second before and some": {at(ms, 2*ms, 3*ms, 4*ms, 1001*ms), 1900 * ms, false},
		"more, two seconds before":            {at(ms, 2*ms, 3*ms, 4*ms), 2001 * ms, true},
		"more, two before and a heartbeat":    {at(ms, 2*ms, 3*ms, 4*ms, 2001*ms), 2002 * ms, true},
		"a heartbeat each second":             {at(ms, 2*ms, 1001*ms, 1002*ms, 2001*ms, 2002*ms), 2003 * ms, true},
	} {
		var a activity
		for _, n := range c.notes {
			a.note(n)
		}
		if got := a.quiet(c.at); got != c.quiet {
			t.Errorf("%s: quiet %v", name, got)
		}
	}
}

// TestTalks: which of the frames of a stream are a sign of somebody who waits.
func TestTalks(t *testing.T) {
	const ms = time.Millisecond
	type frame struct {
		n     int // negative: it came
		at    time.Duration
		talks bool
	}
	greeting := []frame{{90, 0, false}, {90, 0, false}, {90, 0, false}, {90, 0, false}}
	for name, list := range map[string][]frame{
		"four small ones are a greeting": append(greeting, frame{90, ms, true}),
		"four large ones are not": {{sendPayload, 0, false}, {sendPayload, 0, false}, {sendPayload, 0, false}, {sendPayload, 0, false},
			{90, time.Second, false}},
		"a large one never talks":           append(greeting, frame{smallFrame, time.Second, false}),
		"the rest of a block":               append(greeting, frame{sendPayload, ms, false}, frame{113, 2 * ms, false}),
		"later it talks again":              append(greeting, frame{sendPayload, ms, false}, frame{113, 20 * ms, true}),
		"an answer to much that came":       append(greeting, frame{-sendPayload, ms, false}, frame{50, ms, false}),
		"an answer to a little":             append(greeting, frame{-1000, ms, false}, frame{50, ms, true}),
		"many small ones are a transfer":    append(greeting, frame{4000, 0, true}, frame{4000, 0, false}, frame{4000, 0, false}),
		"many small ones slowly are talk":   append(greeting, frame{4000, 0, true}, frame{4000, 2 * ms, true}, frame{4000, 4 * ms, true}),
		"a conversation as fast as it goes": append(greeting, frame{128, ms, true}, frame{-128, ms, false}, frame{128, ms, true}),
	} {
		st := &muxStream{}
		for i, f := range list {
			if f.n < 0 {
				st.heard.sent(-f.n, f.at)
				continue
			}
			st.pace.sent(f.n, f.at)
			if got := st.talksLocked(f.n, f.at); got != f.talks {
				t.Errorf("%s, frame %d: talks %v", name, i, got)
			}
		}
	}
	st := &muxStream{}
	st.Background()
	for range 10 {
		if st.talksLocked(1, time.Hour) {
			t.Fatal("what a stream says in the background is talk")
		}
	}
}

// TestDownloadsDoNotTalk: streams that asked for much are no talk when they end.
func TestDownloadsDoNotTalk(t *testing.T) {
	s, p := scripted(t, false, Options{})
	for range 20 {
		st := open(t, s, "a question")
		st.mu.Lock()
		st.offset = paceBulk
		st.mu.Unlock()
		st.Reset(1)
	}
	p.settle()
	if !s.busy.quiet(s.now()) {
		t.Error("their ends count as talk")
	}
}

// TestShortStreamsTalk: many short streams are something interactive, though none of
// them says much; a few transfers are not.
func TestShortStreamsTalk(t *testing.T) {
	for streams, talk := range map[int]bool{heartbeatFrames: false, 20: true} {
		s, p := scripted(t, false, Options{})
		for range streams {
			st := open(t, s, "a question")
			st.Write([]byte("and one more"))
			st.Reset(1)
		}
		p.settle()
		if quiet := s.busy.quiet(s.now()); quiet == talk {
			t.Errorf("after %d short streams it is quiet: %v", streams, quiet)
		}
	}
}

// TestConnectionsBesideTalk: while something interactive happens a session asks for
// no more connections than bulk may use then.
func TestConnectionsBesideTalk(t *testing.T) {
	for talk, want := range map[bool]string{false: "0c 000004 00000000 00000004", true: "0c 000004 00000000 00000002"} {
		s, p := scripted(t, false, Options{Connections: 4, Beside: 1})
		p.settle()
		s.mu.Lock()
		s.lanes[0].bulk = 8
		for range heartbeatFrames + 1 {
			if talk {
				s.busy.note(s.now())
			}
		}
		ask := s.enoughLocked(askEvery)
		s.lanes[0].bulk = 0
		s.mu.Unlock()
		ask()
		p.want(want)
	}
}

// TestBulkIsPlacedOnANewConnection: at once, not at its next turn to be placed.
func TestBulkIsPlacedOnANewConnection(t *testing.T) {
	s, p := scripted(t, false, Options{Connections: 2})
	st := open(t, s, "")
	p.settle()
	now := s.now()
	s.mu.Lock()
	s.watchLocked(st)
	s.mu.Unlock()
	st.mu.Lock()
	st.pace, st.placed = bulkPace(s), now
	st.mu.Unlock()
	p.attach(s)
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.pacedLocked(1, now) {
		t.Error("it is not placed anew")
	}
}
