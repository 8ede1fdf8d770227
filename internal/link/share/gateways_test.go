// SPDX-License-Identifier: Apache-2.0

package share_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/link/share"
)

// round decides, and has the next decision see what came of it.
func round(f *share.Facts) share.Shared {
	s := share.Decide(*f)
	f.Before = nil
	for _, n := range s.Nodes {
		f.Before = append(f.Before, n.ClusterNodeSpec)
	}
	f.Away, f.Doubts = s.Away, s.Doubts
	return s
}

func ready(f *share.Facts, node string, is bool) {
	i := slices.IndexFunc(f.Nodes, func(n share.Node) bool { return n.Name == node })
	f.Nodes[i].Ready = is
}

func TestGateways(t *testing.T) {
	f := facts(6)
	f.Spec.NetworkType = v1alpha1.NetworkGateway
	first := round(&f).Gateways
	if len(first) != 2 {
		t.Fatalf("%q", first)
	}
	step := func(what string, want func(now []string) bool) {
		t.Helper()
		s := round(&f)
		if !want(s.Gateways) {
			t.Errorf("%s: %q after %q", what, s.Gateways, first)
		}
		if again := round(&f).Gateways; !slices.Equal(again, s.Gateways) {
			t.Errorf("%s: %q, and once more %q", what, s.Gateways, again)
		}
	}
	same := func(now []string) bool { return slices.Equal(now, first) }
	ready(&f, first[0], false)
	step("not ready for a moment", same)
	f.Now = f.Now.Add(share.Grace - 1)
	step("until its time ends", same)
	if s := share.Decide(f); !s.Again.Equal(f.Now.Add(1)) {
		t.Errorf("to be decided again at %v, not %v", s.Again, f.Now.Add(1))
	}
	ready(&f, first[0], true)
	step("it came back", same)
	ready(&f, first[0], false)
	step("away once more", same)
	f.Now = f.Now.Add(share.Grace)
	other := ""
	step("after its time", func(now []string) bool {
		other = now[0]
		if other == first[1] {
			other = now[1]
		}
		return len(now) == 2 && slices.Contains(now, first[1]) && !slices.Contains(now, first[0])
	})
	ready(&f, first[0], true)
	step("it comes back too late", func(now []string) bool { return slices.Contains(now, other) && len(now) == 2 })
	ready(&f, other, false)
	ready(&f, first[1], false)
	step("none is ready", func(now []string) bool {
		return len(now) == 3 && slices.Contains(now, other) && slices.Contains(now, first[1])
	})
	ready(&f, other, true)
	ready(&f, first[1], true)
	step("all are back", func(now []string) bool { return len(now) == 2 })
	silent := slices.IndexFunc(f.Nodes, func(n share.Node) bool { return n.Name == other })
	f.Nodes[silent].Silent = true
	f.Now = f.Now.Add(time.Second)
	round(&f)
	f.Now = f.Now.Add(share.Grace)
	step("the mesh on one is silent", func(now []string) bool { return len(now) == 2 && !slices.Contains(now, other) })
	f.Nodes[silent].Silent = false
	f.Gateways = 6
	step("more", func(now []string) bool { return len(now) == 6 })
	f.Selector = map[string]string{"zone": "1"}
	step("a selector", func(now []string) bool { return slices.Equal(now, []string{"n1", "n3", "n5"}) })
	delete(f.Members, "n3")
	step("one without a key", func(now []string) bool { return slices.Equal(now, []string{"n1", "n5"}) })
	f.Spec.ExcludeNodes = []string{"n1"}
	step("an excluded one", func(now []string) bool { return slices.Equal(now, []string{"n5"}) })
	f.Spec.NetworkType = v1alpha1.NetworkP2P
	step("none from node to node", func(now []string) bool { return len(now) == 0 })
}

