// SPDX-License-Identifier: Apache-2.0

package ipsectunnel

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/mesh/keyexchange"
)

var (
	lineX = Line{Local: netip.MustParseAddr("192.0.2.1"), Remote: netip.MustParseAddrPort("198.51.100.1:4500")}
	lineY = Line{Local: netip.MustParseAddr("192.0.2.1"), Remote: netip.MustParseAddrPort("198.51.100.2:4500")}
	// lineP has the addresses of lineX: the peer's NAT has given it another port.
	lineP = Line{Local: lineX.Local, Remote: netip.MustParseAddrPort("198.51.100.1:61000")}
)

func TestDecide(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	l := Limits{Age: time.Hour, HardAge: 100 * time.Hour, Bytes: 1000, Packets: 100, HardBytes: 1e6, HardPackets: 1e5}
	own := func(line Line, age time.Duration) held { return held{line: line, own: true, made: ago(age)} }
	theirs := func(line Line, age time.Duration) held { return held{line: line, made: ago(age)} }
	with := func(h held, change func(*held)) held { change(&h); return h }
	for name, c := range map[string]struct {
		s    situation
		send int
		why  string
		drop []int
		in   time.Duration // until it is decided again; 0: not by itself
	}{
		"no path":          {s: situation{first: true}, send: -1},
		"a path, first":    {s: situation{first: true, line: lineX, since: now}, send: -1, why: "there is no tunnel"},
		"a path, second":   {s: situation{line: lineX, since: now}, send: -1, in: yield},
		"second, waited":   {s: situation{line: lineX, since: ago(yield)}, send: -1, why: "there is no tunnel"},
		"it is under way":  {s: situation{first: true, line: lineX, since: now, busy: true}, send: -1},
		"it failed":        {s: situation{first: true, line: lineX, since: ago(9 * time.Second), failed: 1, tried: now}, send: -1, in: time.Second},
		"it failed often":  {s: situation{first: true, line: lineX, failed: 99, tried: now}, send: -1, in: time.Minute},
		"it failed before": {s: situation{first: true, line: lineX, failed: 3, tried: ago(4 * time.Second)}, send: -1, why: "there is no tunnel"},
		"there is one":     {s: situation{line: lineX, held: []held{own(lineX, 0)}}, in: time.Hour},
		"there is theirs":  {s: situation{line: lineX, held: []held{theirs(lineX, 0)}}, in: 75 * time.Minute},
		"old":              {s: situation{line: lineX, held: []held{own(lineX, time.Hour)}}, why: "it is time", in: 99 * time.Hour},
		"early":            {s: situation{line: lineX, early: 128, held: []held{own(lineX, 0)}}, in: 57 * time.Minute},
		"theirs, early": {s: situation{line: lineX, early: 128, held: []held{theirs(lineX, 0)}},
			in: 72 * time.Minute},
		"theirs is old": {s: situation{line: lineX, held: []held{theirs(lineX, time.Hour)}}, in: 15 * time.Minute},
		"bytes": {s: situation{line: lineX, held: []held{with(own(lineX, 0), func(h *held) { h.use.bytes = 1000 })}},
			why: "much was sent", in: 100 * time.Hour},
		"their bytes": {s: situation{line: lineX, held: []held{with(theirs(lineX, 0), func(h *held) { h.use.bytes = 1249 })}},
			in: 75 * time.Minute},
		"packets": {s: situation{line: lineX, held: []held{with(own(lineX, 0), func(h *held) { h.use.packets = 100 })}},
			why: "much was sent", in: 100 * time.Hour},
		"received only": {s: situation{line: lineX, held: []held{with(own(lineX, 0), func(h *held) { h.got.packets = 1e9 })}},
			in: time.Hour},
		"another path": {s: situation{line: lineY, since: now, held: []held{own(lineX, 0)}}, why: "the path has changed",
			in: 100 * time.Hour},
		"another port": {s: situation{line: lineP, since: now, held: []held{own(lineX, 1)}}, why: "the path has changed",
			in: 100*time.Hour - 1},
		"the peer calls from another port": {s: situation{line: lineX, since: now.Add(-2),
			held: []held{own(lineX, 1), theirs(lineP, 0)}}, send: 0, in: time.Hour - 1},
		"and what was before is mute": {s: situation{line: lineX, since: now.Add(-2),
			held: []held{with(own(lineX, 1), func(h *held) { h.mute = true }), theirs(lineP, 0)}}, send: 1, in: 75 * time.Minute},
		"the path went": {s: situation{held: []held{own(lineX, 0), theirs(lineY, 0)}}, send: 1, in: 100 * time.Hour},
		"the newest": {s: situation{line: lineX, held: []held{own(lineX, 3), theirs(lineX, 2)}}, send: 1,
			in: 75*time.Minute - 2},
		"on the path": {s: situation{line: lineX, held: []held{own(lineX, 3), theirs(lineY, 2)}}, in: time.Hour - 3},
		"none on the path": {s: situation{line: lineP, held: []held{own(lineX, 3), theirs(lineY, 2)}}, send: 1,
			why: "the path has changed", in: 100*time.Hour - 3},
		"mute": {s: situation{line: lineX, first: true, held: []held{with(own(lineX, 0), func(h *held) { h.mute = true })}},
			send: -1, why: "there is no tunnel", in: 100 * time.Hour},
		"it goes": {s: situation{line: lineX, first: true, held: []held{with(own(lineX, 0), func(h *held) { h.ends = now.Add(grace) })}},
			send: -1, why: "there is no tunnel", in: grace},
		"it went": {s: situation{line: lineX, held: []held{with(own(lineX, 9), func(h *held) { h.ends = now }), own(lineX, 0)}},
			send: 1, drop: []int{0}, in: time.Hour},
		"too old": {s: situation{line: lineX, first: true, held: []held{own(lineX, 100*time.Hour)}}, send: -1,
			drop: []int{0}, why: "there is no tunnel"},
		"not completed": {s: situation{line: lineX, held: []held{own(lineX, 9), with(own(lineX, 3), func(h *held) {
			h.half, h.mute = true, true
		})}}, why: "an exchange was not completed", in: 100*time.Hour - 9},
		"not completed, and tried again": {s: situation{line: lineX, failed: 1, tried: now, held: []held{own(lineX, 9),
			with(own(lineX, 3), func(h *held) { h.half, h.mute = true, true })}}, in: time.Second},
		"completed since": {s: situation{line: lineX, held: []held{with(own(lineX, 9), func(h *held) {
			h.half, h.mute = true, true
		}), own(lineX, 3)}}, send: 1, in: time.Hour - 3},
		"unanswered": {s: situation{line: lineX, held: []held{own(lineX, 10*time.Second)}, wanted: ago(time.Second)},
			why: "the peer does not answer", in: 100*time.Hour - 10*time.Second},
		"unanswered, new": {s: situation{line: lineX, held: []held{own(lineX, 4*time.Second)}, wanted: now},
			in: time.Hour - 4*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			v := l.decide(now, c.s)
			in := time.Duration(0)
			if !v.next.IsZero() {
				in = v.next.Sub(now)
			}
			if v.send != c.send || v.begin != c.why || !reflect.DeepEqual(v.drop, c.drop) || in != c.in {
				t.Errorf("%+v in %v, want %+v", v, in, c)
			}
		})
	}
}

