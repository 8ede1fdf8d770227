// SPDX-License-Identifier: Apache-2.0

package telemetry_test

import (
	"fmt"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

func TestRation(t *testing.T) {
	asked := func(r *telemetry.Ration, group, one string, times int) (told int) {
		for range times {
			if ok, _ := r.Take(group, one); ok {
				told++
			}
		}
		return told
	}
	r := &telemetry.Ration{Each: 4, Group: 10, All: 15, Share: 3, Groups: 8}
	for _, c := range []struct {
		what, group, one string
		want             int
	}{
		{"one has its bound", "a", "x", 4},
		{"and takes nothing from another", "a", "y", 4},
		{"a group has its bound", "a", "z", 2},
		{"so that the next one has none", "a", "w", 0},
		{"another group goes on until all is used", "b", "x", 4},
		{"nobody in particular has the bounds of the group alone", "b", "", 1},
		{"beyond it a group that was not told has its share", "c", "x", 3},
		{"each of them", "d", "", 3},
		{"and a group that used more has none", "b", "y", 0},
	} {
		if got := asked(r, c.group, c.one, 1000); got != c.want {
			t.Errorf("%s: %s of %s was told %d times, want %d", c.what, c.one, c.group, got, c.want)
		}
	}
	for n := range 1000 { // names that somebody makes up share one place
		if ok, group := r.Take(fmt.Sprint("made up ", n), "x"); ok && n > 3+3 {
			t.Errorf("group %q of %d is told", group, n)
		}
	}
	r.Turn()
	if got := asked(r, "a", "w", 1000); got != 4 {
		t.Errorf("a new interval: told %d times", got)
	}
}
