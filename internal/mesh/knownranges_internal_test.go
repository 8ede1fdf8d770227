// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

func ranged(id, node string, ranges ...string) roster.Member {
	m := roster.Member{Facts: member.Facts{ID: id, Node: node, Key: member.Key{id[0], id[len(id)-1]}}, Tier: roster.TierNative, Entries: []roster.Entry{entryOf(id, "")}}
	for _, r := range ranges {
		m.Ranges = append(m.Ranges, netip.MustParsePrefix(r))
	}
	return m
}

func entryOf(id, succeeds string) roster.Entry {
	return roster.Entry{ID: id, Source: roster.Source{Tier: roster.TierNative, Name: "s"}, Succeeds: succeeds}
}

// lower is a member of the older protocol, where ids and names are free to choose.
func lower(id, node string) roster.Member {
	return roster.Member{Facts: member.Facts{ID: id, Node: node}, Tier: roster.TierOlder, Entries: []roster.Entry{{ID: id, Source: roster.Source{Tier: roster.TierOlder}, Succeeds: "b"}}}
}

// unkeyed is a member as it is known without its key.
func unkeyed(m roster.Member) roster.Member {
	m.Key = member.Key{}
	return m
}

func closedOf(b knownRanges) (out []string) {
	for _, c := range b.closed() {
		out = append(out, c.ID)
	}
	return out
}

func TestKnownRangesStayClosed(t *testing.T) {
	begin := time.Unix(1_800_000_000, 0)
	usual := rangeBounds{time.Hour, 100, 100}
	a, b := ranged("a", "na", "10.1.0.0/16"), ranged("b", "nb", "10.2.0.0/16")
	both := roster.Result{Self: roster.Member{Facts: member.Facts{ID: "me"}}, Members: []roster.Member{a, b}}
	first, _ := knownRanges{}.next(both, begin, usual)
	for name, c := range map[string]struct {
		result roster.Result
		after  time.Duration
		want   []string
	}{
		"both are there":            {both, time.Minute, nil},
		"nothing is heard of b":     {roster.Result{Members: []roster.Member{a}}, time.Minute, []string{"b"}},
		"nothing of either":         {roster.Result{}, time.Minute, []string{"a", "b"}},
		"b has said farewell":       {roster.Result{Members: []roster.Member{a}, Removed: []string{"b"}}, time.Minute, nil},
		"b has another id now":      {roster.Result{Members: []roster.Member{a, {Facts: member.Facts{ID: "c"}, Tier: roster.TierNative, Entries: []roster.Entry{entryOf("c", "b")}}}}, time.Minute, nil},
		"b is named by another id":  {roster.Result{Members: []roster.Member{a, {Facts: member.Facts{ID: "f"}, Tier: roster.TierStatic, Entries: []roster.Entry{{ID: "f", Source: roster.Source{Tier: roster.TierStatic}}, entryOf("b", "")}}}}, time.Minute, nil},
		"b has no key any more":     {roster.Result{Members: []roster.Member{a, unkeyed(b)}}, time.Minute, []string{"b"}},
		"b announces nothing more":  {roster.Result{Members: []roster.Member{a, ranged("b", "nb")}}, time.Minute, nil},
		"another one with its name": {roster.Result{Members: []roster.Member{a, ranged("x", "nb", "10.9.0.0/16")}}, time.Minute, []string{"b"}},
		"a lower tier has its id":   {roster.Result{Members: []roster.Member{a, lower("b", "nb")}}, time.Minute, []string{"b"}},
		"it is this node":           {roster.Result{Self: roster.Member{Facts: member.Facts{ID: "b"}}, Members: []roster.Member{a}}, time.Minute, nil},
	} {
		got, left := first.next(c.result, begin.Add(c.after), usual)
		if !slices.Equal(closedOf(got), c.want) || left != 0 {
			t.Errorf("%s: closed are %v, want %v", name, closedOf(got), c.want)
		}
		again, _ := got.next(c.result, begin.Add(c.after+time.Second), usual)
		if !again.same(got) {
			t.Errorf("%s: a second look changes %+v to %+v", name, got, again)
		}
		over, _ := got.next(c.result, begin.Add(c.after+time.Hour), usual)
		if len(closedOf(over)) > 0 {
			t.Errorf("%s: after the time there is %v", name, closedOf(over))
		}
		back, _ := got.next(both, begin.Add(c.after+time.Second), usual)
		if now := closedOf(back); slices.Contains(now, "a") || slices.Contains(now, "b") {
			t.Errorf("%s: who is back is closed: %v", name, closedOf(back))
		}
	}
}

