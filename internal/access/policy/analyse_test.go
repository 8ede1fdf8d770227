// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/internal/access/policy"
)

const lists = `lists:
- {name: l, ranges: [10.0.0.0/16, 10.2.0.0/16, 10.4.4.4]}
- {name: part, ranges: [10.0.0.0/16, 10.4.4.4]}
`

func TestRulesThatChangeNothing(t *testing.T) {
	for name, c := range map[string]struct {
		rules []string
		want  []string // the warnings; "" in front of none
	}{
		"a range within one that is denied":              {[]string{"name: a, allow: [10.1.0.0/16]", "name: d, deny: [10.0.0.0/8]"}, []string{"rules[0]: rule a never counts: deny rule d covers it"}},
		"whatever the order":                             {[]string{"name: d, deny: [10.0.0.0/8]", "name: a, allow: [10.1.0.0/16]"}, []string{"rules[1]: rule a never counts: deny rule d covers it"}},
		"a range beside it":                              {[]string{"name: a, allow: [10.1.0.0/16, 11.0.0.0/8]", "name: d, deny: [10.0.0.0/8]"}, nil},
		"a wider range":                                  {[]string{"name: a, allow: [0.0.0.0/0]", "name: d, deny: [10.0.0.0/8]"}, nil},
		"everything is denied":                           {[]string{"name: a, allow: [\"*:80\", a.b, \"*.c\", 10.0.0.0/8]", "name: d, deny: [\"*\"]"}, []string{"rules[0]: rule a never counts: deny rule d covers it"}},
		"other ports are denied":                         {[]string{"name: a, allow: [\"10.1.0.0/16:443\"]", "name: d, deny: [\"10.0.0.0/8:1-442\"]"}, nil},
		"its ports are denied":                           {[]string{"name: a, allow: [\"10.1.0.0/16:443,8000-8010\"]", "name: d, deny: [\"10.0.0.0/8:443,8000-9000\"]"}, []string{"rules[0]: rule a never counts: deny rule d covers it"}},
		"every port as a range":                          {[]string{"name: a, allow: [10.1.0.0/16]", "name: d, deny: [\"10.0.0.0/8:1-65535\"]"}, []string{"rules[0]: rule a never counts: deny rule d covers it"}},
		"a name below what is denied":                    {[]string{"name: a, allow: [x.b.example]", "name: d, deny: [\"*.example\"]"}, []string{"rules[0]: rule a never counts: deny rule d covers it"}},
		"the apex of what is denied":                     {[]string{"name: a, allow: [example]", "name: d, deny: [\"*.example\"]"}, nil},
		"a name in another case, with a final dot":       {[]string{"name: a, allow: [x.example]", "name: d, deny: [X.Example.]"}, []string{"rules[0]: rule a never counts: deny rule d covers it"}},
		"a name and a range":                             {[]string{"name: a, allow: [x.example]", "name: d, deny: [0.0.0.0/0, \"::/0\"]"}, nil},
		"one cluster of those denied":                    {[]string{"name: a, clusters: [c1], allow: [10.0.0.1]", "name: d, clusters: [c2, c1], deny: [10.0.0.1]"}, []string{"rules[0]: rule a never counts: deny rule d covers it"}},
		"a cluster beside those denied":                  {[]string{"name: a, clusters: [c1, c3], allow: [10.0.0.1]", "name: d, clusters: [c2, c1], deny: [10.0.0.1]"}, nil},
		"a pattern within a pattern":                     {[]string{"name: a, clusters: [ab*], allow: [10.0.0.1]", "name: d, clusters: [a*], deny: [10.0.0.1]"}, []string{"rules[0]: rule a never counts: deny rule d covers it"}},
		"a pattern about a pattern":                      {[]string{"name: a, clusters: [a*], allow: [10.0.0.1]", "name: d, clusters: [ab*], deny: [10.0.0.1]"}, nil},
		"any caller, and every caller":                   {[]string{"name: a, allow: [10.0.0.1]", "name: d, callers: [\"*\"], deny: [10.0.0.1]"}, []string{"rules[0]: rule a never counts: deny rule d covers it"}},
		"any caller, and one that is denied":             {[]string{"name: a, allow: [10.0.0.1]", "name: d, callers: [x], deny: [10.0.0.1]"}, nil},
		"an egress type that is denied":                  {[]string{"name: a, egress: [etcd], allow: [10.0.0.1]", "name: d, egress: [etcd, cluster], deny: [10.0.0.1]"}, []string{"rules[0]: rule a never counts: deny rule d covers it"}},
		"sources within those denied":                    {[]string{"name: a, sources: [10.1.0.0/16], allow: [\"*\"]", "name: d, sources: [10.0.0.0/8], deny: [\"*\"]"}, []string{"rules[0]: rule a never counts: deny rule d covers it"}},
		"sources beyond those denied":                    {[]string{"name: a, sources: [10.0.0.0/8], allow: [\"*\"]", "name: d, sources: [10.1.0.0/16], deny: [\"*\"]"}, nil},
		"any source, and some that are denied":           {[]string{"name: a, allow: [\"*\"]", "name: d, sources: [10.0.0.0/8], deny: [\"*\"]"}, nil},
		"sources of a list":                              {[]string{"name: a, sources: [\"@part\"], allow: [\"*\"]", "name: d, sources: [\"@l\"], deny: [\"*\"]"}, []string{"rules[0]: rule a never counts: deny rule d covers it"}},
		"users within those denied":                      {[]string{"name: a, uids: [1], allow: [\"*\"]", "name: d, uids: [2, 1], deny: [\"*\"]"}, []string{"rules[0]: rule a never counts: deny rule d covers it"}},
		"any user, and one that is denied":               {[]string{"name: a, allow: [\"*\"]", "name: d, uids: [2, 1], deny: [\"*\"]"}, nil},
		"a list that is denied":                          {[]string{"name: a, allow: [\"@l:443\"]", "name: d, deny: [\"@l\"]"}, []string{"rules[0]: rule a never counts: deny rule d covers it"}},
		"a list of which a part is denied":               {[]string{"name: a, allow: [\"@l:443\"]", "name: d, deny: [\"@part\"]"}, nil},
		"a list within a range that is denied":           {[]string{"name: a, allow: [\"@l:443\"]", "name: d, deny: [10.0.0.0/8]"}, []string{"rules[0]: rule a never counts: deny rule d covers it"}},
		"two equal rules: the later one":                 {[]string{"name: a, allow: [10.0.0.0/8]", "name: b, allow: [10.0.0.0/8]"}, []string{"rules[1]: rule b is redundant: rule a covers it"}},
		"three equal rules: the later ones":              {[]string{"name: a, deny: [\"*\"]", "name: b, deny: [\"*\"]", "name: c, deny: [\"*\"]"}, []string{"rules[1]: rule b is redundant: rule a covers it", "rules[2]: rule c is redundant: rule a covers it"}},
		"the narrower of two, if it stands first":        {[]string{"name: a, allow: [\"10.1.0.0/16:80-90\"]", "name: b, allow: [10.0.0.0/8]"}, []string{"rules[0]: rule a is redundant: rule b covers it"}},
		"a deny rule within another one":                 {[]string{"name: a, deny: [10.1.0.1]", "name: b, deny: [10.0.0.0/8]"}, []string{"rules[0]: rule a is redundant: rule b covers it"}},
		"a deny rule within an allow rule":               {[]string{"name: a, deny: [10.1.0.1]", "name: b, allow: [10.0.0.0/8]"}, nil},
		"loopback beside everything: it opens it":        {[]string{"name: a, allow: [127.0.0.0/8]", "name: b, allow: [\"*\", 0.0.0.0/0]"}, nil},
		"metadata beside its link: it opens it":          {[]string{"name: a, allow: [169.254.169.254]", "name: b, allow: [169.254.0.0/16]"}, nil},
		"metadata through NAT64: it opens it":            {[]string{"name: a, allow: [\"64:ff9b::a9fe:a9fe\"]", "name: b, allow: [\"64:ff9b::/96\"]"}, nil},
		"a loopback address within its range":            {[]string{"name: a, allow: [127.1.0.0/16]", "name: b, allow: [127.0.0.0/8]"}, []string{"rules[0]: rule a is redundant: rule b covers it"}},
		"special addresses that are denied":              {[]string{"name: a, allow: [127.0.0.1]", "name: b, deny: [0.0.0.0/0]"}, []string{"rules[0]: rule a never counts: deny rule b covers it"}},
		"an exact port, which opens an own listener":     {[]string{"name: a, allow: [\"10.0.0.1:8445\"]", "name: b, allow: [10.0.0.0/8]"}, nil},
		"the same exact port":                            {[]string{"name: a, allow: [\"10.0.0.1:8445\"]", "name: b, allow: [\"10.0.0.1:8445,8446\"]"}, []string{"rules[0]: rule a is redundant: rule b covers it"}},
		"shadowed and redundant: shadowed is what is it": {[]string{"name: a, allow: [10.0.0.0/8]", "name: b, allow: [10.0.0.0/8]", "name: d, deny: [\"*\"]"}, []string{"rules[0]: rule a never counts: deny rule d covers it", "rules[1]: rule b never counts: deny rule d covers it"}},
		"two rules that only together cover":             {[]string{"name: a, allow: [10.0.0.0/8]", "name: b, allow: [10.0.0.0/9]", "name: c, allow: [10.128.0.0/9]"}, []string{"rules[1]: rule b is redundant: rule a covers it", "rules[2]: rule c is redundant: rule a covers it"}},
	} {
		t.Run(name, func(t *testing.T) {
			text := lists + "rules:\n- {name: uses, clusters: [none], egress: [none], callers: [none], allow: [\"@l:1\", \"@part:1\", 99.0.0.1]}\n"
			for _, r := range c.rules {
				text += "- {" + r + "}\n"
			}
			p, findings := policy.Read("p.yaml", []byte(head+text), nil)
			if p == nil {
				t.Fatal(findings)
			}
			var got []string
			for i, f := range findings {
				if !strings.HasPrefix(f.Path, "rules[0]") { // what keeps the lists in use
					got = append(got, strings.Replace(fmt.Sprintf("%s: %s", f.Path, f.Message), f.Path, renumbered(f.Path), 1))
				}
				if !f.Warning || i > 0 && f.Line == 0 {
					t.Errorf("%+v", f)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// renumbered is the path of a rule without the one that stands before it.
func renumbered(path string) string {
	var i int
	fmt.Sscanf(path, "rules[%d]", &i)
	return fmt.Sprintf("rules[%d]", i-1)
}

func drawAnalysed(t *rapid.T, i int) policy.Rule {
	return policy.Rule{
		Name:    fmt.Sprintf("r%d", i),
		Deny:    rapid.IntRange(0, 2).Draw(t, "deny") == 0,
		Cluster: someOf(t, "clusters", "c1", "c2", "c*"),
		Caller:  someOf(t, "callers", "unix:c1/connect", "unix:*", "*"),
		Source:  someOf(t, "sources", "203.0.113.0/24", "203.0.113.7/32", "2001:db8::/32", "@from"),
		UID:     rapid.SampledFrom([][]uint32{nil, nil, {1}, {1, 2}, {3}}).Draw(t, "users"),
		Destination: rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"10.0.0.0/8", "10.1.0.0/16:443", "10.1.2.3/32:443", "10.1.2.3:1-443",
			"*", "*:443", "a.example", "*.example:443", "*.b.example", "0.0.0.0/0", "127.0.0.0/8", "127.0.0.1:443", "127.0.0.1", "169.254.0.0/16",
			"169.254.169.254", "169.254.169.254:443", "64:ff9b::/96", "64:ff9b::7f00:1", "64:ff9b::a01:203", "::/0", "@to", "@to:443"}), 1, 3, rapid.ID[string]).Draw(t, "destinations"),
	}
}

func drawAsked(t *rapid.T) policy.Request {
	q := policy.Request{
		Cluster: rapid.SampledFrom([]string{"c1", "c2", "d2"}).Draw(t, "cluster"),
		Caller:  rapid.SampledFrom([]string{"unix:c1/connect", "unix:c2/connect", ""}).Draw(t, "caller"),
		Flow:    policy.FlowDial,
		Name:    rapid.SampledFrom([]string{"", "a.example", "x.b.example", "other"}).Draw(t, "name"),
		Port:    rapid.SampledFrom([]uint16{443, 80}).Draw(t, "port"),
		Local:   rapid.Bool().Draw(t, "local"),
		UID:     rapid.Uint32Range(0, 3).Draw(t, "user"),
	}
	for _, a := range []struct {
		into *netip.Addr
		from []string
	}{
		{&q.Addr, []string{"", "10.1.2.3", "10.1.9.9", "10.9.9.9", "8.8.8.8", "127.0.0.1", "127.0.0.2", "169.254.169.254", "169.254.1.1", "64:ff9b::7f00:1", "64:ff9b::a01:203", "::ffff:10.1.2.3", "2001:db8::1"}},
		{&q.Source, []string{"", "203.0.113.7", "203.0.113.8", "2001:db8::1"}},
	} {
		if s := rapid.SampledFrom(a.from).Draw(t, "address"); s != "" {
			*a.into = netip.MustParseAddr(s)
		}
	}
	if rapid.Bool().Draw(t, "own") && q.Addr.IsValid() {
		q.Own = []policy.Listener{{At: netip.AddrPortFrom(q.Addr, q.Port), Of: policy.ListenerOfHub}}
	}
	return q
}

// TestWhatTheAnalysisSaysIsTrue: without the rules that are said to change nothing
// every verdict is the same, and a rule that never counts never decides.
func TestWhatTheAnalysisSaysIsTrue(t *testing.T) {
	listed := []policy.List{{Name: "from", Ranges: []string{"203.0.113.0/25", "2001:db8::/33"}}, {Name: "to", Ranges: []string{"10.1.0.0/16", "127.0.0.1", "fd00::/8"}}}
	rapid.Check(t, func(t *rapid.T) {
		rules := make([]policy.Rule, rapid.IntRange(2, 6).Draw(t, "rules"))
		for i := range rules {
			rules[i] = drawAnalysed(t, i)
		}
		p, problems := policy.Compile(rules, listed)
		if p == nil {
			t.Fatal(problems)
		}
		useless := map[int]bool{}
		dead := map[string]bool{}
		for _, w := range problems {
			if strings.HasPrefix(w.Path, "rules[") && !strings.Contains(w.Path, ".") {
				useless[w.Index] = true
				dead[rules[w.Index].Name] = strings.Contains(w.Message, "never counts")
			}
		}
		var rest []policy.Rule
		for i, r := range rules {
			if !useless[i] {
				rest = append(rest, r)
			}
		}
		if len(useless) == 0 {
			return
		}
		without, problems := policy.Compile(rest, listed)
		if without == nil {
			t.Fatal(problems)
		}
		for range 50 {
			q := drawAsked(t)
			v, w := policy.Decide(q, p), policy.Decide(q, without)
			// A name may be open for a rule that never counts: it is refused once the address is known.
			opened := v.Open != w.Open && (len(dead) == 0 || !v.Open)
			if v.Allow != w.Allow || opened || v.Allow && dead[v.Rule] {
				t.Fatalf("%+v: %+v with and %+v without %v of %+v", q, v, w, useless, rules)
			}
		}
	})
}

func TestOverlaps(t *testing.T) {
	for name, c := range map[string]struct {
		rules string
		want  []policy.Overlap
	}{
		"a hole":                     {"- {name: a, allow: [10.0.0.0/8]}\n- {name: d, deny: [10.1.0.0/16]}\n", []policy.Overlap{{"a", "d", "10.1.0.0/16"}}},
		"a range that sticks out":    {"- {name: a, allow: [10.1.0.0/16, 11.0.0.0/8]}\n- {name: d, deny: [10.0.0.0/8]}\n", []policy.Overlap{{"a", "d", "10.1.0.0/16"}}},
		"a shadowed rule":            {"- {name: a, allow: [10.1.0.0/16]}\n- {name: d, deny: [10.0.0.0/8]}\n", nil},
		"other ports":                {"- {name: a, allow: [\"10.0.0.0/8:1-5\"]}\n- {name: d, deny: [\"10.1.0.0/16:6\"]}\n", nil},
		"other clusters":             {"- {name: a, clusters: [c1], allow: [10.0.0.0/8]}\n- {name: d, clusters: [c2], deny: [10.1.0.0/16]}\n", nil},
		"a cluster of a pattern":     {"- {name: a, clusters: [c1], allow: [10.0.0.0/8]}\n- {name: d, clusters: [c*], deny: [10.1.0.0/16]}\n", []policy.Overlap{{"a", "d", "10.1.0.0/16"}}},
		"patterns with a common one": {"- {name: a, clusters: [ab*], allow: [10.0.0.0/8]}\n- {name: d, clusters: [a*z], deny: [10.1.0.0/16]}\n", []policy.Overlap{{"a", "d", "10.1.0.0/16"}}},
		"patterns without":           {"- {name: a, clusters: [ab*], allow: [10.0.0.0/8]}\n- {name: d, clusters: [b*], deny: [10.1.0.0/16]}\n", nil},
		"everything":                 {"- {name: a, allow: [\"*\"]}\n- {name: d, deny: [\"*:22\"]}\n- {name: e, deny: [10.0.0.0/8]}\n- {name: f, deny: [x.y]}\n", []policy.Overlap{{"a", "d", "*"}, {"a", "e", "*"}, {"a", "f", "x.y"}}},
		"names":                      {"- {name: a, allow: [\"*.b.example\"]}\n- {name: d, deny: [x.b.example]}\n- {name: e, deny: [b.example]}\n", []policy.Overlap{{"a", "d", "x.b.example"}}},
		"sources":                    {"- {name: a, sources: [10.0.0.0/8], allow: [\"*\"]}\n- {name: d, sources: [10.1.0.0/16], deny: [\"*\"]}\n- {name: e, sources: [11.0.0.0/8], deny: [\"*\"]}\n", []policy.Overlap{{"a", "d", "*"}}},
	} {
		p, findings := policy.Read("p.yaml", []byte(head+"rules:\n"+c.rules), nil)
		if p == nil {
			t.Fatal(findings)
		}
		if got := p.Overlaps(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	var none *policy.Policy
	if none.Overlaps() != nil || new(policy.Policy).Overlaps() != nil {
		t.Error("no rules overlap")
	}
}

// TestOverlapsAreReal: where two rules are said to meet, an address is denied that
// the allow rule alone would allow.
func TestOverlapsAreReal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string, deny bool) policy.Rule {
			return policy.Rule{Name: name, Deny: deny, Destination: rapid.SliceOfNDistinct(rapid.SampledFrom([]string{
				"10.0.0.0/8", "10.1.0.0/16:443", "10.1.2.3:80-443", "11.0.0.0/8", "fd00::/8", "fd00:1::/32:80"}), 1, 3, rapid.ID[string]).Filter(func(s []string) bool {
				return !slices.Contains(s, "fd00:1::/32:80")
			}).Draw(t, name)}
		}
		a, d := draw("a", false), draw("d", true)
		both := compiled(t, []policy.Rule{a, d})
		alone := compiled(t, []policy.Rule{a})
		meet := false
		for _, addr := range []string{"10.1.2.3", "10.1.9.9", "10.9.9.9", "11.0.0.1", "fd00::1"} {
			for _, port := range []uint16{80, 443, 22} {
				q := policy.Request{Addr: netip.MustParseAddr(addr), Port: port}
				meet = meet || policy.Decide(q, alone).Allow && !policy.Decide(q, both).Allow
			}
		}
		_, problems := policy.Compile([]policy.Rule{a, d}, nil)
		if said := len(both.Overlaps())+len(problems) > 0; said != meet {
			t.Fatalf("%v and %v: overlaps %v, problems %v", a, d, both.Overlaps(), problems)
		}
	})
}

// TestTheAnalysisIsBounded: what it costs grows with the length of the rules, also
// where each could cover each other and none does.
func TestTheAnalysisIsBounded(t *testing.T) {
	const n = 3000
	rules := make([]policy.Rule, n)
	for i := range rules {
		rules[i] = policy.Rule{Name: fmt.Sprintf("r%d", i), Caller: []string{fmt.Sprintf("unix:c%d/connect", i)}, Destination: []string{"@l:443", "*.example"}}
	}
	p, problems := policy.Compile(rules, []policy.List{{Name: "l", Ranges: randomRanges(100)}})
	if p == nil || len(problems) > 0 {
		t.Fatalf("%v", problems)
	}
	// A long list that a deny rule covers range by range, and one that it shares.
	ranges := randomRanges(100_000)
	for _, destination := range []string{"@l", "*", "@m"} {
		p, problems := policy.Compile([]policy.Rule{
			{Name: "a", Destination: []string{"@l:443"}}, {Name: "d", Deny: true, Destination: []string{destination}},
		}, []policy.List{{Name: "l", Ranges: ranges}, {Name: "m", Ranges: []string{"0.0.0.0/0", "::/0"}}})
		if p == nil || !slices.ContainsFunc(problems, func(q policy.Problem) bool { return strings.Contains(q.Message, "never counts") }) {
			t.Errorf("%s: %v", destination, problems)
		}
	}
}

// TestManyRulesForOneDestination: tens of thousands of rules that name one destination,
// each for its caller, are all looked at.
func TestManyRulesForOneDestination(t *testing.T) {
	const n = 20_000
	rules := make([]policy.Rule, n)
	for i := range rules {
		rules[i] = policy.Rule{Name: fmt.Sprintf("r%d", i), Caller: []string{fmt.Sprintf("unix:c%d/connect", i)}, Destination: []string{"10.0.0.0/8:443", "*.example"}}
	}
	rules = append(rules, policy.Rule{Name: "again", Caller: []string{"unix:c7/connect"}, Destination: []string{"10.1.0.0/16:443"}})
	_, problems := policy.Compile(rules, nil)
	if len(problems) != 1 || problems[0].Message != "rule again is redundant: rule r7 covers it" || !problems[0].Warning {
		t.Errorf("%d problems: %v", len(problems), problems[:min(3, len(problems))])
	}
}

// TestASearchThatEndsEarlySaysSo: rules that were made so that each may cover each
// other cost what their length costs, and the finding says where it ended.
func TestASearchThatEndsEarlySaysSo(t *testing.T) {
	const n = 6000
	rules := make([]policy.Rule, n)
	for i := range rules {
		rules[i] = policy.Rule{Name: fmt.Sprintf("r%d", i), Caller: []string{fmt.Sprintf("unix:c%d/*", i)}, Destination: []string{"*"}}
	}
	p, problems := policy.Compile(rules, nil)
	if p == nil || len(problems) != 1 || !problems[0].Warning || !strings.Contains(problems[0].Message, "ended here") {
		t.Fatalf("%v", problems)
	}
	if problems[0].Path == "rules[0]" || problems[0].Index == 0 {
		t.Errorf("nothing was looked at: %+v", problems[0])
	}
}
