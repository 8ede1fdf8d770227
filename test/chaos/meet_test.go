// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net"
	"slices"
	"testing"
	"time"
)

// The moments of the tables below, in seconds.
func at(s float64) time.Time { return time.Unix(1000, 0).Add(time.Duration(s * float64(time.Second))) }

func put(seq uint64, s float64) deed {
	return deed{who: "c/a", seq: seq, ttl: 5 * time.Second, sent: at(s), done: at(s + 0.1), acked: true}
}

func failed(d deed) deed { d.acked = false; return d }

func long(d deed) deed { d.ttl = time.Minute; return d }

func leave(seq uint64, s float64) deed {
	d := put(seq, s)
	d.leave, d.ttl = true, 0
	return d
}

func all(opened, s float64, here map[string]uint64) sight {
	return sight{stream: 1, of: "c", opened: at(opened), at: at(s), all: true, sure: true, here: here}
}

func change(s float64, here map[string]uint64, gone ...string) sight {
	return sight{stream: 1, of: "c", opened: at(0), at: at(s), here: here, gone: gone}
}

// chronicled is a history of two members with what is to be found in it.
type chronicled struct {
	a, b                                    []deed
	sights                                  []sight
	outages                                 []outage
	far                                     distance
	vanished, stayed, back, unsaid, skipped int
}

func (c chronicled) check(t *testing.T, name string) {
	t.Helper()
	deeds := map[string][]deed{}
	if c.a != nil {
		deeds["c/a"] = c.a
	}
	if c.b != nil {
		deeds["c/b"] = c.b
	}
	f := judgeMeeting(deeds, c.sights, c.outages, c.far)
	got, want := []int{len(f.vanished), len(f.stayed), len(f.back), len(f.invented), len(f.skipped)}, []int{c.vanished, c.stayed, c.back, c.unsaid, c.skipped}
	if !slices.Equal(got, want) {
		t.Errorf("%s: vanished, stayed, back, invented, skipped are %v, want %v: %+v", name, got, want, f)
	}
}