// TestAKeyThatIsMissingOpensNothing: whatever is heard of a member after each other, with its
// key, without, or nothing, its range is governed from the first word with a key on; until
// it says farewell or announces nothing, the operator opens it, or the time is over.
func TestAKeyThatIsMissingOpensNothing(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	usual := rangeBounds{time.Hour, 100, 100}
	b := ranged("b", "nb", "10.2.0.0/16")
	with, without, silent := roster.Result{Members: []roster.Member{b}}, roster.Result{Members: []roster.Member{unkeyed(b)}}, roster.Result{}
	looks := []roster.Result{with, without, silent}
	for n := range 81 {
		l, _ := knownRanges{}.next(with, now, usual)
		for i, left := 0, n; i < 4; i, left = i+1, left/3 {
			r := looks[left%3]
			l, _ = l.next(r, now.Add(time.Duration(i+1)*time.Minute), usual)
			governed := left%3 == 0 || slices.Equal(closedOf(l), []string{"b"})
			if !governed || left%3 == 0 && len(closedOf(l)) > 0 {
				t.Errorf("%d, look %d: with a key %v; closed are %v", n, i, left%3 == 0, closedOf(l))
			}
		}
	}
	never, _ := knownRanges{}.next(without, now, usual)
	if never, _ = never.next(without, now.Add(time.Minute), usual); len(closedOf(never)) > 0 {
		t.Error("who has never had a key is closed")
	}
	gone, _ := knownRanges{}.next(with, now, usual)
	gone, _ = gone.next(without, now.Add(time.Minute), usual)
	for name, next := range map[string]func() knownRanges{
		"a farewell": func() knownRanges {
			l, _ := gone.next(roster.Result{Removed: []string{"b"}}, now.Add(2*time.Minute), usual)
			return l
		},
		"the time": func() knownRanges { l, _ := gone.next(without, now.Add(2*time.Hour), usual); return l },
		"no range": func() knownRanges {
			l, _ := gone.next(roster.Result{Members: []roster.Member{unkeyed(ranged("b", "nb"))}}, now.Add(2*time.Minute), usual)
			return l
		},
		"an operator": func() knownRanges { l, _, _ := gone.forget("nb"); return l },
	} {
		l := next()
		if len(closedOf(l)) > 0 {
			t.Errorf("%s does not open %v", name, closedOf(l))
		}
		if l, _ = l.next(without, now.Add(2*time.Hour+time.Minute), usual); name != "a farewell" && len(closedOf(l)) > 0 {
			t.Errorf("after %s it is closed again", name)
		}
	}
}

// TestWhoIsKnownForLongIsNotDisplaced: a hostile member with many names, or many ranges,
// displaces nobody who has been there before.
func TestWhoIsKnownForLongIsNotDisplaced(t *testing.T) {
	begin := time.Unix(1_800_000_000, 0)
	k := rangeBounds{time.Hour, 10, 20}
	old := roster.Result{Members: []roster.Member{ranged("good", "g", "10.1.0.0/16")}}
	b, _ := knownRanges{}.next(old, begin, k)
	for i := range 50 {
		r := roster.Result{Members: []roster.Member{ranged(fmt.Sprintf("bad%d", i), "x", "10.2.0.0/16", "10.3.0.0/16", "10.4.0.0/16")}}
		if i == 0 {
			r.Members = append(r.Members, old.Members...)
		}
		var left int
		b, left = b.next(r, begin.Add(time.Duration(i+10)*time.Second), k)
		if len(b.Members) > k.members {
			t.Fatalf("%d are kept", len(b.Members))
		}
		if i == 49 && left == 0 {
			t.Error("nothing was left out")
		}
	}
	if !slices.Contains(closedOf(b), "good") {
		t.Errorf("closed are %v", closedOf(b))
	}
}