// event changes one node, or lets time pass.
func event(t *rapid.T, f *share.Facts) string {
	n := rapid.IntRange(0, len(f.Nodes)-1).Draw(t, "node")
	name := f.Nodes[n].Name
	events := []string{"ready", "ready", "ready", "cut", "cut", "key", "exclude", "delete", "add", "wait", "wait"}
	switch rapid.SampledFrom(events).Draw(t, "event") {
	case "ready":
		f.Nodes[n].Ready = !f.Nodes[n].Ready
	case "cut":
		f.Nodes[n].Cut, f.Nodes[n].Passes = !f.Nodes[n].Cut, f.Nodes[n].Cut
	case "key":
		m := f.Members[name]
		m.PublicKey = map[bool]string{true: "key", false: ""}[m.PublicKey == ""]
		f.Members[name] = m
	case "exclude":
		f.Nodes[n].Labels = map[string]string{"linked": rapid.SampledFrom([]string{"no", "yes"}).Draw(t, "linked")}
	case "delete":
		if len(f.Nodes) > 1 {
			f.Nodes = slices.Delete(slices.Clone(f.Nodes), n, n+1)
		}
	case "add":
		added := fmt.Sprintf("m%d", rapid.IntRange(0, 9).Draw(t, "added"))
		if !slices.ContainsFunc(f.Nodes, func(n share.Node) bool { return n.Name == added }) {
			f.Nodes = append(slices.Clone(f.Nodes), share.Node{Name: added, Ready: true})
			f.Members[added] = v1alpha1.MemberSpec{PublicKey: "key"}
		}
	default:
		return "wait"
	}
	return "node"
}

// TestRolesMoveOneAtATime: whatever happens to nodes, there are as many gateways as there can be, each event moves one
// role at most, nothing moves without an event, and the order of nodes makes no difference.
func TestRolesMoveOneAtATime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := facts(rapid.IntRange(1, 6).Draw(t, "nodes"))
		f.Spec.NetworkType = v1alpha1.NetworkGateway
		f.Gateways = rapid.IntRange(1, 4).Draw(t, "gateways")
		s := round(&f)
		last := s.Gateways
		for range rapid.IntRange(1, 20).Draw(t, "events") {
			f.Now = f.Now.Add(time.Millisecond) // so that no two times end together
			next := s.Again
			due := !next.IsZero() && !f.Now.Before(next) // an event of its own
			if due || event(t, &f) == "wait" && !next.IsZero() {
				f.Now = next
			}
			turned := f
			turned.Nodes = rapid.Permutation(f.Nodes).Draw(t, "order")
			turned.Before = rapid.Permutation(f.Before).Draw(t, "order before")
			s = round(&f)
			if other := share.Decide(turned); !slices.Equal(other.Gateways, s.Gateways) ||
				fmt.Sprint(other.Nodes) != fmt.Sprint(s.Nodes) {
				t.Fatalf("%q, and in another order %q", s.Gateways, other.Gateways)
			}
			require(t, f, s, last)
			if again := round(&f); !slices.Equal(again.Gateways, s.Gateways) || !maps.Equal(again.Away, s.Away) {
				t.Fatalf("%q, and without an event %q", s.Gateways, again.Gateways)
			} else {
				s = again // one that has just got its role, and is cut off, was noted
			}
			last = s.Gateways
		}
	})
}

func require(t *rapid.T, f share.Facts, s share.Shared, last []string) {
	can, working := 0, 0
	for _, n := range s.Nodes {
		if n.Ready && n.PublicKey != "" {
			can++
			if slices.Contains(n.Roles, "gateway") {
				working++
			}
		}
	}
	if len(s.Gateways) < min(f.Gateways, can) || working == 0 && can > 0 || working > f.Gateways {
		t.Fatalf("%q, of which %d are ready, of %d that can be it; %d are wanted", s.Gateways, working, can, f.Gateways)
	}
	came, went := 0, 0
	for _, g := range s.Gateways {
		if !slices.Contains(last, g) {
			came++
		}
	}
	for _, g := range last {
		cut := slices.ContainsFunc(f.Nodes, func(n share.Node) bool { return n.Name == g && n.Cut })
		if !cut && !slices.Contains(s.Gateways, g) {
			went++ // of those that are cut off one goes later, as soon as it is not needed
		}
	}
	if came > 1 || went > 1 {
		t.Fatalf("%q after %q", s.Gateways, last)
	}
}
