// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/link/reach"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// linkedView has cluster east with node a, and cluster west with gateways b and c, and node d.
func linkedView(self string) (reach.View, []member.Facts) {
	prefix := func(s string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(s)} }
	cluster := map[bool]string{true: "east", false: "west"}[self == "a"]
	v := reach.View{Self: reach.Name{Cluster: cluster, Node: self}, Clusters: []reach.Cluster{
		{Name: "east", Pods: prefix("10.1.0.0/16")}, {Name: "west", Pods: prefix("10.2.0.0/16"), Gateway: true}}}
	var members []member.Facts
	for i, name := range []string{"a", "b", "c", "d"} {
		of := map[bool]string{true: "east", false: "west"}[name == "a"]
		n := reach.Node{Name: reach.Name{Cluster: of, Node: name}, Key: member.Key{byte(i + 1)}, Ready: true,
			Gateway: name == "b" || name == "c", Pods: prefix(fmt.Sprintf("10.%d.%d.0/24", 1+min(i, 1), i))}
		v.Nodes = append(v.Nodes, n)
		m := member.Facts{ID: "id-" + name, Node: n.String(), Key: n.Key}
		if of == cluster {
			m.Node, m.Nodename = name, name
		}
		if name != self {
			members = append(members, m)
		}
	}
	return v, members
}

// sends is the node to which another one's pods are sent.
func (l linked) sends(pods string) string {
	for to, ranges := range l.plan.Send {
		if slices.Contains(ranges, netip.MustParsePrefix(pods)) {
			return to.Node
		}
	}
	return ""
}

func TestAGatewayThatIsBackWaits(t *testing.T) {
	now := time.Unix(1000, 0)
	v, members := linkedView("a")
	l := linked{}.look(v, members, nil, now)
	first := l.sends("10.2.3.0/24")
	other := map[string]string{"b": "c", "c": "b"}[first]
	down := map[string]topology.Health{"id-" + first: {Down: true}}
	for _, step := range []struct {
		after  time.Duration
		health map[string]topology.Health
		want   string
	}{
		{time.Second, down, other}, {2 * time.Second, nil, other}, {linkSteady, nil, other},
		{linkSteady + 2*time.Second, down, other}, {linkSteady + 3*time.Second, nil, other},
		{2*linkSteady + 3*time.Second, nil, first},
	} {
		l = l.look(v, members, step.health, now.Add(step.after))
		if got := l.sends("10.2.3.0/24"); got != step.want {
			t.Errorf("after %v: through %s, want %s", step.after, got, step.want)
		}
		if at := l.again(); step.health == nil && step.want == other && (at.IsZero() || at.Before(now.Add(step.after))) {
			t.Errorf("after %v: again %v", step.after, at)
		}
	}
}

// TestAGatewayThatIsAlone: it is left, and preferred again when it has not been alone for a while.
func TestAGatewayThatIsAlone(t *testing.T) {
	now := time.Unix(1000, 0)
	v, members := linkedView("a")
	l := linked{}.look(v, members, nil, now)
	first := l.sends("10.2.3.0/24")
	other := map[string]string{"b": "c", "c": "b"}[first]
	alone := map[string]topology.Health{"id-" + first: {Alone: true}}
	for _, step := range []struct {
		after  time.Duration
		health map[string]topology.Health
		want   string
	}{{1, alone, other}, {2, nil, other}, {2 + linkSteady, nil, first}} {
		l = l.look(v, members, step.health, now.Add(step.after))
		if got := l.sends("10.2.3.0/24"); got != step.want {
			t.Errorf("after %v: through %s, want %s", step.after, got, step.want)
		}
	}
	v, members = linkedView("b")
	down := map[string]topology.Health{"id-c": {Down: true}, "id-d": {Down: true}}
	l = linked{}.look(v, nil, nil, now)
	for _, step := range []struct {
		what   string
		after  time.Duration
		health map[string]topology.Health
		want   bool
	}{
		{"it does not know yet whom it reaches", 0, down, false}, {"all are there", 0, nil, false}, {"none is", 0, down, true},
		{"one is", time.Minute, map[string]topology.Health{"id-c": {Down: true}}, true},
		{"for a moment", time.Minute + linkSaid - 1, nil, true}, {"for longer", time.Minute + linkSaid, nil, false},
	} {
		l = l.look(v, members, step.health, now.Add(step.after))
		if l.alone.is != step.want {
			t.Errorf("%s: it is alone: %v", step.what, l.alone.is)
		}
		if at := l.again(); step.after >= time.Minute && step.want && !at.Equal(now.Add(time.Minute+linkSaid)) {
			t.Errorf("%s: again %v", step.what, at)
		}
	}
	v, members = linkedView("d") // and its own nodes leave it as others do
	l = linked{}.look(v, members, nil, now)
	first = l.sends("10.1.0.0/24")
	if l = l.look(v, members, map[string]topology.Health{"id-" + first: {Alone: true}}, now); l.sends("10.1.0.0/24") == first {
		t.Errorf("d sends through %s, which is alone", first)
	}
}

