// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// told counts what a Tally lets through, and sums what it counts, by caller.
type told struct {
	Tally
	records map[string]int
	counted map[string]int64
	sums    []Record
}

func (c *told) take(now time.Time, r Record) bool {
	tell, sums := c.Take(now, r)
	if tell {
		c.records[r.Caller]++
	}
	c.add(sums)
	return tell
}

func (c *told) add(sums []Record) {
	for _, s := range sums {
		c.counted[s.Caller] += s.Count
	}
	c.sums = append(c.sums, sums...)
}

func newTold() *told { return &told{records: map[string]int{}, counted: map[string]int64{}} }

var begin = time.Unix(1_000_000, 0)

func atBound(caller string, n int) Record {
	return Record{At: AtHub, Hub: "h", Cluster: "c1", Frontend: "connect", Caller: caller, Asked: fmt.Sprintf("10.0.0.1:%d", n%60000+1), Code: "limit_reached"}
}

// TestAFloodAtALimitIsCounted: whatever a caller asks for, and although others are
// refused meanwhile, who have their own records.
func TestAFloodAtALimitIsCounted(t *testing.T) {
	c := newTold()
	const flood = 100_000
	for n := range flood {
		c.take(begin, atBound("loud", n))
	}
	if !c.take(begin, atBound("other", 1)) {
		t.Error("the flood hides another caller")
	}
	if c.records["loud"] != limit.AuditAlike || len(c.sums) > 0 {
		t.Errorf("%d records, sums %+v", c.records["loud"], c.sums)
	}
	c.add(c.Turn(begin.Add(limit.AuditTold)))
	if c.counted["loud"] != flood-limit.AuditAlike || len(c.sums) != 1 {
		t.Errorf("%d are counted in %+v", c.counted["loud"], c.sums)
	}
	s := c.sums[0]
	if s.Kind != KindRefusal || s.At != AtHub || s.Hub != "h" || s.Cluster != "c1" || s.Frontend != "connect" || s.Asked != "" || !s.Since.Equal(begin) || s.Code != "limit_reached" {
		t.Errorf("the sum is %+v", s)
	}
	if len(c.Turn(begin)) != 0 {
		t.Error("a sum is told twice")
	}
	if !c.take(begin, atBound("loud", 1)) {
		t.Error("a new interval begins with records")
	}
}

// TestWhatCannotBeReadIsCounted: nobody has to wait for a rate to send another text that
// is no destination, and each would have its record.
func TestWhatCannotBeReadIsCounted(t *testing.T) {
	c := newTold()
	const flood = 1000
	for n := range flood {
		c.take(begin, Record{Caller: "x", Asked: fmt.Sprintf("no address %d", n), Code: "request_malformed"})
	}
	c.add(c.Turn(begin.Add(limit.AuditTold)))
	if c.records["x"] != limit.AuditAlike || len(c.sums) != 1 || c.sums[0].Count != flood-limit.AuditAlike || c.sums[0].Asked != "" {
		t.Errorf("%d records, sums %+v", c.records["x"], c.sums)
	}
}

// TestEveryDistinctDenialIsRecorded, and what is alike is counted.
func TestEveryDistinctDenialIsRecorded(t *testing.T) {
	base := Record{Cluster: "c1", Frontend: "connect", Caller: "x", Asked: "10.0.0.1:80", Rule: "r", Code: "policy_denied", Verdict: Deny, Peer: &Peer{UID: 1, GID: 1, PID: 1}}
	others := map[string]func(*Record){
		"cluster":     func(r *Record) { r.Cluster = "c2" },
		"caller":      func(r *Record) { r.Caller = "y" },
		"certificate": func(r *Record) { r.Serial = "1" },
		"operator":    func(r *Record) { r.Operator = "o" },
		"frontend":    func(r *Record) { r.Frontend = "connect-tls" },
		"destination": func(r *Record) { r.Asked = "10.0.0.2:80" },
		"rule":        func(r *Record) { r.Rule = "s" },
		"code":        func(r *Record) { r.Code = "not_found" },
		"user":        func(r *Record) { r.Peer = &Peer{UID: 2, GID: 1} },
		"group":       func(r *Record) { r.Peer = &Peer{UID: 1, GID: 2} },
	}
	for what, change := range others {
		c := newTold()
		for range 10 * limit.AuditAlike {
			c.take(begin, base)
		}
		other := base
		change(&other)
		if !c.take(begin, other) {
			t.Errorf("one of another %s is not recorded", what)
		}
	}
	same := base
	same.Peer = &Peer{UID: 1, GID: 1, PID: 2}
	same.Source = "10.9.9.9:1"
	c := newTold()
	for range limit.AuditAlike {
		c.take(begin, base)
	}
	if c.take(begin, same) {
		t.Error("another process of the same user has records of its own")
	}
	sums := c.Turn(begin)
	if len(sums) != 1 || sums[0].Asked != base.Asked || sums[0].Rule != "r" || sums[0].Verdict != Deny || sums[0].Peer == nil || *sums[0].Peer != (Peer{UID: 1, GID: 1}) {
		t.Errorf("%+v", sums)
	}
}

// TestATallyIsBoundedAndLosesNothing: more kinds than are remembered, over several
// intervals, at limits and elsewhere; records and counts add up for each caller.
func TestATallyIsBoundedAndLosesNothing(t *testing.T) {
	c, asked, now := newTold(), map[string]int64{}, begin
	one := func(r Record) {
		asked[r.Caller]++
		c.take(now, r)
		if n := c.limits.order.Len(); n > auditCallers || n != len(c.limits.of) {
			t.Fatalf("%d callers in the list, %d in the map", n, len(c.limits.of))
		}
		if n := c.distinct.order.Len(); n > auditDistinct || n != len(c.distinct.of) {
			t.Fatalf("%d destinations in the list, %d in the map", n, len(c.distinct.of))
		}
	}
	for range 3 {
		for n := range 12_000 {
			denied := atBound("scan", n)
			denied.Code = "policy_denied"
			one(denied)
			denied.Caller, denied.Asked = "stubborn", "10.0.0.1:1"
			one(denied)
			one(atBound("loud", n))
			one(atBound(fmt.Sprint("caller ", n%6000), n))
		}
		now = now.Add(limit.AuditTold)
	}
	c.add(c.Turn(now))
	for caller, n := range asked {
		if got := int64(c.records[caller]) + c.counted[caller]; got != n {
			t.Fatalf("%s was refused %d times; records and counts say %d", caller, n, got)
		}
	}
	for caller, want := range map[string]int{"loud": 3 * limit.AuditAlike, "stubborn": 3 * limit.AuditAlike, "scan": 36_000} {
		if n := c.records[caller]; n != want {
			t.Errorf("%s has %d records, want %d: what is met all the time is not forgotten, what is distinct is recorded", caller, n, want)
		}
	}
}

// A hostile text takes no more memory than that of a record.
func TestATallyCutsTexts(t *testing.T) {
	long := Record{Caller: string(make([]byte, 1<<16)), Asked: string(make([]byte, 1<<16)), Rule: string(make([]byte, 1<<16)), Code: "policy_denied"}
	if q := refusedOf(long); len(q.caller)+len(q.asked)+len(q.rule) > 3*limit.AuditText {
		t.Errorf("%d bytes", len(q.caller)+len(q.asked)+len(q.rule))
	}
}
