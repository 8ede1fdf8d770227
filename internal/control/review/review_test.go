// SPDX-License-Identifier: Apache-2.0

package review_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/control/review"
)

func object(kind, rest string) []byte {
	return []byte(fmt.Sprintf(`{"apiVersion":"tombolo.dev/v1alpha1","kind":%q,"metadata":{"name":"c1","uid":"u",`+
		`"managedFields":[]},"status":{"x":1},%s}`, kind, rest))
}

func TestPolicies(t *testing.T) {
	platform, err := review.NewPlatform([]string{"10.1.0.0/16"})
	if err != nil {
		t.Fatal(err)
	}
	const one = `"name":"a","clusters":["c1"],"flows":["api"]`
	for name, c := range map[string]struct{ rest, refused, warned string }{
		"good": {`"rules":[{` + one + `,"sources":["10.2.0.0/16"],"allow":["*"]}]`, "", ""},
		"host bits": {`"rules":[{` + one + `,"sources":["192.0.2.0/24","10.2.0.1/16"],"allow":["*"]}]`,
			"rules[0].sources[1]: ", ""},
		"mapped":      {`"rules":[{` + one + `,"sources":["::ffff:1.2.3.4/120"],"allow":["*"]}]`, "rules[0].sources[0]: ", ""},
		"empty":       {`"rules":[{` + one + `,"allow":[]}]`, "rules[0].allow: ", ""},
		"both":        {`"rules":[{` + one + `,"allow":["*"],"deny":["*"]}]`, "rules[0].deny: ", ""},
		"a file":      {`"lists":[{"name":"l","file":"/etc/passwd"}],"rules":[{` + one + `,"sources":["@l"],"allow":["*"]}]`, "lists[0].", ""},
		"unknown key": {`"rules":[{` + one + `,"allow":["*"],"x":1}]`, "rules[0].x: ", ""},
		"twice":       {`"rules":[{` + one + `,"allow":["*"]},{"name":"b","clusters":["c1"],"flows":["api"],"sources":["10.3.0.0/16"],"allow":["*"]}]`, "", "rules[1]"},
		"locked out":  {`"rules":[{` + one + `,"sources":["10.0.0.0/8"],"deny":["*"]}]`, "", "c1/api: the platform's 10.1.0.0/16 are locked out: rule a denies 10.1.0.0"},
	} {
		v := review.Policy(object("AccessPolicy", c.rest), platform)
		has(t, name, v, c.refused, c.warned)
	}
	if _, err := review.NewPlatform([]string{"10.1.0.1/16"}); err == nil {
		t.Error("host bits are accepted")
	}
}

func has(t *testing.T, name string, v review.Verdict, refused, warned string) {
	t.Helper()
	if (len(v.Refused) > 0) != (refused != "") || refused != "" &&
		!strings.HasPrefix(v.Refused[0].Path+": "+v.Refused[0].Message, refused) {
		t.Errorf("%s: refused %q", name, v.Refused)
	}
	if warned == "" && len(v.Warnings) > 0 && refused == "" ||
		warned != "" && !slices.ContainsFunc(v.Warnings, func(w string) bool { return strings.HasPrefix(w, warned) }) {
		t.Errorf("%s: warned %q", name, v.Warnings)
	}
}

func TestTheAuthorOfAPolicy(t *testing.T) {
	platform, err := review.NewPlatform([]string{"10.1.0.0/16"})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ annotations, refused, warned string }{
		"nobody noted":     {`{}`, "", ""},
		"gets in":          {`{"tombolo.dev/author-address":"192.0.2.7"}`, "", ""},
		"of the platform":  {`{"tombolo.dev/author-address":"10.1.2.3"}`, "", ""},
		"is locked out":    {`{"tombolo.dev/author-address":"198.51.100.7"}`, "rules: c1/api: its author, at 198.51.100.7 is locked out: ", ""},
		"is out, forced":   {`{"tombolo.dev/author-address":"198.51.100.7","tombolo.dev/force":"true"}`, "", "c1/api: its author, at 198.51.100.7 is locked out: "},
		"is no address":    {`{"tombolo.dev/author-address":"me"}`, "metadata.annotations[tombolo.dev/author-address]: it is no address", ""},
		"mapped, gets in":  {`{"tombolo.dev/author-address":"::ffff:192.0.2.7"}`, "", ""},
		"is not an object": {`[]`, "metadata: ", ""},
	} {
		raw := []byte(`{"apiVersion":"tombolo.dev/v1alpha1","kind":"AccessPolicy","metadata":{"name":"c1","annotations":` +
			c.annotations + `},"rules":[{"name":"a","clusters":["c1"],"flows":["api"],"sources":["192.0.2.0/24"],"allow":["*"]}]}`)
		has(t, name, review.Policy(raw, platform), c.refused, c.warned)
	}
}

func TestTenants(t *testing.T) {
	const way = `{"flow":"api","names":["api.c1.example"],"upstreams":["a:1"]}`
	taken := func(claim string) string {
		return map[string]string{`name "api.c2.example"`: "ns/c2", `cluster "c9"`: "ns/c9"}[claim]
	}
	for name, c := range map[string]struct{ rest, refused string }{
		"good":       {`"spec":{"ways":[` + way + `]}`, ""},
		"no ways":    {`"spec":{"ways":[]}`, "spec.ways: "},
		"bad name":   {`"spec":{"ways":[{"flow":"api","names":["-"],"upstreams":["a:1"]}]}`, "spec.ways[0].names[0]: "},
		"taken name": {`"spec":{"ways":[` + way + `,{"flow":"api","names":["api.c2.example"],"upstreams":["a:1"]}]}`, `spec.ways[1].names[0]: name "api.c2.example" is claimed by ns/c2`},
	} {
		has(t, name, review.Tenant(object("EdgeTenant", c.rest), nil, taken), c.refused, "")
	}
	raw := []byte(strings.Replace(string(object("EdgeTenant", `"spec":{"ways":[`+way+`]}`)), "c1", "c9", 1))
	has(t, "taken cluster", review.Tenant(raw, nil, taken), `metadata.name: cluster "c9" is claimed by ns/c9`, "")
	vpn := `,{"flow":"vpn","destinations":["outbound|1194||vpn-seed-server.ns.svc.cluster.local"]}`
	both := object("EdgeTenant", `"spec":{"ways":[{"flow":"api","names":["api.c2.example"],"upstreams":["a:1"]}`+vpn+`]}`)
	has(t, "as before", review.Tenant(both, both, taken), "", "")
	other := func(claim string) string {
		return map[string]string{`namespace "ns" of destinations`: "ns/c2"}[claim]
	}
	has(t, "taken namespace", review.Tenant(both, []byte("{}"), other), `spec.ways[1].destinations[0]: namespace "ns" of destinations is claimed by ns/c2`, "")
	claims := review.Claims(v1alpha1.EdgeTenant{Metadata: v1alpha1.ObjectName{Name: "c1"}, Spec: v1alpha1.EdgeTenantSpec{
		Ways: []v1alpha1.EdgeWay{{Flow: "api", Names: []string{"a.b"}, Upstreams: []string{"a:1"}}}}})
	slices.Sort(claims)
	if !slices.Equal(claims, []string{`cluster "c1"`, `name "a.b"`}) {
		t.Errorf("%q", claims)
	}
}

func FuzzPolicy(f *testing.F) {
	f.Add([]byte(object("AccessPolicy", `"rules":[{"name":"a","allow":["*"]}]`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		if v := review.Policy(data, review.Platform{}); len(v.Refused)+len(v.Warnings) > 40 {
			t.Error(v)
		}
	})
}
