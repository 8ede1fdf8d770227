// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/mesh/nat"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

func ranges(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

// TestRangesOfPods: what Kubernetes has of a Node is announced if it can be one of pods here, and
// each other range is a problem that says why.
func TestRangesOfPods(t *testing.T) {
	many := make([]string, limit.PodRanges+1)
	for i := range many {
		many[i] = fmt.Sprintf("10.244.%d.0/24", i)
	}
	var full []netip.Prefix
	for i := range limit.DiscoveryFacts {
		full = append(full, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(i), 0}), 24))
	}
	for name, c := range map[string]struct {
		texts  []string
		change func(*podInput)
		want   []netip.Prefix
		why    []string // of each problem, in their order
	}{
		"none":                      {nil, nil, nil, nil},
		"both families, sorted":     {[]string{"fd00:244::/64", "10.244.3.0/24"}, nil, ranges("10.244.3.0/24", "fd00:244::/64"), nil},
		"one twice":                 {[]string{"10.244.3.0/24", "10.244.3.0/24"}, nil, ranges("10.244.3.0/24"), nil},
		"all there is":              {[]string{"0.0.0.0/0", "::/0"}, nil, nil, []string{"it is the default route", "it is the default route"}},
		"half of all there is":      {[]string{"0.0.0.0/1", "128.0.0.0/1"}, nil, nil, []string{"this network", "link-local"}},
		"mapped":                    {[]string{"::ffff:10.244.3.0/120"}, nil, nil, []string{`"::ffff:10.244.3.0/120" of its Node is no range`}},
		"host bits":                 {[]string{"10.244.3.1/24"}, nil, nil, []string{`"10.244.3.1/24" of its Node is no range`}},
		"not to be read":            {[]string{"", "x\n/24", "10.244.3.0", "10.244.3.0/33", "fd00::%eth0/64"}, nil, nil, []string{`""`, `"x\n/24"`, "no range", "no range", "no range"}},
		"loopback":                  {[]string{"127.0.0.0/8"}, nil, nil, []string{"loopback"}},
		"a good one beside bad":     {[]string{"0.0.0.0/0", "10.244.3.0/24", "?"}, nil, ranges("10.244.3.0/24"), []string{"default route", "no range"}},
		"of the internet":           {[]string{"203.0.113.0/24"}, nil, nil, []string{"outside of mesh.accept"}},
		"of the internet, accepted": {[]string{"203.0.113.0/24"}, func(in *podInput) { in.accept = ranges("203.0.0.0/16") }, ranges("203.0.113.0/24"), nil},
		"wider than what is accepted": {[]string{"10.0.0.0/8"}, func(in *podInput) { in.accept = ranges("10.0.0.0/16") }, nil,
			[]string{"outside of mesh.accept"}},
		"over this machine":    {[]string{"192.168.1.0/24"}, nil, nil, []string{"it covers 192.168.1.5, an address of this machine"}},
		"over the gateway":     {[]string{"192.168.2.0/24"}, nil, nil, []string{"it covers 192.168.2.1, a default gateway"}},
		"over the mesh itself": {[]string{"100.112.3.0/24", "fd7f::/16"}, nil, nil, []string{"its own addresses in 100.112.0.0/12", "its own addresses in fd7f:"}},
		"stated too":           {[]string{"10.1.0.0/24"}, func(in *podInput) { in.stated = full }, ranges("10.1.0.0/24"), nil},
		"no room":              {[]string{"10.244.3.0/24"}, func(in *podInput) { in.stated = full }, nil, []string{"at most 256"}},
		"excluded":             {[]string{"10.244.3.0/24"}, func(in *podInput) { in.excluded = ranges("10.244.0.0/16") }, nil, nil},
		"excluded in two":      {[]string{"10.244.3.0/24"}, func(in *podInput) { in.excluded = ranges("10.244.3.0/25", "10.244.3.128/25") }, nil, nil},
		"a part is excluded":   {[]string{"10.244.3.0/24"}, func(in *podInput) { in.excluded = ranges("10.244.3.0/25") }, ranges("10.244.3.0/24"), nil},
		"more than are taken":  {many, nil, ranges(many[:limit.PodRanges]...), []string{"more than 8 ranges"}},
		"lost": {[]string{"10.244.3.0/24", "10.244.4.0/24"}, func(in *podInput) { in.lost = []lost{{"10.244.3.0/24", "b", ranges("10.244.3.0/24")[0]}} }, ranges("10.244.4.0/24"),
			[]string{"member b announces 10.244.3.0/24"}},
	} {
		in := podInput{
			texts: c.texts, accept: topology.DefaultAccept(), overlay: append(ranges("fd7f:175a:b97c:5602::/64", "100.112.0.0/12"), netip.Prefix{}),
			places: []place{{netip.MustParseAddr("192.168.1.5"), "an address of this machine"}, {netip.MustParseAddr("192.168.2.1"), "a default gateway"}},
		}
		if c.change != nil {
			c.change(&in)
		}
		got, problems := judgePods(in)
		if !slices.Equal(got, c.want) || len(problems) != len(c.why) {
			t.Errorf("%s: %v, want %v; %+v", name, got, c.want, problems)
			continue
		}
		for i, why := range c.why {
			if !strings.Contains(problems[i].Why, why) || problems[i].Kind == "" {
				t.Errorf("%s: %+v does not say %q", name, problems[i], why)
			}
		}
	}
}

