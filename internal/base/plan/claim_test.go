// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/plan"
)

func TestClaimsReadTheSameAgain(t *testing.T) {
	for _, c := range []plan.Claim{
		{Owner: "0123456789ab", Table: 180, Link: "tombolo0"},
		{Owner: "ffffffffffff", Table: 1<<31 - 1, Link: "a-b.c"},
	} {
		chain := c.Chain()
		if len(chain.Name) > 31 {
			t.Errorf("%q is too long for kernels before 4.14", chain.Name)
		}
		if got, is := plan.ClaimOf(chain); !is || got != c {
			t.Errorf("%+v became %+v, %v", c, got, is)
		}
		chain.Lines = nil
		if got, is := plan.ClaimOf(chain); !is || got.Link != "" || got.Table != c.Table {
			t.Errorf("without its line: %+v, %v", got, is)
		}
	}
	for _, c := range []plan.Chain{
		{Name: "owner"}, {Name: "owner-0123456789ab"}, {Name: "owner-0123456789a-180"}, {Name: "owner-0123456789AB-180"}, {Name: "owner-0123456789ab-"},
		{Name: "owner-0123456789ab-180x"}, {Name: "owner-0123456789ab-180", Hook: "input"}, {Name: "made-by-tombolo"},
	} {
		if got, is := plan.ClaimOf(c); is {
			t.Errorf("%q is a claim: %+v", c.Name, got)
		}
	}
}

func TestRefusingMetricsDiffer(t *testing.T) {
	if got := plan.Refusing(180); got != 4278198272 {
		t.Errorf("the usual table has %d", got)
	}
	seen := map[uint32]int{}
	for _, table := range []int{1, 2, 179, 180, 181, 252, 256, 1000, 1<<24 - 1, 1<<24 + 1000} {
		m := plan.Refusing(table)
		if m>>24 != 255 {
			t.Errorf("table %d has %d, which others may choose", table, m)
		}
		if was, there := seen[m]; there && (was-table)%(1<<24) != 0 {
			t.Errorf("tables %d and %d have both %d", was, table, m)
		}
		seen[m] = table
	}
}