// TestWhoIsNewIsNotBack: what a node has not known when it began is not down, so that the first gateway that goes is
// waited for.
func TestWhoIsNewIsNotBack(t *testing.T) {
	now := time.Unix(1000, 0)
	v, members := linkedView("a")
	l := linked{}.look(v, nil, nil, now)
	l = l.look(v, members, nil, now.Add(time.Second))
	if at := l.again(); !at.IsZero() {
		t.Errorf("it waits for nodes that are new, until %v", at)
	}
	first := l.sends("10.2.3.0/24")
	other := map[string]string{"b": "c", "c": "b"}[first]
	l = l.look(v, members, map[string]topology.Health{"id-" + first: {Down: true}}, now.Add(2*time.Second))
	back := 2*linkSteady + 3*time.Second // the first look after a long time
	for _, step := range []struct {
		after time.Duration
		want  string
	}{{back, other}, {back + linkSteady - 1, other}, {back + linkSteady, first}} {
		l = l.look(v, members, nil, now.Add(step.after))
		if got := l.sends("10.2.3.0/24"); got != step.want {
			t.Errorf("%v after its start, and with %s back, it sends through %s, want %s", step.after, first, got, step.want)
		}
	}
}

func TestAGatewaySaysWhatItHasLost(t *testing.T) {
	now := time.Unix(1000, 0)
	v, members := linkedView("b")
	l := linked{}.look(v, members, nil, now)
	if l.away() != nil {
		t.Errorf("at first: %v", l.away())
	}
	l = l.look(v, members, map[string]topology.Health{"id-a": {Down: true}}, now)
	if !slices.Equal(l.away(), []string{"east"}) || l.sends("10.1.0.0/24") != "c" {
		t.Errorf("without a: %v, by %s", l.away(), l.sends("10.1.0.0/24"))
	}
	l = l.look(v, members, nil, now.Add(time.Second))
	if l.away() != nil || l.sends("10.1.0.0/24") != "a" {
		t.Errorf("a is back: %v, by %s", l.away(), l.sends("10.1.0.0/24"))
	}
	v, members = linkedView("d")
	l = linked{}.look(v, members, nil, now)
	first := l.sends("10.1.0.0/24")
	other := map[string]string{"b": "c", "c": "b"}[first]
	lost := &members[slices.IndexFunc(members, func(m member.Facts) bool { return m.Nodename == first })].Lost
	*lost = []string{"east"}
	if l = l.look(v, members, nil, now); l.sends("10.1.0.0/24") != other {
		t.Errorf("d sends by %s", l.sends("10.1.0.0/24"))
	}
	*lost = nil
	for _, step := range []struct {
		after time.Duration
		want  string
	}{{2 * linkSteady, other}, {3*linkSteady - 1, other}, {3 * linkSteady, first}} {
		l = l.look(v, members, nil, now.Add(step.after))
		if l.sends("10.1.0.0/24") != step.want || step.want == other && l.again().IsZero() {
			t.Errorf("after %v d sends by %s, again %v", step.after, l.sends("10.1.0.0/24"), l.again())
		}
	}
}

// TestOnlyTheOwnNodesAreKnownByName: a node of another cluster is a member by its key and its name, whatever it calls
// itself; and those with which there is no tunnel are no peers.
func TestOnlyTheOwnNodesAreKnownByName(t *testing.T) {
	v, members := linkedView("d")
	l := linked{}.look(v, members, nil, time.Unix(1000, 0))
	in := topology.Input{Members: members}
	l.give(&in)
	for _, m := range in.Members {
		if foreign := m.Nodename == ""; foreign != m.Key.IsZero() || foreign && len(m.Ranges) > 0 {
			t.Errorf("%s: key %v, ranges %v", m.Node, m.Key, m.Ranges)
		}
	}
	if len(in.Links.Linked) == 0 || len(in.Links.Direct) > 0 || len(in.Links.Passed) > 0 {
		t.Errorf("%+v", in.Links)
	}
}

// TestNoPeersWithoutAcceptedClusters: while no cluster is accepted, nodes of others are no peers, and nothing else is
// changed.
func TestNoPeersWithoutAcceptedClusters(t *testing.T) {
	v, members := linkedView("d")
	v.Clusters = nil
	l := linked{}.look(v, members, nil, time.Unix(1000, 0))
	in := topology.Input{Members: members}
	l.give(&in)
	for _, m := range in.Members {
		if foreign := m.Nodename == ""; foreign != m.Key.IsZero() || len(m.Ranges) > 0 {
			t.Errorf("%s: key %v, ranges %v", m.Node, m.Key, m.Ranges)
		}
	}
	if links := in.Links; len(links.Near)+len(links.Far)+len(links.Inside)+len(links.Linked) > 0 {
		t.Errorf("%+v", links)
	}
}

// TestTheMTUToOtherClusters: packets to them have at most what the own cluster says, and less where a way passes less.
func TestTheMTUToOtherClusters(t *testing.T) {
	for name, c := range map[string]struct {
		most        int
		self        string
		known, want map[string]int
	}{
		"no bound":             {0, "a", map[string]int{"b": 1380}, map[string]int{"b": 1380}},
		"nothing is found out": {1300, "a", nil, map[string]int{"b": 1300, "c": 1300, "d": 1300}},
		"more is found out":    {1300, "a", map[string]int{"b": 1380, "c": 1300, "d": 1290}, map[string]int{"b": 1300, "c": 1300, "d": 1290}},
		"the own nodes":        {1300, "b", map[string]int{"c": 1380}, map[string]int{"a": 1300, "c": 1380}},
	} {
		v, members := linkedView(c.self)
		v.MTU = c.most
		health := map[string]topology.Health{}
		for id, mtu := range c.known {
			health["id-"+id] = topology.Health{MTU: mtu}
		}
		before := maps.Clone(health)
		in := topology.Input{Members: members, Health: health}
		linked{}.look(v, members, health, time.Unix(1000, 0)).give(&in)
		got := map[string]int{}
		for id, h := range in.Health {
			got[id[len("id-"):]] = h.MTU
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if !reflect.DeepEqual(health, before) {
			t.Errorf("%s: what others read has become %v", name, health)
		}
	}
}