// TestJudgeMeeting plants every mistake that the check is for, and beside each
// the same thing where it is none.
func TestJudgeMeeting(t *testing.T) {
	unsure := all(1, 2, nil)
	unsure.sure = false
	elsewhere := all(1, 2, nil)
	elsewhere.of = "d"
	again := change(4, map[string]uint64{"c/a": 1})
	again.stream = 2
	a1, a2 := map[string]uint64{"c/a": 1}, map[string]uint64{"c/a": 2}
	b2 := map[string]uint64{"c/b": 2}
	both := map[string]uint64{"c/a": 1, "c/b": 1}
	for name, c := range map[string]chronicled{
		"all is well":                           {a: []deed{put(1, 0), put(2, 3)}, sights: []sight{all(1, 2, a1), change(3.2, a2), change(8.5, nil, "c/a")}},
		"lacking though it lives":               {a: []deed{put(1, 0)}, sights: []sight{all(1, 2, nil)}, vanished: 1},
		"lacking by one who is not sure":        {a: []deed{put(1, 0)}, sights: []sight{unsure}},
		"lacking in another cluster":            {a: []deed{put(1, 0)}, sights: []sight{elsewhere}},
		"lacking before it was taken":           {a: []deed{put(1, 0)}, sights: []sight{all(0.05, 2, nil)}},
		"lacking as nobody took it":             {a: []deed{failed(put(1, 0))}, sights: []sight{all(1, 2, nil)}},
		"lacking as it may have ended":          {a: []deed{put(1, 0)}, sights: []sight{all(1, 5.01, nil)}},
		"lacking though it was renewed":         {a: []deed{put(1, 0), put(1, 4)}, sights: []sight{all(1, 8, nil)}, vanished: 1},
		"lacking as it left":                    {a: []deed{put(1, 0), leave(2, 1.5)}, sights: []sight{all(1, 2, nil)}},
		"lacking as it may have left":           {a: []deed{put(1, 0), failed(leave(2, 1.5))}, sights: []sight{all(1, 2, nil)}},
		"lacking though it came back":           {a: []deed{put(1, 0), leave(2, 0.5), put(3, 0.7)}, sights: []sight{all(1, 2, nil)}, vanished: 1},
		"lacking after a kill":                  {a: []deed{put(1, 0)}, sights: []sight{all(1, 2, nil)}, outages: []outage{{at: at(0.5), killed: true}}},
		"lacking after a restart in order":      {a: []deed{put(1, 0)}, sights: []sight{all(1, 2, nil)}, outages: []outage{{at: at(0.5)}}, vanished: 1},
		"lacking after a kill and a renewal":    {a: []deed{put(1, 0), put(1, 0.7)}, sights: []sight{all(1, 2, nil)}, outages: []outage{{at: at(0.5), killed: true}}, vanished: 1},
		"gone though it lives":                  {a: []deed{put(1, 0)}, sights: []sight{all(0, 1, a1), change(4.5, nil, "c/a")}, vanished: 1},
		"gone though nobody answered, but seen": {a: []deed{failed(put(1, 0))}, sights: []sight{all(0, 1, a1), change(4.5, nil, "c/a")}, vanished: 1},
		"gone though it was renewed":            {a: []deed{put(1, 0), put(1, 3)}, sights: []sight{all(0, 1, a1), change(7, nil, "c/a")}, vanished: 1},
		"gone between two lives":                {a: []deed{put(1, 0), put(1, 6)}, sights: []sight{all(0, 1, a1), change(7, nil, "c/a")}},
		"gone as it left":                       {a: []deed{put(1, 0), leave(2, 2)}, sights: []sight{all(0, 1, a1), change(2.05, nil, "c/a")}},
		"gone, which nobody knew":               {a: []deed{put(1, 0)}, sights: []sight{all(0, 0.05, nil), change(2, nil, "c/a")}},
		"there when a later one ended": {a: []deed{put(1, 0)}, b: []deed{put(1, 1)},
			sights: []sight{all(1.2, 2, both), change(7, nil, "c/b")}, stayed: 1},
		"both ended": {a: []deed{put(1, 0)}, b: []deed{put(1, 1)},
			sights: []sight{all(1.2, 2, both), change(7, nil, "c/b", "c/a")}},
		"there, and it may have come later": {a: []deed{put(1, 0)}, b: []deed{put(1, 0.05)},
			sights: []sight{all(1.2, 2, both), change(7, nil, "c/b")}},
		"there as it was renewed": {a: []deed{put(1, 0), failed(put(1, 4))}, b: []deed{put(1, 1)},
			sights: []sight{all(1.2, 2, both), change(7, nil, "c/b")}},
		"there when a later one left": {a: []deed{put(1, 0)}, b: []deed{put(1, 1), leave(2, 6)},
			sights: []sight{all(1.2, 2, both), change(7, nil, "c/b")}},
		"there as a restart made leases longer": {a: []deed{put(1, 0)}, b: []deed{put(1, 1)}, outages: []outage{{at: at(1.15)}},
			sights: []sight{all(1.2, 2, both), change(7, nil, "c/b")}},
		"back to an older version":   {a: []deed{put(1, 0), put(2, 1)}, sights: []sight{all(1.2, 2, a2), change(3, a1)}, back: 1, skipped: 1},
		"back on another stream":     {a: []deed{put(1, 0), put(2, 1)}, sights: []sight{all(1.2, 2, a2), again}},
		"a version that nobody said": {a: []deed{put(1, 0)}, sights: []sight{all(1, 2, a2)}, unsaid: 1},
		"a version that was a leave": {a: []deed{put(1, 0), leave(2, 1)}, sights: []sight{all(1.5, 2, a2)}, unsaid: 1},
		"a member that nobody is":    {sights: []sight{all(1, 2, a1)}, unsaid: 1},
		"a word that was skipped": {a: []deed{put(1, 0), put(2, 1)}, b: []deed{put(1, 0), put(2, 2)},
			sights: []sight{all(0.5, 0.6, both), change(2.2, b2), change(2.3, nil)}, skipped: 1},
		"a word that is told in the same moment": {a: []deed{put(1, 0), put(2, 1)}, b: []deed{put(1, 0), put(2, 2)},
			sights: []sight{all(0.5, 0.6, both), change(2.2, b2), change(2.3, a2)}},
		"a word that was told by a later one": {a: []deed{put(1, 0), put(2, 1), put(3, 1.5)}, b: []deed{put(1, 0), put(2, 2)},
			sights: []sight{all(0.5, 0.6, both), change(2.2, b2), change(2.3, map[string]uint64{"c/a": 3})}},
		"a word that came with a later one, perhaps": {a: []deed{put(1, 0), put(2, 1.95)}, b: []deed{put(1, 0), put(2, 2)},
			sights: []sight{all(0.5, 0.6, both), change(2.2, b2), change(2.3, nil)}},
		"a word that a kill made forgotten": {a: []deed{put(1, 0), put(2, 1)}, b: []deed{put(1, 0), put(2, 2)}, outages: []outage{{at: at(1.5), killed: true}},
			sights: []sight{all(0.5, 0.6, both), change(2.2, b2), change(2.3, nil)}},
		"a leave that was skipped": {a: []deed{put(1, 0), leave(2, 1)}, b: []deed{put(1, 0), put(2, 2)},
			sights: []sight{all(0.5, 0.6, both), change(2.2, b2), change(2.3, nil)}, skipped: 1},
		"a join that was skipped": {a: []deed{put(1, 1)}, b: []deed{put(1, 0), put(2, 2)},
			sights: []sight{all(0.5, 0.6, map[string]uint64{"c/b": 1}), change(2.2, b2), change(2.3, nil)}, skipped: 1},
		"a whole cluster that is old":         {a: []deed{put(1, 0), put(2, 1)}, sights: []sight{all(1.5, 2, a1)}, skipped: 1},
		"back to an older version, after end": {a: []deed{put(1, 0), put(2, 1)}, sights: []sight{all(1.2, 2, a2), change(6.5, nil, "c/a"), change(7, a1)}, back: 1, skipped: 1},
	} {
		c.check(t, name)
	}
}

