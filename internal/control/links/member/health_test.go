// SPDX-License-Identifier: Apache-2.0

package member

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/link/report"
	"github.com/tombolo-io/tombolo/internal/link/share"
)

// nodeConfig has a tunnel for each word, PEER=STATE.
func nodeConfig(name, version string, tunnels ...string) *objects.NodeConfig {
	o := &objects.NodeConfig{}
	o.Name, o.UID, o.ResourceVersion = name, "u", version
	for _, word := range tunnels {
		peer, state, _ := strings.Cut(word, "=")
		o.Status.Tunnels = append(o.Status.Tunnels, objects.TunnelStatus{Peer: peer, State: state, Engine: "wireguard",
			Reason: "no answer to 7 pings"})
	}
	return o
}

func TestHealth(t *testing.T) {
	now := time.Unix(10_000, 0)
	well := nodeConfig("a.x", "1", "b.1=up", "b.2=relayed", "b.3=unused")
	well.Status.MoreTunnels = 2
	for name, c := range map[string]struct {
		of   *objects.NodeConfig
		node string
		want string
	}{
		"no report":    {nil, objects.NodeReady, "  []"},
		"all are well": {well, objects.NodeReady, "5/5 wireguard [True InForce packets pass through every tunnel, of 5]"},
		"none":         {nodeConfig("a.x", "1"), objects.NodeReady, "0/0  [True InForce the node has no tunnels to other clusters]"},
		"one is down":  {nodeConfig("a.x", "1", "b.1=up", "b.2=down"), objects.NodeReady, "1/2 wireguard [False TunnelDown no packet passes to b.2; status.tunnels of the NodeConfig says why]"},
		"many are":     {nodeConfig("a.x", "1", "b.5=down", "b.4=down", "b.3=down", "b.2=down", "b.1=down"), objects.NodeReady, "0/5 wireguard [False TunnelDown no packet passes to b.1, b.2, b.3 and 2 more; status.tunnels of the NodeConfig says why]"},
		"it is not there": {nodeConfig("a.x", "1", "b.1=down"), objects.NodeNotReady,
			"0/1 wireguard [Unknown Silent the Node is not ready: what it has reported may be old]"},
	} {
		var h health
		if c.of != nil {
			h = healthOf(c.of)
		}
		s := objects.ClusterNodeStatus{NodeStatus: c.node}
		h.into(&s, nil, v1alpha1.LinkAuto, now)
		var conditions []string
		for _, x := range s.Conditions {
			conditions = append(conditions, fmt.Sprint(x.Status, " ", x.Reason, " ", x.Message))
		}
		if got := fmt.Sprint(s.Tunnels, " ", s.Engine, " ", conditions); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		later := objects.ClusterNodeStatus{NodeStatus: c.node}
		h.into(&later, s.Conditions, v1alpha1.LinkAuto, now.Add(time.Hour))
		if fmt.Sprint(later) != fmt.Sprint(s) {
			t.Errorf("%s: later it is %+v", name, later)
		}
	}
	for _, c := range [][3]string{{"", "wireguard", "is auto"}, {v1alpha1.LinkAuto, "ipsec", "is auto"},
		{v1alpha1.LinkIPsec, "ipsec,wireguard", "nodes that do not run it"}, {v1alpha1.LinkAuto, "ipsec,wireguard", "nodes that do not run it"},
		{v1alpha1.LinkWireGuard, "wireguard", "is wireguard"}, {v1alpha1.LinkWireGuard, "ipsec", "says otherwise"},
		{v1alpha1.LinkIPsec, "ipsec", "is ipsec"}, {v1alpha1.LinkIPsec, "wireguard", "says otherwise"}} {
		if got := engineReason(c[0], c[1]); !strings.Contains(got, c[2]) {
			t.Errorf("%q with %q: %s", c[0], c[1], got)
		}
	}
}

