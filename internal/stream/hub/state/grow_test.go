// SPDX-License-Identifier: Apache-2.0

package state_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/stream/hub/state"
)

// TestASoundStateIsNeverTakenForADamagedOne writes and deletes records of all
// sizes, from nothing to values of many pages and back, and opens the state anew
// again and again.
func TestASoundStateIsNeverTakenForADamagedOne(t *testing.T) {
	dir := t.TempDir()
	random := rand.New(rand.NewPCG(1, 2))
	var there []string
	write := func(s *state.Store, n int) {
		token, _ := trust.NewToken(cluster(t, fmt.Sprintf("c%d", n%7)), time.Hour, 10_000, noon())
		token.ID = fmt.Sprintf("%08d", random.IntN(100_000_000))
		for range []int{0, 1, 10, 60, 300}[n%5] {
			token.Claims = append(token.Claims, trust.Claim{KeyHash: strings.Repeat("k", 64), Agent: "a", At: noon()})
		}
		if err := s.PutToken(token, noon()); err != nil {
			t.Fatal(err)
		}
		there = append(there, token.ID)
	}
	remove := func(s *state.Store) {
		i := random.IntN(len(there))
		if err := s.DeleteToken(there[i]); err != nil {
			t.Fatal(err)
		}
		there = append(there[:i], there[i+1:]...)
	}
	for round := range 30 {
		s, err := state.Open(dir)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		tokens, err := s.Tokens()
		if err != nil || len(tokens) != len(there) {
			t.Fatalf("round %d: %d tokens, %v; want %d", round, len(tokens), err, len(there))
		}
		for n := range 6 {
			if round < 15 && n != 3 {
				write(s, round*6+n)
			} else if len(there) > 0 {
				remove(s)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(there) != 0 {
		t.Errorf("%d are left: the state did not shrink to nothing", len(there))
	}
}
