// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/id"
)

func compiled(t *testing.T, rules ...policy.Rule) *policy.Policy {
	t.Helper()
	p, problems := policy.Compile(rules, nil)
	if p == nil {
		t.Fatal(problems)
	}
	return p
}

func clusterOf(t *testing.T, name string) id.Cluster {
	t.Helper()
	c, err := id.ParseCluster(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func allow(name, cluster, destination string) policy.Rule {
	r := policy.Rule{Name: name, Destination: []string{destination}}
	if cluster != "" {
		r.Cluster = []string{cluster}
	}
	return r
}

func dialTo(cluster, addr string) policy.Request {
	at := netip.MustParseAddrPort(addr)
	return policy.Request{Cluster: cluster, Flow: policy.FlowDial, Addr: at.Addr(), Port: at.Port()}
}

// live is a stream of which nothing is carried.
type live struct{ request policy.Request }

func (s *live) Request() policy.Request { return s.request }
func (s *live) Allowed(Ruling)          {}
func (s *live) Overrule(Ruling)         {}

func TestWithoutAPolicyTheAgentsDecide(t *testing.T) {
	a := NewTable()
	if r := a.Decide(dialTo("c1", "10.0.0.1:1")); !r.Allow || r.Judged || r.Version.String() != "" {
		t.Errorf("%+v", r)
	}
	a.Replace(true, nil) // an empty folder: everything is denied
	if r := a.Decide(dialTo("c1", "10.0.0.1:1")); r.Allow || !r.Judged || r.Why() == "" || r.Version.String() != "1-000000000000" {
		t.Errorf("%+v", r)
	}
}

// TestAChangeEndsOnlyWhatItRefuses changes one file after the other beside a live
// stream of each of three clusters.
func TestAChangeEndsOnlyWhatItRefuses(t *testing.T) {
	a := NewTable()
	a.Replace(true, map[string]*policy.Policy{
		"1":   compiled(t, allow("one", "c1", "10.0.0.0/8")),
		"2":   compiled(t, allow("two", "c2", "10.0.0.0/8")),
		"all": compiled(t, allow("all", "c3", "10.0.0.0/8"), allow("rest", "x*", "10.0.0.0/8")),
	})
	streams := map[string]*live{}
	for _, c := range []id.Cluster{clusterOf(t, "c1"), clusterOf(t, "c2"), clusterOf(t, "c3")} {
		s := &live{request: dialTo(c.String(), "10.0.0.1:443")}
		if v, ok := a.Enter(c, s); !ok {
			t.Fatalf("%s: %s", c, v.Why())
		}
		streams[c.String()] = s
	}
	for _, step := range []struct {
		name    string
		changed map[string]*policy.Policy
		refused []string
	}{
		{"nothing that matters", map[string]*policy.Policy{"1": compiled(t, allow("other", "c1", "10.0.0.0/16"))}, nil},
		{"another cluster's file", map[string]*policy.Policy{"9": compiled(t, policy.Rule{Name: "no", Deny: true, Cluster: []string{"c9"}, Destination: []string{"*"}})}, nil},
		{"its own file", map[string]*policy.Policy{"1": compiled(t, allow("other", "c1", "10.9.0.0/16"))}, []string{"c1"}},
		{"a file that is gone", map[string]*policy.Policy{"2": nil}, []string{"c2"}},
		{"a deny rule for all", map[string]*policy.Policy{"z": compiled(t, policy.Rule{Name: "no", Deny: true, Destination: []string{"*:443"}})}, []string{"c3"}},
	} {
		got := map[*live]bool{}
		for _, s := range a.Replace(true, step.changed) {
			got[s.Stream.(*live)] = true
			a.Leave(clusterOf(t, s.Request().Cluster), s.Stream)
		}
		for _, c := range step.refused {
			if !got[streams[c]] {
				t.Errorf("%s: the stream of %s goes on", step.name, c)
			}
			delete(got, streams[c])
		}
		if len(got) > 0 {
			t.Errorf("%s: %d streams ended that are still allowed", step.name, len(got))
		}
	}
	if len(a.live) != 0 {
		t.Errorf("streams are left: %v", a.live)
	}
}

// TestAChangeCostsTheSame: what a change allocates does not grow with the clusters.
func TestAChangeCostsTheSame(t *testing.T) {
	cost := func(clusters int) float64 {
		a := NewTable()
		all := map[string]*policy.Policy{}
		for i := range clusters {
			all[fmt.Sprint(i)] = compiled(t, allow("r", fmt.Sprintf("c%d", i), "10.0.0.0/8"))
		}
		a.Replace(true, all)
		next := []*policy.Policy{compiled(t, allow("r", "c7", "10.1.0.0/16")), compiled(t, allow("r", "c7", "10.2.0.0/16"))}
		n := 0
		return testing.AllocsPerRun(50, func() {
			n++
			a.Replace(true, map[string]*policy.Policy{"7": next[n%2]})
		})
	}
	few, many := cost(10), cost(20_000)
	t.Logf("%v allocations with 10 clusters, %v with 20,000", few, many)
	if many > few+2 {
		t.Errorf("%v allocations with 10 clusters, %v with 20,000", few, many)
	}
}

// TestNoStreamSlipsThroughAChange lets streams enter while the policy flips. Whatever
// the order: one that lives is allowed by what is in force.
func TestNoStreamSlipsThroughAChange(t *testing.T) {
	a, c := NewTable(), clusterOf(t, "c1")
	open := map[string]*policy.Policy{"1": compiled(t, allow("open", "c1", "10.0.0.0/8"))}
	shut := map[string]*policy.Policy{"1": compiled(t, allow("other", "c1", "10.9.0.0/16"))}
	a.Replace(true, open)
	for range 200 {
		entered := make(chan *live, 64)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 8 {
					s := &live{request: dialTo("c1", "10.0.0.1:443")}
					if _, ok := a.Enter(c, s); ok {
						entered <- s
					}
				}
			})
		}
		ended := map[*live]bool{}
		for _, o := range a.Replace(true, shut) {
			ended[o.Stream.(*live)] = true
		}
		wg.Wait()
		close(entered)
		for s := range entered {
			if !ended[s] {
				t.Fatal("a stream lives that the policy in force refuses")
			}
			a.Leave(c, s)
		}
		if len(a.live) > 0 {
			t.Fatal("a stream is kept that did not enter")
		}
		a.Replace(true, open)
	}
}