// TestJudgeFleet is the same of several services, and of snapshots that are known
// to be saved.
func TestJudgeFleet(t *testing.T) {
	fleet := distance{lag: time.Second, slack: 5 * time.Second}
	cutOff := fleet
	cutOff.blind = []period{{at(2), at(6)}}
	a1 := map[string]uint64{"c/a": 1}
	b2 := map[string]uint64{"c/b": 2}
	both := map[string]uint64{"c/a": 1, "c/b": 1}
	for name, c := range map[string]chronicled{
		"lacking after a kill, though it was saved": {a: []deed{put(1, 0)}, sights: []sight{all(1, 2, nil)},
			outages: []outage{{at: at(0.5), killed: true, saved: at(0.2)}}, vanished: 1},
		"lacking after a kill, and saved before": {a: []deed{put(1, 0)}, sights: []sight{all(1, 2, nil)},
			outages: []outage{{at: at(0.5), killed: true, saved: at(0.1)}}},
		"a word that was saved, and a kill made forgotten": {a: []deed{long(put(1, 0)), long(put(2, 1))}, b: []deed{put(1, 0), put(2, 2)},
			outages: []outage{{at: at(1.5), killed: true, saved: at(1.2)}},
			sights:  []sight{all(0.5, 0.6, both), change(2.2, b2), change(2.3, nil)}, skipped: 1},
		"lacking at another service, a moment after it was taken": {a: []deed{put(1, 0)}, sights: []sight{all(1, 2, nil)}, far: fleet},
		"lacking at another service":                              {a: []deed{put(1, 0)}, sights: []sight{all(1.2, 2, nil)}, far: fleet, vanished: 1},
		"lacking at one that was cut off since before":            {a: []deed{long(put(1, 1.5))}, sights: []sight{all(5, 5.5, nil)}, far: cutOff},
		"lacking at one that was cut off, though it knew it":      {a: []deed{long(put(1, 0))}, sights: []sight{all(5, 5.5, nil)}, far: cutOff, vanished: 1},
		"gone at one that was cut off, though it lives":           {a: []deed{long(put(1, 0))}, sights: []sight{all(1.5, 1.6, a1), change(5, nil, "c/a")}, far: cutOff, vanished: 1, skipped: 1},
		"there when a later one ended, by less than etcd's delay": {a: []deed{put(1, 0)}, b: []deed{put(1, 1)},
			sights: []sight{all(1.2, 2, both), change(7, nil, "c/b")}, far: fleet},
		"there when a later one ended, by more": {a: []deed{put(1, 0)}, b: []deed{put(1, 1), put(1, 5.5)},
			sights: []sight{all(1.2, 2, both), change(6, map[string]uint64{"c/b": 1}), change(11, nil, "c/b")}, far: distance{lag: time.Second, slack: 500 * time.Millisecond}, stayed: 1},
		"there when a later one ended, at one that was cut off": {a: []deed{put(1, 0)}, b: []deed{put(1, 1)},
			sights: []sight{all(1.2, 1.5, both), change(6.5, nil, "c/b")}, far: distance{lag: time.Second, blind: cutOff.blind}},
		"a word that was skipped at another service, which may come": {a: []deed{put(1, 0), put(2, 1)}, b: []deed{put(1, 0), put(2, 2)},
			sights: []sight{all(0.5, 0.6, both), change(2.2, b2), change(2.3, nil)}, far: fleet},
		"a word that was skipped at another service": {a: []deed{put(1, 0), put(2, 0.5)}, b: []deed{put(1, 0), put(2, 2)},
			sights: []sight{all(0.3, 0.4, both), change(2.2, b2), change(2.3, nil)}, far: fleet, skipped: 1},
	} {
		c.check(t, name)
	}
}

