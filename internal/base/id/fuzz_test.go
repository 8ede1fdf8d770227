// SPDX-License-Identifier: Apache-2.0

package id_test

import (
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/id"
)

// FuzzNames: a name that is accepted is kept as it is, and can stand in a path, a
// host name and a SPIFFE ID without meaning anything else there.
func FuzzNames(f *testing.F) {
	for _, s := range []string{"c1", "tombolo.internal", "a-b", "", ".", "..", "a/b", "a.", "-a", "K", strings.Repeat("a", 64)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if c, err := id.ParseCluster(s); err == nil {
			alone(t, s, c.String())
			if a, err := id.ParseAgent(s); err != nil || a.String() != s || c.IsZero() {
				t.Errorf("%q names a cluster, as an agent %q: %v", s, a, err)
			}
			who := id.Identity{TrustDomain: "example.org", Role: id.RoleClient, Cluster: c, Name: s}
			if again, err := id.ParseURI(who.URI()); err != nil || again != who {
				t.Errorf("%v became %v, %v", who, again, err)
			}
		}
		if id.CheckTrustDomain(s) == nil {
			for label := range strings.SplitSeq(s, ".") {
				alone(t, label, label)
			}
			who := id.Identity{TrustDomain: s, Role: id.RoleHub, Name: "h"}
			if u, err := url.Parse(who.URI()); err != nil || u.Host != s || u.String() != who.URI() {
				t.Errorf("%q as a URI: %v, %v", s, u, err)
			}
		}
	})
}

// alone wants a name that is one element of whatever it stands in.
func alone(t *testing.T, given, name string) {
	t.Helper()
	if name != given || name == "" || len(name) > 63 || path.Base(path.Clean("/x/"+name)) != name || strings.ContainsAny(name, "./\\:@%?# \x00") || strings.ToLower(name) != name {
		t.Errorf("%q is taken for the name %q", given, name)
	}
}