// TestVersions: a change shows in the version of the clusters that it concerns, and in
// that of the whole; the same content has the same digest again.
func TestVersions(t *testing.T) {
	a := NewTable()
	file := func(name, cidr string) map[string]*policy.Policy {
		return map[string]*policy.Policy{name: compiled(t, allow("r", name, cidr))}
	}
	a.Replace(true, file("c1", "10.0.0.0/8"))
	a.Replace(true, file("c2", "10.0.0.0/8"))
	one, two, whole := a.Version("c1"), a.Version("c2"), a.Whole()
	if one.generation != 1 || two.generation != 2 || whole.generation != 2 || one.content == two.content || whole.content != one.content.Plus(two.content) {
		t.Fatalf("%v %v %v", one, two, whole)
	}
	if r := a.Decide(dialTo("c1", "10.0.0.1:1")); r.Version != one {
		t.Errorf("the verdict is of %v", r.Version)
	}
	a.Replace(true, file("c2", "10.0.0.0/8"))
	if a.Version("c2") != two || a.Whole() != whole {
		t.Errorf("a file that is read again: %v %v", a.Version("c2"), a.Whole())
	}
	a.Replace(true, file("c2", "10.1.0.0/16"))
	if a.Version("c1") != one || a.Version("c2") == two || a.Whole() == whole {
		t.Errorf("%v %v %v", a.Version("c1"), a.Version("c2"), a.Whole())
	}
	a.Replace(true, file("c2", "10.0.0.0/8"))
	if v := a.Version("c2"); v.content != two.content || v.generation != 4 {
		t.Errorf("back again: %v", v)
	}
	a.Replace(true, map[string]*policy.Policy{"all": compiled(t, policy.Rule{Name: "no", Deny: true, Destination: []string{"10.9.0.0/16"}})})
	if v := a.Version("c1"); v.generation != 5 || v.content == one.content {
		t.Errorf("a rule for all clusters: %v", v)
	}
	a.Replace(true, map[string]*policy.Policy{"all": nil, "c1": nil, "c2": nil})
	if v := a.Whole(); v.content != (policy.Digest{}) || v.String() != "6-000000000000" {
		t.Errorf("without a file: %v", v)
	}
	if a.Replace(false, nil); a.Whole().String() != "" || a.Version("c1").String() != "" {
		t.Error("without a policy there is a version")
	}
}
