// SPDX-License-Identifier: Apache-2.0

package route

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/route/mapping"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func configured(t *testing.T, ranges ...v1alpha1.RouteRange) Config {
	t.Helper()
	c := Configure(v1alpha1.RouteConfig{Clusters: []v1alpha1.RouteCluster{
		{Name: "c1", Hubs: []string{"h1:8443", "h2:8443", "h3:8443"}, Certificate: "/c1.pem", Ranges: ranges},
	}}, func(path, format string, args ...any) { t.Errorf(path+": "+format, args...) })
	return c
}

// TestPlan: the plan is complete, and what a killed process left is no difference.
func TestPlan(t *testing.T) {
	c := configured(t, v1alpha1.RouteRange{Range: "10.244.0.0/16", As: "240.1.0.0/16"}, v1alpha1.RouteRange{Range: "fd00:10::/64"})
	want := strings.TrimLeft(`
add route unreachable 240.1.0.0/16 table 181 metric 4278198273
add route unreachable fd00:10::/64 table 181 metric 4278198273
add rule ipv4 priority 32510 mark 0x0/0x0 table 181
add rule ipv6 priority 32510 mark 0x0/0x0 table 181
add link tombolo-route mtu 65520 up
add address 192.0.0.8/32 dev tombolo-route
add address fd74:6f6d:626f::8/128 dev tombolo-route
add route 240.1.0.0/16 dev tombolo-route table 181 metric 1
add route fd00:10::/64 dev tombolo-route table 181 metric 1
`, "\n")
	steps := plan.Diff(plan.State{}, c.want())
	if got := plan.Print(steps); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	state := plan.State{}
	for _, s := range steps {
		var err error
		if state, err = state.With(s); err != nil {
			t.Fatal(s, err)
		}
	}
	if again := plan.Diff(state, c.want()); len(again) > 0 {
		t.Errorf("twice:\n%s", plan.Print(again))
	}
	killed, err := state.With(plan.Step{Verb: plan.Remove, On: plan.Link{Name: c.Link}}) // its link goes with it
	if err != nil {
		t.Fatal(err)
	}
	if len(killed.Routes) != 2 || killed.Routes[0].Link != "" {
		t.Errorf("after a kill nothing refuses what was routed: %v", killed.Routes)
	}
	for _, s := range plan.Diff(killed, c.want()) {
		if s.Verb != plan.Add || strings.Contains(s.String(), "unreachable") || strings.Contains(s.String(), "rule") {
			t.Errorf("the next start makes again what is there: %s", s)
		}
	}
}

// TestCovered: a range must not cover what this machine needs, by its addresses here.
func TestCovered(t *testing.T) {
	c := configured(t, v1alpha1.RouteRange{Range: "10.244.0.0/24", As: "203.0.113.0/24"}, v1alpha1.RouteRange{Range: "10.96.0.0/12"})
	at := func(what, a string) place { return place{what, netip.MustParseAddr(a)} }
	out := covered(c.Table, []place{
		at("the hub h1:8443", "203.0.113.9"), at("a resolver of this machine", "10.96.0.10"), at("another one", "10.244.0.9"),
		own("eth0", netip.MustParseAddr("198.51.100.1")),
	})
	if len(out) != 2 || out[0].What != "the range 203.0.113.0/24 covers the hub h1:8443, which is 203.0.113.9" ||
		out[1].What != "the range 10.96.0.0/12 covers a resolver of this machine, which is 10.96.0.10" ||
		!strings.Contains(out[0].Next, "--map 10.244.0.0/24=RANGE") {
		t.Error(out)
	}
}

// fakeHub answers as it is told.
type fakeHub struct {
	code  fault.Code // empty: a stream
	asked *[]string
	name  string
	waits bool // for the end of its time
}

func (h fakeHub) Connect(ctx context.Context, _, _ string) (net.Conn, error) {
	*h.asked = append(*h.asked, h.name)
	if h.waits {
		<-ctx.Done()
		return nil, fault.New(fault.CodeDialTimeout, "no answer").Because(ctx.Err())
	}
	if h.code != "" {
		return nil, fault.New(h.code, "no")
	}
	near, far := net.Pipe()
	far.Close()
	return near, nil
}