func TestSupersede(t *testing.T) {
	now := time.Now()
	of := func(life uint32, in uint32) keyexchange.Tunnel {
		return keyexchange.Tunnel{In: in, Out: in + 1, Life: life}
	}
	mine, theirs := held{Tunnel: of(7, 10), line: lineX, own: true}, held{Tunnel: of(7, 20), line: lineX}
	half := held{Tunnel: keyexchange.Tunnel{In: 30}, own: true, half: true, mute: true}
	for name, c := range map[string]struct {
		all         []held
		is          held
		ends, mutes []uint32 // by In
	}{
		"first":                   {is: mine},
		"mine again":              {[]held{mine}, held{Tunnel: of(7, 11), line: lineX, own: true}, []uint32{10}, []uint32{10}},
		"mine elsewhere":          {[]held{mine}, held{Tunnel: of(7, 11), line: lineY, own: true}, []uint32{10}, nil},
		"another port":            {[]held{mine}, held{Tunnel: of(7, 11), line: lineP, own: true}, []uint32{10}, []uint32{10}},
		"beside theirs":           {[]held{theirs}, mine, nil, []uint32{20}},
		"theirs elsewhere":        {[]held{theirs, mine}, held{Tunnel: of(7, 21), line: lineY}, []uint32{20}, nil},
		"theirs, of another life": {[]held{theirs, mine}, held{Tunnel: of(8, 21), line: lineY}, []uint32{20, 10}, nil},
		"mine, to another life": {[]held{theirs, mine}, held{Tunnel: of(8, 11), line: lineY, own: true},
			[]uint32{20, 10}, nil},
		"the rest of a half":                {[]held{half, theirs}, held{Tunnel: of(7, 30), line: lineY, own: true}, nil, nil},
		"after a half that nobody finished": {[]held{half}, mine, []uint32{30}, []uint32{30}},
		"theirs, beside a half":             {[]held{half}, theirs, nil, []uint32{30}},
	} {
		t.Run(name, func(t *testing.T) {
			all := supersede(c.all, c.is, now)
			if !reflect.DeepEqual(all[len(all)-1], c.is) {
				t.Errorf("the newest is %+v", all[len(all)-1])
			}
			var ends, mutes []uint32
			for _, h := range all {
				if h.ends.Equal(now.Add(grace)) {
					ends = append(ends, h.In)
				}
				if h.mute {
					mutes = append(mutes, h.In)
				}
			}
			if !reflect.DeepEqual(ends, c.ends) || !reflect.DeepEqual(mutes, c.mutes) {
				t.Errorf("%v end and %v are mute, want %v and %v", ends, mutes, c.ends, c.mutes)
			}
		})
	}
}

func TestLives(t *testing.T) {
	var l lives
	for i, c := range []struct {
		life uint32
		want bool
	}{{1, true}, {1, true}, {2, true}, {1, false}, {2, true}, {3, true}, {2, false}, {1, false}} {
		if got := l.take(c.life); got != c.want {
			t.Errorf("%d: life %d is taken: %v", i, c.life, got)
		}
	}
	for life := uint32(4); life < 100; life++ {
		if !l.take(life) || l.take(life-1) || len(l.ended) > mostLives {
			t.Fatalf("%+v after life %d", l, life)
		}
	}
}
