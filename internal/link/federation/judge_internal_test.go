// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/link/reach"
)

// clusterJSON is a Cluster that states ranges of pods and Services, accepted for some.
func clusterJSON(name, pods, services, mapped string, accepted ...string) string {
	held, _ := json.Marshal(accepted)
	status := "True"
	if len(accepted) == 0 {
		status = "False"
	}
	return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{},"status":{"conditions":[{"type":"RangesAccepted","status":%q}],
		"accepted":%s,"mapped":[%s],"podCIDRs":[{"cidr":%q}],"serviceCIDRs":[{"cidr":%q}]}}`, name, status, held, mapped, pods, services)
}

// meshNodeJSON is a ClusterNode with further fields.
func meshNodeJSON(cluster, node string, key byte, more string) string {
	return fmt.Sprintf(`{"metadata":{"name":"%s.%s"},"spec":{"clusterName":%q,"nodeName":%q,"publicKey":%q,"mesh":1,%s}}`, cluster,
		node, cluster, node, keyOf(key), more)
}

// guarded is what node east.a knows of: east and west as they are accepted, north, which is mapped, and south, which is
// refused.
func guarded(eastAccepted bool, nodes ...string) *Federation {
	f := New(Options{Log: slog.New(slog.DiscardHandler), Self: reach.Name{Cluster: "east", Node: "a"}})
	var held []string
	if eastAccepted {
		held = []string{"10.1.0.0/16", "10.101.0.0/16"}
	}
	clusters := map[string]json.RawMessage{}
	for name, text := range map[string]string{
		"east":  clusterJSON("east", "10.1.0.0/16", "10.101.0.0/16", "", held...),
		"west":  clusterJSON("west", "10.2.0.0/16", "10.102.0.0/16", "", "10.2.0.0/16", "10.102.0.0/16"),
		"north": clusterJSON("north", "10.9.0.0/16", "10.109.0.0/16", `{"cidr":"10.9.0.0/16","as":"240.9.0.0/16"}`, "10.9.0.0/16", "10.109.0.0/16", "240.9.0.0/16"),
		"south": clusterJSON("south", "10.4.0.0/16", "10.104.0.0/16", ""),
	} {
		clusters["/"+name] = json.RawMessage(text)
	}
	objects := map[string]json.RawMessage{"/east.a": json.RawMessage(meshNodeJSON("east", "a", 1, `"overlay4":"10.2.9.9","podCIDRs":["fd01::/64"]`))}
	for _, text := range nodes {
		n, err := readNode(json.RawMessage(text), f.clusters.contact)
		if err != nil {
			panic(err)
		}
		objects["/"+n.String()] = json.RawMessage(text)
	}
	f.clusters.Whole(clusters, false)
	f.nodes.Whole(objects, false)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.decideLocked()
	return f
}

// TestAddressesInRanges: a node of another cluster whose address in the mesh would come before a range of somebody else
// does not count, also while the own cluster is not accepted; the own nodes count here whatever they have.
func TestAddressesInRanges(t *testing.T) {
	for address, want := range map[string]string{
		`"overlay4":"100.112.0.7"`: "",
		`"overlay4":"10.2.3.4"`:    "", // of its own cluster
		`"overlay4":"10.4.3.4"`:    "", // nobody's: south is refused
		`"overlay4":"10.1.3.4"`:    "its address 10.1.3.4 in the mesh is in 10.1.0.0/16 of this cluster",
		`"overlay4":"10.101.0.1"`:  "its address 10.101.0.1 in the mesh is in 10.101.0.0/16 of this cluster",
		`"overlay6":"fd01::7"`:     "its address fd01::7 in the mesh is in fd01::/64 of this cluster",
		`"overlay4":"10.9.3.4"`:    "its address 10.9.3.4 in the mesh is in 10.9.0.0/16 of cluster north",
		`"overlay4":"240.9.0.4"`:   "its address 240.9.0.4 in the mesh is in 240.9.0.0/16 of cluster north",
		`"overlay4":"10.109.0.1"`:  "its address 10.109.0.1 in the mesh is in 10.109.0.0/16 of cluster north",
	} {
		for _, accepted := range []bool{true, false} {
			f := guarded(accepted, meshNodeJSON("west", "b", 2, address))
			if n := f.view.Nodes[1]; n.Doubled != want || len(f.said) > 0 != (want == "") || len(f.clashes) > 0 != (want != "") {
				t.Errorf("%s, accepted %v: %q, %d count, want %q", address, accepted, n.Doubled, len(f.said), want)
			}
			if f.view.Nodes[0].Doubled != "" {
				t.Errorf("the own node: %s", f.view.Nodes[0].Doubled)
			}
		}
	}
	// It keeps nobody out of its key, and who looks from outside sees the same.
	bad, good := meshNodeJSON("west", "b", 2, `"overlay4":"10.9.3.4"`), meshNodeJSON("north", "c", 2, `"overlay4":"100.112.0.7"`)
	good = strings.Replace(good, `{"name"`, `{"creationTimestamp":"2026-01-01T00:00:00Z","name"`, 1)
	if f := guarded(true, bad, good); len(f.said) != 1 || f.said[0].Facts.Node != "north.c" {
		t.Errorf("%+v", f.view.Nodes)
	}
	v, problems := Read([]json.RawMessage{[]byte(clusterJSON("north", "10.9.0.0/16", "10.109.0.0/16", "", "10.9.0.0/16"))},
		[]json.RawMessage{[]byte(bad), []byte(good)})
	if v.Nodes[0].Doubled == "" || v.Nodes[1].Doubled != "" || len(problems) != 1 || !strings.Contains(problems[0], "10.9.0.0/16 of cluster north") {
		t.Errorf("%+v, %q", v.Nodes, problems)
	}
}

// TestEndpointsInRanges: endpoints and elastic addresses of a node of another cluster that lie within ranges of others,
// as they are reached from here, are left out, and all of a node whose cluster is not accepted or that does not count.
func TestEndpointsInRanges(t *testing.T) {
	for text, want := range map[string]string{
		`"endpoints":["192.0.2.1:1","10.1.3.4:1","[fd01::7]:1","[2001:db8::1]:1","10.101.0.1:1"]`: "192.0.2.1:1 [2001:db8::1]:1",
		`"endpoints":["10.2.3.4:1","10.4.3.4:1"]`:                                                 "10.2.3.4:1 10.4.3.4:1",  // its own, and nobody's
		`"endpoints":["240.9.0.4:1","10.9.3.4:1","192.0.2.1:1"]`:                                  "10.9.3.4:1 192.0.2.1:1", // north is reached by 240.9.0.0/16
		`"endpoints":["192.0.2.1:1"],"ip":"192.0.2.1","elasticIP":"10.1.3.4"`:                     "192.0.2.1:1",
		`"endpoints":["192.0.2.1:1"],"ip":"192.0.2.1","elasticIP":"203.0.113.9"`:                  "203.0.113.9:1 192.0.2.1:1",
		`"endpoints":["192.0.2.1:1"],"overlay4":"10.9.3.4"`:                                       "none",
	} {
		for cluster, accepted := range map[string]bool{"west": true, "south": false, "nowhere": false} {
			want := want
			if !accepted {
				want = "none"
			}
			f := guarded(true, meshNodeJSON(cluster, "b", 2, text))
			at := []string{"none"}
			for _, s := range f.said {
				at = nil
				for _, e := range s.Facts.Endpoints {
					at = append(at, e.Addr.String())
				}
			}
			if got := strings.Join(at, " "); got != want {
				t.Errorf("%s of %s: %s, want %s", text, cluster, got, want)
			}
		}
	}
}
