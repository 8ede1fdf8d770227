// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/tombolo-io/tombolo/internal/id"
	"github.com/tombolo-io/tombolo/internal/policy"
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

func TestWithoutAPolicyTheAgentsDecide(t *testing.T) {
	a := newAccess()
	if r := a.decide(dialTo("c1", "10.0.0.1:1")); !r.Allow || r.judged || r.version.String() != "" {
		t.Errorf("%+v", r)
	}
	a.replace(true, nil) // an empty folder: everything is denied
	if r := a.decide(dialTo("c1", "10.0.0.1:1")); r.Allow || !r.judged || r.Why() == "" || r.version.String() != "1-000000000000" {
		t.Errorf("%+v", r)
	}
}

// TestAChangeEndsOnlyWhatItRefuses changes one file after the other beside a live
// stream of each of three clusters.
func TestAChangeEndsOnlyWhatItRefuses(t *testing.T) {
	a := newAccess()
	a.replace(true, map[string]*policy.Policy{
		"1":   compiled(t, allow("one", "c1", "10.0.0.0/8")),
		"2":   compiled(t, allow("two", "c2", "10.0.0.0/8")),
		"all": compiled(t, allow("all", "c3", "10.0.0.0/8"), allow("rest", "x*", "10.0.0.0/8")),
	})
	streams := map[string]*hubStream{}
	for _, c := range []id.Cluster{clusterOf(t, "c1"), clusterOf(t, "c2"), clusterOf(t, "c3")} {
		s := &hubStream{request: dialTo(c.String(), "10.0.0.1:443")}
		if v, ok := a.enter(c, s); !ok {
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
		got := map[*hubStream]bool{}
		for _, s := range a.replace(true, step.changed) {
			got[s.stream] = true
			a.leave(clusterOf(t, s.stream.request.Cluster), s.stream)
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
		a := newAccess()
		all := map[string]*policy.Policy{}
		for i := range clusters {
			all[fmt.Sprint(i)] = compiled(t, allow("r", fmt.Sprintf("c%d", i), "10.0.0.0/8"))
		}
		a.replace(true, all)
		next := []*policy.Policy{compiled(t, allow("r", "c7", "10.1.0.0/16")), compiled(t, allow("r", "c7", "10.2.0.0/16"))}
		n := 0
		return testing.AllocsPerRun(50, func() {
			n++
			a.replace(true, map[string]*policy.Policy{"7": next[n%2]})
		})
	}
	few, many := cost(10), cost(20_000)
	t.Logf("%v allocations with 10 clusters, %v with 20,000", few, many)
	if many > few+2 {
		t.Errorf("%v allocations with 10 clusters, %v with 20,000", few, many)
	}
}
