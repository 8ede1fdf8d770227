// SPDX-License-Identifier: Apache-2.0

package carrier

import "testing"

// TestAFamilyOfBudgets: what is sent is recycled by all, what came is counted by each.
func TestAFamilyOfBudgets(t *testing.T) {
	parent := NewBudget(1 << 20)
	a, b := parent.Another(10), parent.Another(20)
	if a.batches != parent.batches || b.batches != parent.batches {
		t.Error("the buffers are not those of the family")
	}
	if NewBudget(1).batches == parent.batches {
		t.Error("a stranger takes the family's buffers")
	}
	a.unread.Add(10)
	if !a.Full() || b.Full() || b.Unread() != 0 || parent.Unread() != 0 {
		t.Error("what came to one budget counts for another")
	}
}
