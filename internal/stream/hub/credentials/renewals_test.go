// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"fmt"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

func TestRenewalsOfAnIdentity(t *testing.T) {
	var all renewals
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	take := func(who string, at time.Duration) error { return all.take(who, now.Add(at), 24*time.Hour) }
	for range renewBurst {
		if err := take("a", 0); err != nil {
			t.Fatal(err)
		}
	}
	f := fault.From(take("a", 0))
	if f == nil || f.Code != fault.CodeLimit || f.Next == "" || f.Again <= 0 || f.Again > renewEvery+time.Second {
		t.Fatalf("%+v", f)
	}
	if err := take("b", 0); err != nil {
		t.Errorf("another one: %v", err)
	}
	if err := take("a", f.Again-2*time.Second); !fault.Has(err, fault.CodeLimit) {
		t.Errorf("too early: %v", err)
	}
	// Who goes on asking is served all the same.
	if err := take("a", f.Again); err != nil {
		t.Errorf("after the wait that it was told: %v", err)
	}
	if err := take("a", f.Again); !fault.Has(err, fault.CodeLimit) {
		t.Errorf("and once more: %v", err)
	}
	var short renewals
	for i := range 100 { // as certificates of 3 s are renewed
		if err := short.take("a", now.Add(time.Duration(i)*2*time.Second), 3*time.Second); err != nil {
			t.Fatalf("renewal %d of a short life: %v", i, err)
		}
	}
}

func TestRenewalsAreRememberedWithinABound(t *testing.T) {
	var all renewals
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for range renewBurst + 1 {
		all.take("greedy", now, 24*time.Hour)
	}
	for i := range renewKept + 10 {
		if err := all.take(fmt.Sprint(i), now, 24*time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(all.of); n > renewKept {
		t.Errorf("%d identities are remembered", n)
	}
	if err := all.take("greedy", now, 24*time.Hour); !fault.Has(err, fault.CodeLimit) {
		t.Errorf("many others let it ask again: %v", err)
	}
	all.take("later", now.Add(time.Hour), 24*time.Hour)
	if n := len(all.of); n != 1 {
		t.Errorf("%d identities that lack nothing are remembered", n)
	}
}