// TestKnownRangesOutliveTheProcess: what a node knew is closed after its restart; what cannot
// be read refuses the start, for it would open what is closed.
func TestKnownRangesOutliveTheProcess(t *testing.T) {
	dir := t.TempDir()
	m, k := newRoom(t, dir, nil)
	now := time.Now().Round(0)
	there := roster.Result{Members: []roster.Member{ranged("b", "nb", "10.2.0.0/16")}}
	turn(m, seen(m, k, there), now)
	do := turn(m, seen(m, k, there), now.Add(time.Second)) // which is not worth a write
	turn(m, ending{}, now.Add(time.Second))
	if len(do.plan.Closed) > 0 {
		t.Errorf("closed are %v", do.plan.Closed)
	}
	m, k = newRoom(t, dir, nil)
	turn(m, seen(m, k, roster.Result{}), now.Add(time.Minute))
	m, _ = newRoom(t, dir, nil)
	if in := m.state.Load().plan(time.Now()); len(in.Closed) != 1 || in.Closed[0].Node != "nb" {
		t.Fatalf("closed are %v", in.Closed)
	}
	if s := m.Status(); len(s.Closed) != 1 || s.Closed[0].Node != "nb" || !s.Closed[0].Until.After(s.Closed[0].Since) {
		t.Errorf("the status tells %+v", s.Closed)
	}
	if do := turn(m, forget{"nobody"}, now); !fault.Has(do.answer.err, fault.CodeNotFound) || fault.From(do.answer.err).Next == "" || do.soon {
		t.Errorf("of nobody: %+v", do.answer)
	}
	if do := turn(m, forget{"nb"}, now); do.answer.err != nil || len(do.answer.value.(Forgotten).Ranges) != 1 || !do.soon {
		t.Errorf("%+v", do.answer)
	}
	m, _ = newRoom(t, dir, nil)
	if in := m.state.Load().plan(time.Now()); len(in.Closed) > 0 {
		t.Errorf("what was opened is closed after a restart: %v", in.Closed)
	}
	path := filepath.Join(dir, knownRangesFile)
	for _, junk := range []string{"junk", "[]", `{"members":[{"ranges":["x"]}]}`, `{"members":[{}]}`, `{"members":[{"id":"x"}]}`} {
		if err := os.WriteFile(path, []byte(junk), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readKnownRanges(dir); !fault.Has(err, fault.CodeStateCorrupt) || !strings.Contains(fault.From(err).Explain(), path) {
			t.Errorf("%s: %v", junk, err)
		}
	}
}

// TestWhoComesIsOnDiskBeforeItIsRouted: a node that is killed a moment after it has heard of a
// member knows its ranges at the next start. A crowd that comes one by one is written together,
// and no later than that; a disk that takes nothing is not tried all the time.
func TestWhoComesIsOnDiskBeforeItIsRouted(t *testing.T) {
	dir := t.TempDir()
	m, k := newRoom(t, dir, nil)
	onDisk := func() int {
		t.Helper()
		b, err := readKnownRanges(dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(b.Members)
	}
	now := time.Now().Round(0)
	turn(m, seen(m, k, roster.Result{}), now)
	b := ranged("b", "nb", "10.2.0.0/16")
	step := func(after time.Duration, want int, again bool, members ...roster.Member) {
		t.Helper()
		now = now.Add(after)
		turn(m, seen(m, k, roster.Result{Members: members}), now)
		got := m.state.Load().ranges.again(now)
		if n := onDisk(); n != want || (got > 0) != again || got > meshQuiet {
			t.Errorf("%d of %d members are on disk, want %d; again after %v", n, len(members), want, got)
		}
	}
	step(200*time.Millisecond, 1, false, b)
	b.Ranges = append(b.Ranges, netip.MustParsePrefix("10.3.0.0/16"))
	step(100*time.Millisecond, 1, false, b)
	if saved, err := readKnownRanges(dir); err != nil || len(saved.Members[0].Ranges) != 2 {
		t.Errorf("on disk is %+v, %v", saved, err)
	}
	crowd := []roster.Member{b}
	for i := range 500 {
		crowd = append(crowd, ranged(fmt.Sprint("m", i), fmt.Sprint("n", i), fmt.Sprintf("10.100.%d.%d/32", i/250, i%250)))
	}
	step(time.Second, 1, true, crowd...)
	step(4010*time.Millisecond, 501, false, crowd...)
	if err := errors.Join(os.Remove(filepath.Join(dir, knownRangesFile)), os.MkdirAll(filepath.Join(dir, knownRangesFile, "x"), 0o700)); err != nil {
		t.Fatal(err)
	}
	crowd = append(crowd, ranged("last", "nlast", "10.4.0.0/16"))
	now = now.Add(time.Minute)
	turn(m, seen(m, k, roster.Result{Members: crowd}), now)
	if again := m.state.Load().ranges.again(now); again != meshQuiet {
		t.Errorf("what the disk does not take is tried again after %v", again)
	}
}

// TestStatedRangesAreOurOwn: what a file or Kubernetes says is behind this node is its own,
// and addresses in it are told to nobody.
func TestStatedRangesAreOurOwn(t *testing.T) {
	m, k := newRoom(t, t.TempDir(), nil)
	p := netip.MustParsePrefix("10.244.1.0/24")
	stated := seen(m, k, roster.Result{Stated: []roster.Statement{{Source: roster.Source{Tier: roster.TierKubernetes}, Ranges: []netip.Prefix{p}}}})
	stated.world.addresses = []netip.Addr{netip.MustParseAddr("10.244.1.1"), netip.MustParseAddr("192.0.2.1")}
	do := turn(m, stated, time.Now())
	if !slices.Equal(do.plan.Self.Ranges, []netip.Prefix{p}) {
		t.Errorf("the ranges are %v", do.plan.Self.Ranges)
	}
	if len(do.say.Addresses) != 1 || len(do.say.Ranges) != 0 {
		t.Errorf("said is %+v", do.say)
	}
	if do := turn(m, seen(m, k, roster.Result{}), time.Now()); len(do.plan.Self.Ranges) != 0 {
		t.Errorf("nobody states it any more: %v", do.plan.Self.Ranges)
	}
}

// TestWithheld: a range over an address that came later is told as a problem, and nobody
// else hears of it.
func TestWithheld(t *testing.T) {
	p, q := netip.MustParsePrefix("192.168.7.0/24"), netip.MustParsePrefix("10.7.0.0/16")
	m, k := newRoom(t, t.TempDir(), func(c *Config) { c.Announce.Ranges = []netip.Prefix{p, q} })
	look := seen(m, k, roster.Result{})
	if do := turn(m, look, time.Now()); len(do.say.Ranges) != 2 {
		t.Fatalf("said is %v", do.say.Ranges)
	}
	look.world.local.Underlay = []netip.Addr{netip.MustParseAddr("192.168.7.9")}
	do := turn(m, look, time.Now())
	if !slices.Equal(do.say.Ranges, []netip.Prefix{q}) {
		t.Errorf("said is %v", do.say.Ranges)
	}
	if len(do.plan.Self.Ranges) != 2 {
		t.Errorf("planned is with %v: the problem is not told", do.plan.Self.Ranges)
	}
	look.world.local.Underlay = nil
	if do := turn(m, look, time.Now()); len(do.say.Ranges) != 2 {
		t.Errorf("the address is gone, and said is %v", do.say.Ranges)
	}
}