// behindAGate is a listener, and the gate that leads to it.
func behindAGate(t *testing.T) (net.Listener, *gate) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	g, err := newGate("127.0.0.1:0", func() string { return ln.Addr().String() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.end)
	return ln, g
}

// TestTheGate: what is under way while it is shut comes afterwards, and nothing
// gets lost; a cut ends the connection.
func TestTheGate(t *testing.T) {
	ln, g := behindAGate(t)
	in, err := net.Dial("tcp", g.ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	within := time.Now().Add(30 * time.Second)
	in.SetDeadline(within)
	g.shut(true)
	if _, err := in.Write([]byte("late")); err != nil {
		t.Fatal(err)
	}
	out.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := out.Read(make([]byte, 4)); err == nil {
		t.Fatalf("%d bytes came through a gate that is shut", n)
	}
	g.shut(false)
	out.SetReadDeadline(within)
	buf := make([]byte, 4)
	if _, err := io.ReadFull(out, buf); err != nil || string(buf) != "late" {
		t.Fatalf("%q, %v", buf, err)
	}
	g.cut()
	if _, err := in.Read(buf); err == nil {
		t.Error("the connection lives on")
	}
	if _, err := out.Read(buf); err == nil {
		t.Error("the other half lives on")
	}
}

// TestEndsWithout: a stream may end with its replica, and not by itself.
func TestEndsWithout(t *testing.T) {
	gone := []period{{at(10), at(12)}, {at(20), at(22)}}
	if got := endsWithout([]time.Time{at(9), at(10), at(11), at(13), at(22)}, gone); !slices.Equal(got, []time.Time{at(9), at(13)}) {
		t.Errorf("%v", got)
	}
}

// TestABarredGate: what lives ends, what comes is sent away, and it opens again.
func TestABarredGate(t *testing.T) {
	ln, g := behindAGate(t)
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", g.address())
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(30 * time.Second))
		return c
	}
	in := dial()
	defer in.Close()
	out, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	g.bar(true)
	barred := dial()
	defer barred.Close()
	for _, c := range []net.Conn{in, barred} {
		if n, err := c.Read(make([]byte, 1)); err == nil || n > 0 {
			t.Errorf("%d bytes, %v through a gate that is barred", n, err)
		}
	}
	g.bar(false)
	again := dial()
	defer again.Close()
	if _, err := again.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	for { // the one that was barred may have come as far as the listener
		c, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(30 * time.Second))
		if n, _ := c.Read(make([]byte, 1)); n == 1 {
			return
		}
	}
}
