// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

// TestPick: a balancer that asks takes who is up, and one that does not takes anybody.
func TestPick(t *testing.T) {
	f := &fleet{}
	for _, at := range []string{"a", "b", "c"} {
		f.replicas = append(f.replicas, &replica{direct: direct{at: at}})
	}
	f.replicas[1].up.Store(true)
	blind := map[string]bool{}
	for range 1000 {
		if got := f.pick(true); got != "b" {
			t.Fatalf("%s is picked, which is not up", got)
		}
		blind[f.pick(false)] = true
	}
	if len(blind) != 3 {
		t.Errorf("blindly %v are picked", blind)
	}
	f.replicas[1].up.Store(false)
	if f.pick(true) == "" {
		t.Error("nobody is picked where nobody is up")
	}
}
