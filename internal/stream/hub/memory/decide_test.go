// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

const mib = 1 << 20

func clusterOf(t testing.TB, name string) id.Cluster {
	t.Helper()
	c, err := id.ParseCluster(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestWhoIsRelieved: at a limit of 1000 MiB the memory is short from 800 and calm again
// at 750, and over from 900, from where it is cut to 650.
func TestWhoIsRelieved(t *testing.T) {
	for name, c := range map[string]struct {
		used      int64
		consumers string // name:MiB, with ! if it is pressed already
		want      string // what relief says
	}{
		"calm":                               {600, "a:500 b:50", ""},
		"calm again":                         {750, "a:500! b:50", ""},
		"not short yet":                      {790, "a:500 b:50", ""},
		"still pressed until it is calm":     {760, "a:500! b:50", "press a"},
		"short: the largest gets no more":    {820, "a:500 b:50", "press a"},
		"over: it gives back":                {900, "a:500 b:50", "press a cut a:250"},
		"the next is spared at its height":   {900, "a:500 b:240", "press a cut a:250"},
		"both, when they are level":          {900, "a:360 b:340", "press a,b cut a:135,b:115"},
		"equals share":                       {900, "a:400 b:400 c:1", "press a,b cut a:125,b:125"},
		"a quiet one is never cut":           {990, "a:100 b:8 c:8", "press a cut a:92"},
		"others took it: nobody is cut":      {950, "a:8 b:8", ""},
		"full":                               {1000, "a:500", "press a cut a:350 all"},
		"full, and it is nobody's doing":     {1000, "a:1", "all"},
		"full, and there is nobody":          {1200, "", "all"},
		"a pressed one that is small by now": {820, "a:600 b:8!", "press a,b"},
	} {
		t.Run(name, func(t *testing.T) {
			var all []consumer
			for _, f := range strings.Fields(c.consumers) {
				var n int64
				who, rest, _ := strings.Cut(f, ":")
				fmt.Sscan(strings.TrimSuffix(rest, "!"), &n)
				all = append(all, consumer{clusterOf(t, who), n * mib, strings.HasSuffix(rest, "!")})
			}
			if got := decide(c.used*mib, 1000*mib, all).text(all); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// text renders a relief, cuts in MiB.
func (r action) text(all []consumer) string {
	var out []string
	var press, cut []string
	for _, c := range r.press {
		press = append(press, c.String())
	}
	for _, c := range all {
		if n, ok := r.cut[c.cluster]; ok {
			cut = append(cut, fmt.Sprintf("%s:%d", c.cluster, n/mib))
		}
	}
	slices.Sort(press)
	slices.Sort(cut)
	if len(press) > 0 {
		out = append(out, "press "+strings.Join(press, ","))
	}
	if len(cut) > 0 {
		out = append(out, "cut "+strings.Join(cut, ","))
	}
	if r.all {
		out = append(out, "all")
	}
	return strings.Join(out, " ")
}

// Whoever is smaller is never cut while a larger one keeps more, and what is cut is
// enough, if the clusters have it.
func TestReliefIsFairAndEnough(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e"}
	rapid.Check(t, func(rt *rapid.T) {
		most := rapid.Int64Range(100*mib, 1<<34).Draw(rt, "most")
		used := rapid.Int64Range(0, 2*most).Draw(rt, "used")
		var all []consumer
		spare := int64(0)
		for _, n := range names[:rapid.IntRange(0, len(names)).Draw(rt, "clusters")] {
			c := consumer{cluster: clusterOf(t, n), holds: rapid.Int64Range(0, most).Draw(rt, n)}
			all = append(all, c)
			spare += max(0, c.holds-memoryKept)
		}
		r := decide(used, most, all)
		sum := int64(0)
		for _, c := range all {
			sum += r.cut[c.cluster]
			for _, o := range all {
				if r.cut[o.cluster] > 0 && c.holds-r.cut[c.cluster] > o.holds-r.cut[o.cluster]+1 && r.cut[c.cluster] == 0 && c.holds > o.holds {
					rt.Fatalf("%v is cut and %v keeps more: %v", o, c, r.cut)
				}
			}
			if r.cut[c.cluster] < 0 || r.cut[c.cluster] > c.holds {
				rt.Fatalf("%v gives %d", c, r.cut[c.cluster])
			}
		}
		need := used - percent(most, limit.MemoryCut)
		if over := used >= percent(most, limit.MemoryOver); over && sum < min(need, spare) {
			rt.Fatalf("%d of %d cut, there are %d", sum, need, spare)
		} else if !over && sum > 0 {
			rt.Fatalf("cut before it is over: %v", r.cut)
		}
	})
}

func TestTheNewestLargestStreamsGoFirst(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	all := []holding{
		{300 << 10, at(1)}, // 0: the oldest of the large ones
		{290 << 10, at(5)}, // 1: the newest of them
		{400 << 10, at(3)}, // 2
		{0, at(9)},         // 3: idle, the newest of all
		{0, at(2)},         // 4
		{20 << 10, at(8)},  // 5
	}
	for need, want := range map[int64][]int{
		0: {}, 1: {1}, 290 << 10: {1}, 310 << 10: {1, 2}, 800 << 10: {1, 2, 0}, 1040 << 10: {1, 2, 0, 5}, 1 << 40: {1, 2, 0, 5, 3, 4},
	} {
		if got := newestLargest(all, need, limit.StreamCost); !slices.Equal(got, want) {
			t.Errorf("for %d: %v, want %v", need, got, want)
		}
	}
	// Where only what they hold counts, the idle ones are no use.
	for need, want := range map[int64][]int{0: {}, 290 << 10: {1}, 291 << 10: {1, 2}, 1 << 40: {1, 2, 0, 5}} {
		if got := newestLargest(all, need, 0); !slices.Equal(got, want) {
			t.Errorf("for %d of what is held: %v, want %v", need, got, want)
		}
	}
}