// TestMoreTunnels: the worst tunnels are listed, so the others are down as well only if all of those are.
func TestMoreTunnels(t *testing.T) {
	for _, c := range []struct {
		tunnels []string
		up      int
	}{{[]string{"b.1=down", "c.1=down"}, 0}, {[]string{"b.1=down", "c.1=up"}, 6}, {nil, 5}} {
		of := nodeConfig("a.x", "1", c.tunnels...)
		of.Status.MoreTunnels = 5
		if h := healthOf(of); h.up != c.up || h.up+h.down != h.all {
			t.Errorf("%v and 5 more: %+v, want %d up", c.tunnels, h, c.up)
		}
	}
}

// TestCutOff: a node is cut off if it has tunnels, and packets pass through none of them.
func TestCutOff(t *testing.T) {
	for _, c := range []struct {
		what        string
		tunnels     []string
		cut, passes bool
	}{
		{"no tunnels", nil, false, false}, {"all down", []string{"b.1=down", "c.1=down"}, true, false},
		{"one cluster is reached", []string{"b.1=down", "c.1=up"}, false, true},
		{"by a relay", []string{"b.1=relayed"}, false, true},
		{"nobody has tried", []string{"b.1=down", "c.1=unused"}, false, false},
	} {
		f := share.Facts{Nodes: []share.Node{{Name: "x"}, {Name: "y"}}}
		told(&f, "a", map[string]health{"a.x": healthOf(nodeConfig("a.x", "1", c.tunnels...))})
		if x, y := f.Nodes[0], f.Nodes[1]; x.Cut != c.cut || x.Passes != c.passes || y.Cut || y.Passes {
			t.Errorf("%s: %+v, and one that reports nothing %+v", c.what, x, y)
		}
	}
}

// TestToldNIC: what a node has found of its interface is what its cluster states, by way of its NodeConfig.
func TestToldNIC(t *testing.T) {
	for name, c := range map[string]struct {
		found *report.NIC
		want  string
	}{
		"nothing":   {nil, "192.168.0.1 [192.168.0.1:1 10.9.0.1:1] true"},
		"found":     {&report.NIC{Interface: "eth1", Addresses: []netip.Addr{netip.MustParseAddr("10.9.0.1")}}, "10.9.0.1 [10.9.0.1:1] true"},
		"not found": {&report.NIC{Reason: "it has none"}, "192.168.0.1 [192.168.0.1:1 10.9.0.1:1] false"},
	} {
		text, err := json.Marshal(report.Has(report.Facts{NIC: c.found}, report.Status{}, 1, time.Unix(1000, 0)))
		if err != nil {
			t.Fatal(err)
		}
		of := nodeConfig("a.x", "1")
		if err := json.Unmarshal(text, &of.Status); err != nil {
			t.Fatal(err)
		}
		f := share.Facts{Cluster: "a", Nodes: []share.Node{{Name: "x", Addresses: []netip.Addr{netip.MustParseAddr("192.168.0.1")}}},
			Excludes: func(map[string]string) bool { return false },
			Members: map[string]v1alpha1.MemberSpec{"x": {Addresses: []string{"192.168.0.1", "10.9.0.1"},
				Endpoints: []string{"192.168.0.1:1", "10.9.0.1:1"}}}}
		f.Spec.NICs = []v1alpha1.ClusterNIC{{Interface: "eth1"}}
		told(&f, "a", map[string]health{"a.x": healthOf(of)})
		s := share.Decide(f)
		if got := fmt.Sprint(s.Nodes[0].IP, " ", s.Nodes[0].Endpoints, " ", !strings.Contains(s.Message, "node x: it has none")); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if again := healthOf(of); !again.equal(healthOf(of)) || again.equal(health{reported: true}) != (c.found == nil) {
			t.Errorf("%s: %+v", name, again)
		}
	}
}

