// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/kube"
	"github.com/tombolo-io/tombolo/internal/base/kube/kubetest"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/link/reach"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func keyOf(n byte) string { return member.Key{n}.String() }

func nodeJSON(cluster, node string, key byte) string {
	return fmt.Sprintf(`{"metadata":{"name":"%s.%s","generation":3},"spec":{"clusterName":%q,"nodeName":%q,"podCIDRs":["10.1.0.0/24"],
		"ip":"192.168.0.7","elasticIP":"203.0.113.9","endpoints":["192.168.0.7:51821","198.51.100.1:4242"],"roles":["gateway"],
		"publicKey":%q,"pin":"AwAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA","engine":"ipsec","mesh":1},"status":{"nodeStatus":"Ready"}}`, cluster, node, cluster, node, keyOf(key))
}

func TestReadNode(t *testing.T) {
	n, err := readNode(json.RawMessage(nodeJSON("west", "n1", 7)), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if n.String() != "west.n1" || !n.Gateway || !n.Ready || n.Key != (member.Key{7}) || fmt.Sprint(n.Pods) != "[10.1.0.0/24]" {
		t.Errorf("%+v", n)
	}
	said, f := n.said, n.said.Facts
	var at []string
	for _, e := range f.Endpoints {
		at = append(at, e.Addr.String())
	}
	if f.Pin != (member.Pin{3}) || f.Engine != member.IPsec || f.Node != "west.n1" || f.Nodename != "" || len(f.Ranges) > 0 || said.Source.Tier != roster.TierLinked ||
		strings.Join(at, " ") != "203.0.113.9:51821 192.168.0.7:51821 198.51.100.1:4242" {
		t.Errorf("%+v, endpoints %v", f, at)
	}
	copied := strings.Replace(nodeJSON("west", "n1", 7), `"generation"`,
		`"creationTimestamp":"2026-02-02T00:00:00Z","annotations":{"tombolo.dev/created":"2026-01-01T00:00:00Z"},"generation"`, 1)
	for text, want := range map[string]int64{copied: 1767225600, strings.Replace(copied, "2026-01-01T", "", 1): 1769990400} {
		if n, err := readNode(compact[nodeObject](json.RawMessage(text)), time.Now()); err != nil || n.created.Unix() != want {
			t.Errorf("%s was there since %v: %v", text, n.created, err)
		}
	}
	for order, want := range map[string]uint64{"12345": 12345, "": 0, "-1": 0, "1.5": 0} {
		text := strings.Replace(copied, `"annotations":{`, `"annotations":{"tombolo.dev/order":"`+order+`","tombolo.dev/doubled":"m",`, 1)
		n, err := readNode(compact[nodeObject](json.RawMessage(text)), time.Now())
		if c := n.claim("own"); err != nil || c.Order != want || c.Own || c.Accepted || c.Marked != "m" || c.Created.Unix() != 1767225600 {
			t.Errorf("order %q: %+v, %v", order, c, err)
		}
	}
	for name, bad := range map[string]string{
		"no JSON":            "{",
		"another name":       strings.Replace(nodeJSON("west", "n1", 7), `"west.n1"`, `"east.n1"`, 1),
		"host bits":          strings.Replace(nodeJSON("west", "n1", 7), "10.1.0.0/24", "10.1.0.1/24", 1),
		"no key":             strings.Replace(nodeJSON("west", "n1", 7), keyOf(7), "abc", 1),
		"no pin":             strings.Replace(nodeJSON("west", "n1", 7), `"pin":"Aw`, `"pin":"w`, 1),
		"no engine":          strings.Replace(nodeJSON("west", "n1", 7), `"ipsec"`, `"auto"`, 1),
		"no endpoint":        strings.Replace(nodeJSON("west", "n1", 7), "198.51.100.1:4242", "198.51.100.1", 1),
		"no version of mesh": strings.Replace(nodeJSON("west", "n1", 7), `"mesh":1`, `"mesh":-1`, 1),
	} {
		if n, err := readNode(json.RawMessage(bad), time.Now()); err == nil {
			t.Errorf("%s: it is read as %+v", name, n)
		}
	}
}

func TestElasticAddress(t *testing.T) {
	spec := v1alpha1.ClusterNodeSpec{ElasticIP: "203.0.113.9"}
	if got := endpoints(spec); !slices.Equal(got, []string{"203.0.113.9:51820"}) {
		t.Errorf("without endpoints: %v", got)
	}
	spec.ElasticIP, spec.Endpoints = "", []string{"192.0.2.1:1"}
	if got := endpoints(spec); !slices.Equal(got, spec.Endpoints) {
		t.Errorf("without an elastic address: %v", got)
	}
}

// acceptedJSON is a Cluster whose range the host cluster has accepted.
func acceptedJSON(spec string) string {
	return `{"spec":` + spec + `,"status":{"conditions":[{"type":"RangesAccepted","status":"True"}],"accepted":["10.1.0.0/16"],
		"podCIDRs":[{"cidr":"10.1.0.0/16"}]}}`
}

// named gives an object a name.
func named(name, object string) string {
	return `{"metadata":{"name":"` + name + `"},` + strings.TrimPrefix(object, "{")
}

func TestReadCluster(t *testing.T) {
	const good = `{"metadata":{"name":"west"},"spec":{"networkType":"gateway","clusterPodCIDRs":["10.1.0.0/16"],
		"globalCIDRsMap":{"10.1.0.0/16":"240.1.0.0/16"}},
		"status":{"mapped":[{"cidr":"10.1.0.0/16","as":"240.1.0.0/16"}],"conditions":[{"type":"RangesAccepted","status":"True"}],"accepted":["240.0.0.0/13","10.1.0.0/16","fd01::/48","10.96.0.0/16"],
		"podCIDRs":[{"cidr":"10.1.0.0/16"},{"cidr":"fd01::/48"}],"serviceCIDRs":[{"cidr":"10.96.0.0/16"}]}}`
	for name, c := range map[string]struct{ from, to, want string }{
		"as it is":     {"", "", "true [10.1.0.0/16 fd01::/48] [10.96.0.0/16] [10.1.0.0/16 of cluster west as 240.1.0.0/16]"},
		"p2p":          {"gateway", "p2p", "false [10.1.0.0/16 fd01::/48] [10.96.0.0/16] [10.1.0.0/16 of cluster west as 240.1.0.0/16]"},
		"IPv6 alone":   {`"networkType"`, `"ipFamily":"ipv6","networkType"`, "true [fd01::/48] [] [10.1.0.0/16 of cluster west as 240.1.0.0/16]"},
		"refused":      {`"status":"True"`, `"status":"False","message":"east has them"`, "east has them"},
		"not judged":   {`"RangesAccepted"`, `"Ready"`, "not accepted its ranges yet"},
		"no name":      {`"west"`, `""`, "has no name"},
		"one accepted": {`"fd01::/48","10.96.0.0/16"]`, `"240.1.0.0/16"]`, "true [10.1.0.0/16] [] ["},
		"a mapping that is newer than what was accepted": {`:"240.1.0.0/16"}`, `:"240.9.0.0/16"}`,
			"true [10.1.0.0/16 fd01::/48] [10.96.0.0/16] [10.1.0.0/16 of cluster west as 240.1.0.0/16]"},
		"one more that is newer": {`"globalCIDRsMap":{`, `"globalCIDRsMap":{"10.96.0.0/16":"240.2.0.0/16","10.1.0.0/17":"240.3.0.0/17",`,
			"true [10.1.0.0/16 fd01::/48] [10.96.0.0/16] [10.1.0.0/16 of cluster west as 240.1.0.0/16]"},
		"unmapped since": {`"10.1.0.0/16":"240.1.0.0/16"`, ``,
			"true [10.1.0.0/16 fd01::/48] [10.96.0.0/16] [10.1.0.0/16 of cluster west as 240.1.0.0/16]"},
		"not mapped yet":                  {`"mapped":[{"cidr":"10.1.0.0/16","as":"240.1.0.0/16"}],`, ``, "true [10.1.0.0/16 fd01::/48] [10.96.0.0/16] []"},
		"mapped to what was not accepted": {`"as":"240.1.0.0/16"`, `"as":"240.9.0.0/16"`, "true [fd01::/48] [10.96.0.0/16] ["},
		"another size":                    {`"as":"240.1.0.0/16"`, `"as":"240.1.0.0/24"`, "smaller"},
		"no range":                        {`"cidr":"10.96.0.0/16"`, `"cidr":"10.96.0.0"`, "no CIDR"},
	} {
		got, err := readCluster(json.RawMessage(strings.Replace(good, c.from, c.to, 1)))
		text := fmt.Sprint(got.Gateway, got.Pods, got.Services, got.Mapped)
		if err != nil {
			text = err.Error()
		}
		if !strings.Contains(text, c.want) {
			t.Errorf("%s: %s, want %s", name, text, c.want)
		}
	}
}

// TestRead: of two nodes of different clusters with one key the later one does not count, and it is said.
func TestRead(t *testing.T) {
	later := strings.Replace(nodeJSON("a", "x", 7), `"generation"`, `"creationTimestamp":"2026-01-01T00:00:00Z","generation"`, 1)
	v, problems := Read(nil, []json.RawMessage{[]byte(later), []byte(nodeJSON("west", "n1", 7)), []byte(nodeJSON("west", "n2", 8))})
	const why = "it has the key of node n1 of cluster west, which was there before"
	if len(v.Nodes) != 3 || v.Nodes[0].Doubled != why || v.Nodes[1].Doubled != "" || v.Nodes[2].Doubled != "" ||
		len(problems) != 1 || !strings.Contains(problems[0], `"a.x" does not count`) || !strings.Contains(problems[0], why) {
		t.Errorf("%+v, %q", v.Nodes, problems)
	}
}

func TestWithin(t *testing.T) {
	prefix := func(texts ...string) (out []netip.Prefix) {
		for _, s := range texts {
			out = append(out, netip.MustParsePrefix(s))
		}
		return out
	}
	got := within(prefix("10.1.2.0/24", "10.0.0.0/8", "8.8.8.0/24", "fd01::/64", "10.1.0.0/16"), prefix("10.1.0.0/16", "fd01::/48"))
	if fmt.Sprint(got) != "[10.1.2.0/24 fd01::/64 10.1.0.0/16]" {
		t.Errorf("%v", got)
	}
}

func FuzzObjects(f *testing.F) {
	f.Add([]byte(nodeJSON("west", "n1", 7)))
	f.Add([]byte(`{"metadata":{"name":"west"},"spec":{"globalCIDRsMap":{"10.1.0.0/16":"240.1.0.0/16"}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		_, _ = readNode(text, time.Time{})
		_, _ = readCluster(text)
	})
}

// TestAPartIsSettledOnceItsNodesAreTold: what comes while changes are gathered is neither told nor seen yet.
func TestAPartIsSettledOnceItsNodesAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(Options{
			Log: slog.New(slog.DiscardHandler), Self: reach.Name{Cluster: "east", Node: "a"}, Changed: func() {},
		})
		var told atomic.Int64 // members
		var before atomic.Bool
		g := run.NewGroup(t.Context())
		g.Go("linked clusters", func(ctx context.Context) error {
			return f.follow(ctx, func(now []roster.Said) {
				if told.Load() == 0 && f.Status()[1].Settled {
					before.Store(true)
				}
				told.Store(int64(len(now)))
			})
		})
		is := func(what string, clusters, nodes bool, members int64) {
			t.Helper()
			synctest.Wait()
			if s, whole := f.Status(), f.View().Whole; s[0].Settled != clusters || s[1].Settled != nodes ||
				whole != (clusters && nodes) || told.Load() != members {
				t.Errorf("%s: %+v, told %d, the view is whole: %v", what, s, told.Load(), whole)
			}
		}
		raw := func(text string) json.RawMessage { return json.RawMessage(text) }
		is("at the start", false, false, 0)
		f.clusters.Whole(map[string]json.RawMessage{
			"/east": raw(named("east", acceptedJSON(`{}`))), "/west": raw(named("west", acceptedJSON(`{}`)))}, false)
		is("the clusters are known", true, false, 0)
		f.nodes.Whole(map[string]json.RawMessage{"/west.b": raw(nodeJSON("west", "b", 2))}, false)
		is("the nodes wait", true, false, 0)
		time.Sleep(gather)
		is("they are told", true, true, 1)
		if before.Load() {
			t.Error("it was settled before the receiver had the nodes")
		}
		g.Stop()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
}

// TestFederation: what the API server has is followed; what another cluster says of a node of this one does not count;
// and a start while the API server is away knows what was known.
func TestFederation(t *testing.T) {
	api, dir := kubetest.New(t), t.TempDir()
	changed := make(chan struct{}, 100)
	make := func() *Federation {
		return New(Options{Log: slog.New(slog.DiscardHandler), Self: reach.Name{Cluster: "east", Node: "a"}, StateDir: dir,
			Client: func() *kube.Client { return api.Client(t, "a") }, Server: "kubeconfig",
			Changed: func() {
				select {
				case changed <- struct{}{}:
				default:
				}
			}})
	}
	api.Put(kubetest.Clusters, "east", acceptedJSON(`{"mtu":1300,"nics":[{"interface":"eth0"},{"nodes":["a"],"reach":"192.0.2.1"}]}`))
	api.Put(kubetest.Clusters, "west", acceptedJSON(`{"networkType":"gateway","mtu":1290}`))
	api.Put(kubetest.ClusterNodes, "east.a", nodeJSON("east", "a", 1))
	api.Put(kubetest.ClusterNodes, "west.b", nodeJSON("west", "b", 2))
	f := make()
	var said []roster.Said
	g := run.NewGroup(context.Background())
	heard := func(s []roster.Said) { f.mu.Lock(); said = s; f.mu.Unlock() }
	g.Go("federation", func(ctx context.Context) error { return f.Run(ctx, heard) })
	names := func() string {
		f.mu.Lock()
		defer f.mu.Unlock()
		var out []string
		for _, c := range f.view.Clusters {
			out = append(out, c.Name)
		}
		for _, n := range f.view.Nodes {
			out = append(out, n.String())
		}
		out = append(out, "said")
		for _, s := range said {
			out = append(out, s.Facts.Node)
		}
		return strings.Join(out, " ")
	}
	until := func(want string) {
		t.Helper()
		limit := time.After(20 * time.Second)
		for names() != want {
			select {
			case <-changed:
			case <-time.After(20 * time.Millisecond): // the receiver hears before what it has heard is seen
			case <-limit:
				t.Fatalf("%s, want %s", names(), want)
			}
		}
	}
	until("east west east.a west.b said west.b")
	api.Put(kubetest.ClusterNodes, "west.c", nodeJSON("west", "c", 1)) // the key of a
	api.Put(kubetest.ClusterNodes, "west.d", nodeJSON("west", "d", 4))
	until("east west east.a west.b west.c west.d said west.b west.d")
	if s := f.Status()[1]; s.Junk != 1 || !strings.Contains(s.Warning, "west.c") {
		t.Errorf("the status says %+v", s)
	}
	// North has the key of west.b, and was there later.
	api.Put(kubetest.Clusters, "north", acceptedJSON(`{}`))
	api.Put(kubetest.ClusterNodes, "north.e", strings.Replace(nodeJSON("north", "e", 2), `"generation"`, `"creationTimestamp":"2026-01-01T00:00:00Z","generation"`, 1))
	until("east north west east.a north.e west.b west.c west.d said west.b west.d")
	if s, v := f.Status()[1], f.View(); v.Nodes[1].Doubled == "" || v.Nodes[2].Doubled != "" || s.Junk != 2 || !strings.Contains(s.Warning, "north.e") {
		t.Errorf("the status says %+v", s)
	}
	// A placeholder of west is no peer, and keeps its address: north.f claims it, and was there later.
	api.Put(kubetest.ClusterNodes, "west.p", `{"metadata":{"name":"west.p","creationTimestamp":"2026-01-01T00:00:00Z"},
		"spec":{"clusterName":"west","nodeName":"p","overlay6":"fd00::9"}}`)
	api.Put(kubetest.ClusterNodes, "north.f", strings.Replace(strings.Replace(nodeJSON("north", "f", 9), `"generation"`,
		`"creationTimestamp":"2026-01-02T00:00:00Z","generation"`, 1), `"mesh":1`, `"mesh":1,"overlay6":"fd00::9"`, 1))
	until("east north west east.a north.e north.f west.b west.c west.d said west.b west.d")
	api.Delete(kubetest.ClusterNodes, "west.p")
	until("east north west east.a north.e north.f west.b west.c west.d said north.f west.b west.d")
	api.Delete(kubetest.ClusterNodes, "north.f")
	api.Delete(kubetest.Clusters, "north")
	api.Delete(kubetest.ClusterNodes, "north.e")
	api.Put(kubetest.ClusterNodes, "west.c", `{"spec":{"clusterName":"west","nodeName":"c","podCIDRs":["x"]}}`)
	api.Delete(kubetest.ClusterNodes, "west.d")
	until("east west east.a west.b said west.b")
	g.Stop()
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	api.Away(true)
	again := make()
	if v := again.View(); len(v.Clusters) != 2 || len(v.Nodes) != 2 || len(again.said) != 1 || v.MTU != 1300 || v.NIC.Reach != "192.0.2.1" {
		t.Errorf("after a start without the API server: %+v", v)
	}
	for _, damage := range []string{"", "{", `{"clusters":[]}`} {
		if err := os.WriteFile(filepath.Join(dir, "linked.json"), []byte(damage), 0o600); err != nil {
			t.Fatal(err)
		}
		if v := make().View(); len(v.Clusters) != 2 || len(v.Nodes) != 2 {
			t.Errorf("with %q in place of what was kept: %+v", damage, v)
		}
	}
}
