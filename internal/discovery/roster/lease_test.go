// SPDX-License-Identifier: Apache-2.0

package roster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

func minute(minutes int) time.Time {
	return time.Date(2026, 1, 1, 0, minutes, 0, 0, time.UTC)
}

// brief writes a lease as "data@version !removed until, endpoint until".
func brief(l Lease) string {
	if !l.Exists() {
		return "-"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s@%d", l.Data, l.Version)
	if l.Removed {
		b.WriteString(" removed")
	}
	fmt.Fprintf(&b, " %d", int(l.Expires.Sub(minute(0))/time.Minute))
	for _, e := range l.Endpoints {
		fmt.Fprintf(&b, ", %s %d", e.Blob, int(e.Expires.Sub(minute(0))/time.Minute))
	}
	return b.String()
}

func endpoints(all ...string) (out [][]byte) {
	for _, e := range all {
		out = append(out, []byte(e))
	}
	return out
}

func TestPut(t *testing.T) {
	signed := Lease{Data: []byte("s"), Version: 5, Expires: minute(10)}
	plain := Lease{Data: []byte("p"), Expires: minute(10), Endpoints: []Endpoint{{[]byte("e"), minute(8)}, {[]byte("f"), minute(2)}}}
	removed := Lease{Data: []byte("r"), Version: 6, Removed: true, Expires: minute(25)}
	most := int(limit.DiscoveryTTL / time.Minute)
	for name, c := range map[string]struct {
		was    Lease
		now    int
		u      Update
		want   string
		change Change
	}{
		"a new member":                        {Lease{}, 0, Update{Data: []byte("p"), TTL: 5 * time.Minute}, "p@0 5", Changed},
		"a new member, of endpoints":          {Lease{}, 0, Update{Endpoints: endpoints("e", "e"), TTL: 5 * time.Minute}, "@0 5, e 5", Changed},
		"a new member, of nothing":            {Lease{}, 0, Update{TTL: 5 * time.Minute}, "@0 5", Changed},
		"the same, longer":                    {plain, 1, Update{Data: []byte("p"), TTL: 15 * time.Minute}, "p@0 16, e 8, f 2", Renewed},
		"the same, shorter":                   {plain, 1, Update{Data: []byte("p"), TTL: time.Minute}, "p@0 10, e 8, f 2", Renewed},
		"nothing, longer":                     {plain, 1, Update{TTL: 15 * time.Minute}, "p@0 16, e 8, f 2", Renewed},
		"other data":                          {plain, 1, Update{Data: []byte("q"), TTL: time.Minute}, "q@0 10, e 8, f 2", Changed},
		"an endpoint again":                   {plain, 1, Update{Endpoints: endpoints("f"), TTL: 15 * time.Minute}, "p@0 16, e 8, f 16", Renewed},
		"an endpoint again, shorter":          {plain, 1, Update{Endpoints: endpoints("e"), TTL: time.Minute}, "p@0 10, e 8, f 2", Renewed},
		"another endpoint":                    {plain, 1, Update{Endpoints: endpoints("g"), TTL: time.Minute}, "p@0 10, e 8, f 2, g 2", Changed},
		"an endpoint that was over":           {plain, 2, Update{Endpoints: endpoints("f"), TTL: time.Minute}, "p@0 10, e 8, f 3", Changed},
		"what is over and not swept":          {plain, 10, Update{Endpoints: endpoints("g"), TTL: time.Minute}, "@0 11, g 11", Changed},
		"the very word again, for longer":     {signed, 1, Update{Data: []byte("s"), Version: 5, TTL: 20 * time.Minute}, "s@5 10", Unchanged},
		"the very word again, when over":      {signed, 10, Update{Data: []byte("s"), Version: 5, TTL: time.Minute}, "s@5 11", Changed},
		"a removal again":                     {removed, 1, Update{Data: []byte("r"), Version: 6, Removed: true, TTL: time.Minute}, "r@6 removed 25", Unchanged},
		"a newer one of the same bytes":       {signed, 1, Update{Data: []byte("s"), Version: 6, TTL: 20 * time.Minute}, "s@6 21", Changed},
		"a signed one has its own word":       {signed, 1, Update{Data: []byte("s"), Version: 6, TTL: time.Minute}, "s@6 2", Changed},
		"a removal":                           {signed, 1, Update{Data: []byte("r"), Version: 6, Removed: true, TTL: time.Minute}, fmt.Sprintf("r@6 removed %d", 1+most), Gone},
		"a removal of nobody":                 {Lease{}, 0, Update{Data: []byte("r"), Version: 6, Removed: true, TTL: time.Minute}, fmt.Sprintf("r@6 removed %d", most), Changed},
		"a removal of what is over":           {signed, 10, Update{Data: []byte("r"), Version: 6, Removed: true, TTL: time.Minute}, fmt.Sprintf("r@6 removed %d", 10+most), Gone},
		"a removal takes the endpoints along": {Lease{Data: []byte("s"), Version: 1, Expires: minute(9), Endpoints: plain.Endpoints}, 0, Update{Data: []byte("r"), Version: 2, Removed: true}, fmt.Sprintf("r@2 removed %d", most), Gone},
		"data makes room for its endpoints":   {plain, 1, Update{Data: []byte("p"), Endpoints: endpoints("g"), TTL: time.Minute, Most: 2}, "p@0 10, f 2, g 2", Changed},
		"data keeps the endpoints it names":   {plain, 1, Update{Data: []byte("p"), Endpoints: endpoints("e", "g"), TTL: time.Minute, Most: 2}, "p@0 10, e 8, g 2", Changed},
		"data with room":                      {plain, 1, Update{Data: []byte("p"), Endpoints: endpoints("g"), TTL: time.Minute, Most: 3}, "p@0 10, e 8, f 2, g 2", Changed},
		"data of more than there may be":      {plain, 1, Update{Data: []byte("p"), Endpoints: endpoints("g", "h"), TTL: time.Minute, Most: 1}, "p@0 10, g 2, h 2", Changed},
		"endpoints alone take nobody's room":  {plain, 1, Update{Endpoints: endpoints("g"), TTL: time.Minute, Most: 2}, "p@0 10, e 8, f 2", Renewed},
		"as many endpoints as there is room":  {plain, 1, Update{Endpoints: endpoints("g", "h"), TTL: time.Minute, Most: 3}, "p@0 10, e 8, f 2, g 2", Changed},
		"back after a removal":                {removed, 1, Update{Data: []byte("s"), Version: 7, TTL: time.Minute}, "s@7 2", Changed},
	} {
		t.Run(name, func(t *testing.T) {
			before := brief(c.was)
			got, change := c.was.Put(minute(c.now), c.u)
			if brief(got) != c.want || change != c.change {
				t.Errorf("%s (%d), want %s (%d)", brief(got), change, c.want, c.change)
			}
			if brief(c.was) != before {
				t.Errorf("what was there became %s", brief(c.was))
			}
		})
	}
}

func TestALeaseIsStale(t *testing.T) {
	for _, c := range []struct {
		known, version uint64
		want           bool
	}{{0, 0, false}, {0, 1, false}, {5, 4, true}, {5, 5, true}, {5, 6, false}, {5, 0, true}} {
		if got := (Lease{Version: c.known}).Stale(Update{Version: c.version}); got != c.want {
			t.Errorf("%d after %d: %v", c.version, c.known, got)
		}
	}
}

func TestTheVeryWordAgainIsNotStale(t *testing.T) {
	l := Lease{Data: []byte("s"), Version: 5}
	for name, c := range map[string]struct {
		l    Lease
		u    Update
		want bool
	}{
		"the same":              {l, Update{Data: []byte("s"), Version: 5}, true},
		"other data":            {l, Update{Data: []byte("t"), Version: 5}, false},
		"a removal instead":     {l, Update{Data: []byte("s"), Version: 5, Removed: true}, false},
		"no data":               {l, Update{Version: 5}, false},
		"no data where is none": {Lease{Version: 5}, Update{Version: 5}, false},
		"older":                 {l, Update{Data: []byte("s"), Version: 4}, false},
		"newer":                 {l, Update{Data: []byte("s"), Version: 6}, false},
		"no versions":           {Lease{Data: []byte("s")}, Update{Data: []byte("s")}, false},
	} {
		if got := c.l.Repeats(c.u); got != c.want {
			t.Errorf("%s: repeats is %v", name, got)
		}
		if stale := c.l.Stale(c.u); stale != (!c.want && name != "newer" && name != "no versions") {
			t.Errorf("%s: stale is %v", name, stale)
		}
	}
}

// TestBecome: what watchers are told where one lease takes the place of another.
func TestBecome(t *testing.T) {
	plain := func(data string, ends ...string) Lease {
		l := Lease{Data: []byte(data), Expires: minute(10)}
		for _, e := range ends {
			l.Endpoints = append(l.Endpoints, Endpoint{[]byte(e), minute(9)})
		}
		return l
	}
	signed := Lease{Data: []byte("s"), Version: 5, Expires: minute(10)}
	newer, later, removed := signed, signed, signed
	newer.Version, later.Expires, removed.Removed = 6, minute(11), true
	for name, c := range map[string]struct {
		was, now Lease
		want     Change
	}{
		"nobody stays nobody":   {Lease{}, Lease{}, Unchanged},
		"one comes":             {Lease{}, plain("p"), Changed},
		"one goes":              {plain("p"), Lease{}, Gone},
		"for longer":            {signed, later, Renewed},
		"the same endpoints":    {plain("p", "e"), plain("p", "e"), Renewed},
		"other data":            {plain("p"), plain("q"), Changed},
		"another endpoint":      {plain("p", "e"), plain("p", "e", "f"), Changed},
		"an endpoint less":      {plain("p", "e", "f"), plain("p", "e"), Changed},
		"a newer version":       {signed, newer, Changed},
		"a removal":             {signed, removed, Gone},
		"a removal for longer":  {removed, removed, Renewed},
		"a removal of nobody":   {Lease{}, removed, Changed},
		"a removal is over":     {removed, Lease{}, Unchanged},
		"back after a removal":  {removed, newer, Changed},
		"data to none at all":   {plain("p", "e"), Lease{Expires: minute(10), Endpoints: plain("", "e").Endpoints}, Changed},
		"empty data to no data": {plain(""), Lease{Expires: minute(10)}, Renewed},
	} {
		if got := c.was.Become(c.now); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestALeaseEnds(t *testing.T) {
	l := Lease{Data: []byte("p"), Expires: minute(10), Endpoints: []Endpoint{{[]byte("e"), minute(8)}, {[]byte("f"), minute(2)}}}
	for _, c := range []struct {
		was    Lease
		now    int
		want   string
		change Change
		next   int
	}{
		{Lease{}, 0, "-", Unchanged, -1},
		{l, 1, "p@0 10, e 8, f 2", Unchanged, 2},
		{l, 2, "p@0 10, e 8", Changed, 8},
		{l, 9, "p@0 10", Changed, 10},
		{l, 10, "-", Gone, -1},
		{Lease{Data: []byte("r"), Version: 1, Removed: true, Expires: minute(10)}, 9, "r@1 removed 10", Unchanged, 10},
		{Lease{Data: []byte("r"), Version: 1, Removed: true, Expires: minute(10)}, 10, "-", Unchanged, -1},
	} {
		before := brief(c.was)
		got, change := c.was.Expire(minute(c.now))
		if brief(got) != c.want || change != c.change {
			t.Errorf("%s at %d: %s (%d), want %s (%d)", before, c.now, brief(got), change, c.want, c.change)
		}
		if ends, _ := c.was.ExpireEndpoints(minute(c.now)); ends.Exists() != c.was.Exists() || len(ends.Endpoints) > len(got.Endpoints) {
			t.Errorf("%s at %d: without endpoints that are over it is %s", before, c.now, brief(ends))
		}
		if next := got.Next(); c.next < 0 != next.IsZero() || c.next >= 0 && !next.Equal(minute(c.next)) {
			t.Errorf("%s at %d: next at %v", before, c.now, next)
		}
		if brief(c.was) != before {
			t.Errorf("%s became %s", before, brief(c.was))
		}
	}
}