// TestStatedTunnels: what is said about tunnels is bounded in its rate, and comes along with whatever else is written.
func TestStatedTunnels(t *testing.T) {
	now := time.Unix(10_000, 0)
	by := telling{cluster: "a", heard: map[string]time.Time{}, told: map[string]time.Time{}}
	there := nothing()
	var s share.Shared
	for i := range 6 {
		name := fmt.Sprintf("x%d", i)
		there.put("a", name, "h", false)
		s.Nodes = append(s.Nodes, share.Stated{Ready: true, ClusterNodeSpec: v1alpha1.ClusterNodeSpec{ClusterName: "a", NodeName: name}})
		by.heard["a."+name] = now
		there.nodes["a."+name].Status = objects.ClusterNodeStatus{NodeStatus: objects.NodeReady, Tunnels: "1/1"}
	}
	is := func(what, want string, soon time.Duration) []change {
		t.Helper()
		changes, again := stated(by, s, there, now)
		if got := said(changes); got != want || again != soon {
			t.Errorf("%s: %q and again after %v, want %q after %v", what, got, again, want, soon)
		}
		return changes
	}
	is("nothing is known of tunnels yet", "", 0)
	by.health = map[string]health{}
	for i := range 6 {
		by.health[fmt.Sprintf("a.x%d", i)] = healthOf(nodeConfig("", "1", "b.1=up", "b.2=up"))
	}
	const four = "ClusterNode a.x0 status, ClusterNode a.x1 status, ClusterNode a.x2 status, ClusterNode a.x3 status"
	for _, c := range is("all report something new", four, time.Second) {
		by.told[c.name] = now
		there.nodes[c.name].Status = c.status.(objects.ClusterNodeStatus)
	}
	now = now.Add(time.Second)
	for _, c := range is("the rest a second later", "ClusterNode a.x4 status, ClusterNode a.x5 status", 0) {
		by.told[c.name] = now
		there.nodes[c.name].Status = c.status.(objects.ClusterNodeStatus)
	}
	by.health["a.x0"] = healthOf(nodeConfig("", "2", "b.1=up", "b.2=down"))
	is("one of six that was told a second ago", "", 5*time.Second)
	now = now.Add(5 * time.Second)
	is("and when it is due", "ClusterNode a.x0 status", 0)
	by.told["a.x0"] = now
	s.Nodes[0].Ready = false
	if c := is("whatever else is written", "ClusterNode a.x0 status", 0); c[0].status.(objects.ClusterNodeStatus).Tunnels != "1/2" {
		t.Errorf("%+v", c)
	}
	if every := reportEvery(600); every != 10*time.Minute {
		t.Errorf("600 nodes are reported every %v", every)
	}
}

// TestCopiedTunnels: of another cluster's node they come along; of an own one they are copied.
func TestCopiedTunnels(t *testing.T) {
	there, own := nothing().put("a", "x", "h", false), nothing().put("a", "x", "o", true)
	there.nodes["a.x"].Status.Tunnels = "1/2"
	if got := said(copied(there, own, "a")); got != "ClusterNode a.x status" {
		t.Errorf("an own node: %q", got)
	}
	if got := said(copied(there, own, "b")); got != "" {
		t.Errorf("another's: %q", got)
	}
	there.nodes["a.x"].Status.NodeStatus = objects.NodeReady
	got := copied(there, own, "b")
	if said(got) != "ClusterNode a.x status" || got[0].status.(objects.ClusterNodeStatus).Tunnels != "1/2" {
		t.Errorf("with more: %+v", got)
	}
}

