// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/policy"
)

// TestOf: an object is compiled as the same text in a file is, with the same problems.
func TestOf(t *testing.T) {
	all := []string{"*"}
	good := v1alpha1.AccessContent{
		Lists: []v1alpha1.RangeList{{Name: "office", Ranges: []string{"192.0.2.0/24"}}},
		Rules: []v1alpha1.AccessRule{{Name: "a", Group: "g", Clusters: []string{"c1"}, Flows: []string{"api"}, Sources: []string{"@office"}, Allow: all}},
	}
	p, problems := policy.Of(good)
	if p == nil || len(problems) > 0 {
		t.Fatal(problems)
	}
	if v := policy.Decide(policy.Request{Cluster: "c1", Flow: "api", Source: netip.MustParseAddr("192.0.2.1")}, p); v.Rule != "a" || v.Group != "g" {
		t.Error(v.Why())
	}
	file, findings := policy.Read("p.yaml", []byte("apiVersion: tombolo.dev/v1alpha1\nkind: AccessPolicy\nlists: [{name: office, ranges: [192.0.2.0/24]}]\n"+
		"rules: [{name: a, group: g, clusters: [c1], flows: [api], sources: [\"@office\"], allow: [\"*\"]}]\n"), nil)
	if file.Digest() != p.Digest() {
		t.Errorf("the file is another one: %v", findings)
	}
	for want, w := range map[string]v1alpha1.AccessContent{
		"[rules]": {},
		"[lists[0].file lists[0].ranges]": {Lists: []v1alpha1.RangeList{{Name: "office", File: "/etc/passwd"}},
			Rules: good.Rules},
		"[rules[0].deny rules[1] rules[0].sources[1]]": {Rules: []v1alpha1.AccessRule{
			{Name: "a", Flows: []string{"api"}, Sources: []string{"192.0.2.1", "x/y"}, Allow: all, Deny: all}, {Name: "b"}}},
		"[rules[0].uids[0]]": {Rules: []v1alpha1.AccessRule{{Name: "a", UIDs: []int{-1, 7}, Allow: all}}},
	} {
		p, problems := policy.Of(w)
		var paths []string
		for _, q := range problems {
			if !q.Warning {
				paths = append(paths, q.Path)
			}
		}
		if p != nil || fmt.Sprint(paths) != want {
			t.Errorf("%v, want %s", problems, want)
		}
	}
}
