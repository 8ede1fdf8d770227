// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		args           string
		meeting, fleet time.Duration
		bad            bool
	}{
		{"", 5 * time.Minute, 5 * time.Minute, false},
		{"-for 2m", 30 * time.Second, 30 * time.Second, false},
		{"-for 2m -discovery 0 -replicas 1h", 0, time.Hour, false},
		{"-replicas -1s", 0, 0, true},
		{"-for 0", 0, 0, true},
		{"more", 0, 0, true},
	} {
		o, err := parseOptions(strings.Fields(c.args))
		if (err != nil) != c.bad || !c.bad && (o.meeting != c.meeting || o.fleet != c.fleet) {
			t.Errorf("%q: %v, %v, %v", c.args, o.meeting, o.fleet, err)
		}
	}
}

func TestJudge(t *testing.T) {
	kill := span{from: at(10), to: at(12), all: true, killed: true}
	own := span{from: at(20), to: at(25), clusters: []int{1}}
	disk := span{from: at(30), to: at(35), disk: true}
	spans := []span{kill, own, disk}
	for name, c := range map[string]struct {
		e                           event
		records                     int
		sum                         int64
		unexplained, double, absent bool
		killed, lost                int
	}{
		"whole":                                {e: event{begin: at(1), end: at(2), how: whole}, records: 1},
		"whole, without a record":              {e: event{begin: at(1), end: at(2), how: whole}, absent: true},
		"two records":                          {e: event{begin: at(1), end: at(2), how: whole}, records: 2, double: true},
		"cut for nothing":                      {e: event{begin: at(1), end: at(2), how: cutOff}, records: 1, unexplained: true},
		"cut by the kill":                      {e: event{begin: at(9), end: at(10), how: cutOff}, killed: 1},
		"whole just before the kill":           {e: event{begin: at(8), end: at(9.5), how: whole}, killed: 1},
		"whole long before the kill":           {e: event{begin: at(7), end: at(8), how: whole}, absent: true},
		"after the kill":                       {e: event{begin: at(11.5), end: at(13), how: whole}, absent: true},
		"not asked in the kill":                {e: event{begin: at(10.5), end: at(10.5), how: notAsked}},
		"not asked for nothing":                {e: event{begin: at(15), end: at(15), how: notAsked}, unexplained: true},
		"cut with its own cluster":             {e: event{cluster: 1, begin: at(19), end: at(21), how: cutOff}, records: 1},
		"cut with another cluster":             {e: event{cluster: 2, begin: at(19), end: at(21), how: cutOff}, records: 1, unexplained: true},
		"no record on a full disk":             {e: event{begin: at(31), end: at(32), how: whole}, lost: 1},
		"cut on a full disk":                   {e: event{begin: at(31), end: at(32), how: cutOff}, lost: 1, unexplained: true},
		"unheard, and nothing was wrong":       {e: event{begin: at(1), end: at(2), how: unheard}, unexplained: true, absent: true},
		"refused, and in a sum":                {e: event{cluster: 1, begin: at(19), end: at(21), how: refused}, sum: 1},
		"refused, and in no sum":               {e: event{cluster: 1, begin: at(19), end: at(21), how: refused}, absent: true},
		"whole, which no sum explains":         {e: event{begin: at(1), end: at(2), how: whole}, sum: 1, absent: true},
		"unheard in the kill, with its record": {e: event{begin: at(9), end: at(11), how: unheard}, records: 1},
	} {
		c.e.asked = "x"
		f := judge([]event{c.e}, spans, kept{records: map[string]int{"x": c.records}, summed: c.sum})
		if len(f.unexplained) == 1 != c.unexplained || len(f.doubled) == 1 != c.double || len(f.missing) == 1 != c.absent || f.killed != c.killed || f.lost != c.lost {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// TestHistoryNoticesWhatIsWrong: a check that cannot fail proves nothing.
func TestHistoryNoticesWhatIsWrong(t *testing.T) {
	for name, do := range map[string]func(h *history, id uint64){
		"lost": func(h *history, id uint64) {
			h.arrived(id, 0).whole = true
			h.end(event{id: id, how: whole}, 10, 0)
		},
		"never there": func(h *history, id uint64) { h.end(event{id: id, how: whole}, 10, 0) },
		"crossed":     func(h *history, id uint64) { h.arrived(id, 1) },
		"doubled":     func(h *history, id uint64) { h.arrived(id, 0); h.arrived(id, 0) },
		"unknown":     func(h *history, id uint64) { h.arrived(id+1, 0) },
		"refused and served": func(h *history, id uint64) {
			h.arrived(id, 0)
			h.end(event{id: id, how: refused}, 10, 0)
		},
	} {
		h := newHistory()
		if do(h, h.begin(0)); len(h.bad) != 1 {
			t.Errorf("%s: %v", name, h.bad)
		}
	}
	cut := newHistory()
	one := cut.begin(0)
	cut.arrived(one, 0)
	if cut.end(event{id: one, how: whole}, 10, 0); len(cut.bad) != 0 || cut.events[0].how != cutOff {
		t.Errorf("an end before the target's: %v, %+v", cut.bad, cut.events)
	}
	good := newHistory()
	id := good.begin(2)
	a := good.arrived(id, 2)
	a.got, a.whole = 10, true
	if good.end(event{id: id, how: whole}, 10, 5); len(good.bad) != 0 {
		t.Error(good.bad)
	}
	b, again := make([]byte, 1000), make([]byte, 1000)
	newPattern(7, 1).fill(b)
	p := newPattern(7, 1)
	p.fill(again[:333])
	p.fill(again[333:])
	if !bytes.Equal(b, again) {
		t.Error("a pattern depends on how it is cut")
	}
	b[500] ^= 1
	if _, changed, _ := receive(bytes.NewReader(b), newPattern(7, 1), 1000); !changed {
		t.Error("a changed byte is not noticed")
	}
}