func TestDue(t *testing.T) {
	now := time.Unix(10_000, 0)
	own := map[string]*objects.NodeConfig{}
	may, was := map[string]types.UID{}, map[string]sent{}
	is := func(what, want string, soon time.Duration) {
		t.Helper()
		changes, again := due(own, may, was, now)
		var out []string
		for _, c := range changes {
			word := c.name
			switch {
			case c.gone:
				word += " gone"
			case c.owner == nil || c.owner.UID != may[c.name] || c.labels[labelManagedBy] != managedBy:
				t.Errorf("%s: %+v", what, c)
			}
			out = append(out, word)
			was[c.name] = sent{at: now}
			if of := own[c.name]; of != nil && !c.gone {
				was[c.name] = sent{versionOf(of), now}
			} else {
				delete(was, c.name)
			}
		}
		if got := strings.Join(out, ", "); got != want || again != soon {
			t.Errorf("%s: %q and again after %v, want %q after %v", what, got, again, want, soon)
		}
	}
	is("nothing", "", 0)
	own["a.x"] = nodeConfig("a.x", "1")
	is("a node that the host cluster does not know", "", 0)
	may["a.x"] = "h"
	is("it does", "a.x", 0)
	is("it is as it is", "", 0)
	own["a.x"] = nodeConfig("a.x", "2")
	now = now.Add(500 * time.Millisecond)
	is("too early", "", 1500*time.Millisecond)
	now = now.Add(1500 * time.Millisecond)
	is("in time", "a.x", 0)
	for i := range 6 {
		name := fmt.Sprintf("a.y%d", i)
		own[name], may[name] = nodeConfig(name, "1"), "h"
	}
	is("many", "a.y0, a.y1, a.y2, a.y3", time.Second)
	is("the rest", "a.y4, a.y5", 0)
	delete(own, "a.y0")
	is("one is removed here", "a.y0 gone", 0)
	delete(may, "a.y1")
	is("a node is not the cluster's any longer", "a.y1 gone", 0)
	clear(may)
	is("nor the cluster linked", "a.x gone, a.y2 gone, a.y3 gone, a.y4 gone", time.Second)
	was["a.z"] = sent{}
	may["a.z"] = "h"
	is("what an earlier run left goes", "a.z gone, a.y5 gone", 0)
}

// TestShort: the copies of a large federation together have a bounded size, and what is down is in them.
func TestShort(t *testing.T) {
	if entries(1) < 2048 || entries(10_000) != 13 || entries(1_000_000) != 8 {
		t.Errorf("%d, %d and %d entries", entries(1), entries(10_000), entries(1_000_000))
	}
	full := nodeConfig("a.x", "1")
	full.Spec.More = &v1alpha1.NodeConfigMore{Peers: 5}
	for i := range 512 {
		p := v1alpha1.PlannedPeer{Name: strings.Repeat("n", 120), PublicKey: strings.Repeat("k", 44)}
		for range 100 {
			p.Ranges = append(p.Ranges, "10.100.100.0/24")
		}
		full.Spec.Peers = append(full.Spec.Peers, p)
		full.Spec.Routes = append(full.Spec.Routes, v1alpha1.PlannedRoute{CIDR: "10.100.100.0/24", Interface: "tombolo0", Table: 180})
		full.Status.Tunnels = append(full.Status.Tunnels, objects.TunnelStatus{Peer: fmt.Sprintf("b.%03d", i), State: objects.TunnelUp})
	}
	full.Status.Tunnels[500].State = objects.TunnelDown
	spec, status := shortSpec(full.Spec, 13), shortStatus(full.Status, 13)
	if len(spec.Peers) != 13 || spec.More.Peers != 5+499 || len(spec.Routes) != 13 || spec.More.Routes != 499 ||
		len(spec.Peers[0].Ranges) != 13 || spec.Peers[0].MoreRanges != 87 {
		t.Errorf("%+v", spec)
	}
	if len(status.Tunnels) != 13 || status.MoreTunnels != 499 || status.Tunnels[12].Peer != "b.500" {
		t.Errorf("%+v", status)
	}
	text, err := json.Marshal([]any{spec, status})
	if err != nil || len(text) > 10<<10 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	if full.Spec.More.Peers != 5 || len(full.Spec.Peers[0].Ranges) != 100 || full.Status.Tunnels[0].Peer != "b.000" {
		t.Error("the object itself is changed")
	}
	if same := shortSpec(full.Spec, 2048); len(same.Peers) != 512 || same.More.Peers != 5 || same.Peers[0].MoreRanges != 0 {
		t.Errorf("%+v", same.More)
	}
}