func TestPlacesOfAMachine(t *testing.T) {
	at := func(link, p string) nat.Address {
		return nat.Address{Interface: link, Prefix: netip.MustParsePrefix(p), Up: true}
	}
	all := []nat.Address{at("eth0", "192.168.1.5/24"), at("cni0", "10.244.3.1/24"), at("tombolo0", "100.112.0.1/32"), at("br7", "10.244.4.1/24")}
	local := topology.Local{Gateways: []netip.Addr{netip.MustParseAddr("192.168.1.1")}, Resolvers: []netip.Addr{netip.MustParseAddr("10.9.9.9")}}
	for name, c := range map[string]struct {
		without []string
		want    string
	}{
		"as usual":          {nil, "192.168.1.5 10.244.4.1 192.168.1.1 10.9.9.9"},
		"another list":      {[]string{"br*"}, "192.168.1.5 10.244.3.1 192.168.1.1 10.9.9.9"},
		"all are looked at": {[]string{}, "192.168.1.5 10.244.3.1 10.244.4.1 192.168.1.1 10.9.9.9"},
	} {
		var got []string
		for _, p := range placesOf(all, c.without, "tombolo0", local) {
			got = append(got, p.addr.String())
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
	}
}

// TestRangesThatAreLost: another member that announces the same or a part of it may have been assigned
// it; a gateway with a wider one, this node as it was, and who is stale have not.
func TestRangesThatAreLost(t *testing.T) {
	member := func(node, nodename string, stale bool, of ...string) *roster.Member {
		return &roster.Member{Stale: stale, Facts: member.Facts{Node: node, Nodename: nodename, Ranges: ranges(of...)}}
	}
	for name, c := range map[string]struct {
		member *roster.Member
		lost   bool
	}{
		"the same":     {member("b", "kb", false, "10.244.3.0/24"), true},
		"a part":       {member("b", "kb", false, "10.9.0.0/16", "10.244.3.128/25"), true},
		"a wider one":  {member("b", "kb", false, "10.244.0.0/16"), false},
		"another one":  {member("b", "kb", false, "10.244.4.0/24"), false},
		"who is stale": {member("b", "kb", true, "10.244.3.0/24"), false},
		"our name":     {member("a", "", false, "10.244.3.0/24"), false},
		"our Node":     {member("machine-a", "ka", false, "10.244.3.0/24"), false},
	} {
		got := lostTo([]string{"10.244.3.0/24", "?"}, "a", "ka", map[string]*roster.Member{"1": c.member})
		if (len(got) == 1 && got[0].node == c.member.Node && got[0].text == "10.244.3.0/24") != c.lost || len(got) > 1 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestAnnouncedWithTheirSources(t *testing.T) {
	got, err := json.Marshal(announcedOf(ranges("10.1.0.0/24", "10.244.3.0/24"), ranges("10.244.3.0/24", "fd00::/64")))
	want := `[{"range":"10.1.0.0/24","sources":["configuration"]},{"range":"10.244.3.0/24","sources":["configuration","kubernetes"]},{"range":"fd00::/64","sources":["kubernetes"]}]`
	if err != nil || string(got) != want {
		t.Errorf("%s (%v)", got, err)
	}
}

func TestWarningsAboutRangesOfPods(t *testing.T) {
	now := time.Now()
	of := []string{"10.244.3.0/24"}
	for name, c := range map[string]struct {
		said assigned
		want string
	}{
		"not wanted":       {assigned{}, ""},
		"not known":        {assigned{Node: "ka"}, "not known yet"},
		"no Node":          {assigned{Node: "ka", Said: now}, `no Node "ka"`},
		"no ranges":        {assigned{Node: "ka", UID: "u", Said: now}, "--allocate-node-cidrs"},
		"all is well":      {assigned{Node: "ka", UID: "u", Ranges: of, Said: now}, ""},
		"a short outage":   {assigned{Node: "ka", UID: "u", Ranges: of, Said: now.Add(-podRangeLease)}, ""},
		"a longer outage":  {assigned{Node: "ka", UID: "u", Ranges: of, Said: now.Add(-time.Hour)}, "for 1h0m0s: 10.244.3.0/24 stay announced"},
		"a clock set back": {assigned{Node: "ka", UID: "u", Ranges: of, Said: now.Add(time.Hour)}, "stay announced"},
	} {
		if got := podWarning(c.said, now); got != c.want && (c.want == "" || !strings.Contains(got, c.want)) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func FuzzKeptPods(f *testing.F) {
	f.Add([]byte(`{"node":"ka","uid":"u","ranges":["10.244.3.0/24"],"said":"2026-01-02T03:04:05Z"}`))
	f.Add([]byte(`{"node":"ka","ranges":["0.0.0.0/0"],"said":"2026-01-02T03:04:05Z"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		a, _ := parsePods(text, "ka")
		if a.Node != "ka" || len(a.Ranges) > 0 && (a.UID == "" || a.Said.IsZero()) || len(a.Ranges) > limit.PodRanges+1 {
			t.Fatalf("%+v", a)
		}
		out, _ := judgePods(podInput{texts: a.Ranges, accept: topology.DefaultAccept()})
		for _, p := range out {
			if topology.Never(p) != "" {
				t.Fatalf("%s is announced", p)
			}
		}
	})
}

// TestANodeWithPods announces what Kubernetes says, follows it, and keeps it over a restart for the
// same Node. What is not said for long is given up to who announces it, until it is said again.
func TestANodeWithPods(t *testing.T) {
	dir := t.TempDir()
	of := func(node string) func(*Config) {
		return func(c *Config) { c.PodsOf, c.Announce.Ranges = node, ranges("10.1.0.0/24") }
	}
	m, k := newRoom(t, dir, of("ka"))
	look := func(members ...roster.Member) effects {
		r := seen(m, k, roster.Result{Members: members})
		return turn(m, r, time.Now())
	}
	announces := func(when string, want ...string) {
		t.Helper()
		if got := m.state.Load().member().Ranges; !slices.Equal(got, ranges(want...)) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	look()
	announces("before", "10.1.0.0/24")
	m.OwnNode("u1", nil)
	look()
	announces("a Node without ranges", "10.1.0.0/24")
	m.OwnNode("u1", []string{"10.244.3.0/24", "0.0.0.0/0"})
	if do := look(); do.say == nil || do.pods == nil || !slices.Contains(do.plan.Self.Ranges, ranges("10.244.3.0/24")[0]) {
		t.Errorf("ranges: %+v", do)
	}
	announces("ranges", "10.1.0.0/24", "10.244.3.0/24")
	m.OwnNode("u1", []string{"10.244.3.0/24", "0.0.0.0/0"})
	if do := look(); do.say != nil || do.pods != nil || len(do.log) > 0 {
		t.Errorf("the same again: %+v", do)
	}
	announces("the same again", "10.1.0.0/24", "10.244.3.0/24")
	if s := m.Status(); len(s.Announced) != 2 || len(s.Problems) != 1 || s.Problems[0].Node != "a" || !strings.Contains(s.Problems[0].Why, "default route") || len(s.Warnings) != 0 {
		t.Errorf("the status: %+v %+v %q", s.Announced, s.Problems, s.Warnings)
	}
	if p := m.state.Load().pods; p.count("announced") != 1 || p.count("refused") != 1 {
		t.Errorf("%v are announced, %v refused", p.ranges, p.problems)
	}

	m, k = newRoom(t, dir, of("kb")) // another Node
	look()
	announces("of another Node", "10.1.0.0/24")
	m, k = newRoom(t, dir, of("ka"))
	look()
	announces("after a restart", "10.1.0.0/24", "10.244.3.0/24")
	other := roster.Member{Facts: member.Facts{ID: "b", Node: "b", Ranges: ranges("10.244.3.0/24")}}
	look(other)
	look(other)
	announces("beside another", "10.1.0.0/24", "10.244.3.0/24")
	become(m, func(s *state) { s.pods.said.Said = time.Now().Add(-podRangeLease - time.Minute) })
	look(other)
	announces("an hour later", "10.1.0.0/24")
	look()
	look()
	announces("it is not taken back", "10.1.0.0/24")
	m.OwnNode("u1", []string{"10.244.3.0/24"})
	look()
	announces("it is said again", "10.1.0.0/24", "10.244.3.0/24")
	m.OwnNode("", nil)
	look()
	announces("the Node is gone", "10.1.0.0/24")
	m, k = newRoom(t, dir, of("ka"))
	look()
	announces("after a restart without a Node", "10.1.0.0/24")
	m.OwnNode("u2", []string{"10.244.7.0/24"})
	look()
	announces("another Node of the name", "10.1.0.0/24", "10.244.7.0/24")
	m, k = newRoom(t, dir, of(""))
	m.OwnNode("u2", []string{"10.244.7.0/24"})
	look()
	announces("not wanted", "10.1.0.0/24")
	if _, err := os.Stat(filepath.Join(dir, podsFile)); !os.IsNotExist(err) {
		t.Errorf("what nobody wants is kept: %v", err)
	}
}