func (h fakeHub) Ping(ctx context.Context) error {
	conn, err := h.Connect(ctx, "", "")
	if err == nil {
		conn.Close()
	}
	return err
}

// TestHubsStandIn: what another hub may do is asked of another, an answer about the target is final.
func TestHubsStandIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // whoever is silent costs no time
		for _, c := range []struct {
			name string
			hubs []fakeHub
			code fault.Code
			want string
			then string // of a second dial
		}{
			{"the first", []fakeHub{{}, {}, {}}, "", "1", "1"},
			{"the first is away", []fakeHub{{code: fault.CodeHubAway}, {}, {}}, "", "1 2", "2"},
			{"the first has no agent", []fakeHub{{code: fault.CodeNoAgent}, {}, {}}, "", "1 2", "1 2"},
			{"the first drains, the second is away", []fakeHub{{code: fault.CodeDraining}, {code: fault.CodeHubAway}, {}},
				"", "1 2 3", "1 3"},
			{"the first is silent", []fakeHub{{waits: true}, {}, {}}, "", "1 2", "2"},
			{"denied", []fakeHub{{code: fault.CodePolicyDenied}, {}, {}}, fault.CodePolicyDenied, "1", "1"},
			{"refused", []fakeHub{{code: fault.CodeDialRefused}, {}, {}}, fault.CodeDialRefused, "1", "1"},
			{"all are away", []fakeHub{{code: fault.CodeHubAway}, {code: fault.CodeHubAway}, {code: fault.CodeHubAway}},
				fault.CodeHubAway, "1 2 3", "1 2 3"},
		} {
			now := time.Unix(1000, 0)
			var asked []string
			d := newDoor(Cluster{"c1", []string{"h1:1", "h2:1", "h3:1"}, "/none"}, mapping.Table{},
				func() time.Time { return now }, func(error) {})
			d.leaf = &tls.Certificate{}
			for i, h := range c.hubs {
				h.asked, h.name = &asked, string(rune('1'+i))
				d.openers = append(d.openers, h)
			}
			for _, want := range []string{c.want, c.then} {
				asked = nil
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				conn, err := d.open(ctx, "tcp", "10.0.0.1:80")
				cancel()
				if conn != nil {
					conn.Close()
				}
				if c.code == "" && err != nil || c.code != "" && !fault.Has(err, c.code) || strings.Join(asked, " ") != want {
					t.Errorf("%s: asked %v, want %s: %v", c.name, asked, want, err)
				}
			}
			now = now.Add(hubPauseMost)
			asked = nil
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if conn, err := d.open(ctx, "tcp", "10.0.0.1:80"); err == nil {
				conn.Close()
			}
			cancel()
			if len(asked) == 0 || asked[0] != "1" {
				t.Errorf("%s: after the pause: asked %v", c.name, asked)
			}
		}
	})
}

func TestCounts(t *testing.T) {
	c, l := newCounts(), Reloadable{Connections: 3, PerSource: 2}
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for _, who := range []netip.Addr{a, a} {
		if f := c.enter(l, who, "c1"); f != nil {
			t.Fatal(f)
		}
	}
	if f := c.enter(l, a, "c1"); f == nil || f.Code != fault.CodeLimit || !strings.Contains(f.Next, "perSource") {
		t.Error(f)
	}
	if f := c.enter(l, b, "c2"); f != nil {
		t.Error(f)
	}
	if f := c.enter(l, b, "c2"); f == nil || !strings.Contains(f.Next, "limits.connections") {
		t.Error(f)
	}
	if c.total() != 3 || c.of("c1") != 2 || c.of("c2") != 1 {
		t.Error(c.total(), c.of("c1"), c.of("c2"))
	}
	c.leave(a, "c1")
	c.leave(a, "c1")
	c.leave(b, "c2")
	if c.total() != 0 || len(c.sources) != 0 || c.of("c1") != 0 {
		t.Error(c)
	}
}

func TestResolvers(t *testing.T) {
	if got := resolvers("testdata/resolv.conf", "testdata/none"); len(got) != 2 || got[0].at.String() != "10.96.0.10" || got[1].at.String() != "fd00::53" {
		t.Error(got)
	}
}
