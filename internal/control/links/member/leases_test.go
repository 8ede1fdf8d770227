// SPDX-License-Identifier: Apache-2.0

package member

import (
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/link/share"
)

// TestLeases: who has not renewed its Member for as long as the lease is silent, by our clock.
func TestLeases(t *testing.T) {
	now, l := time.Unix(10_000, 0), leases(nil)
	leased := func(renewed string) v1alpha1.MemberObjectSpec {
		return v1alpha1.MemberObjectSpec{MemberLease: v1alpha1.MemberLease{RenewTime: renewed, LeaseSeconds: 60}}
	}
	is := func(what string, silent bool, members map[string]v1alpha1.MemberObjectSpec) {
		t.Helper()
		f := share.Facts{Nodes: []share.Node{{Name: "a"}}}
		l.silence(&f, members, now)
		if f.Nodes[0].Silent != silent {
			t.Errorf("%s: %v", what, f.Nodes[0].Silent)
		}
	}
	one := map[string]v1alpha1.MemberObjectSpec{"a": leased("1970")}
	is("first seen, with an old time", false, one)
	now = now.Add(time.Minute)
	is("as old as the lease", false, one)
	now = now.Add(time.Second)
	is("older", true, one)
	is("renewed, with an older time", false, map[string]v1alpha1.MemberObjectSpec{"a": leased("1969")})
	is("without a Member", false, nil)
	now = now.Add(time.Hour)
	is("back", false, one)
	is("without a lease", false, map[string]v1alpha1.MemberObjectSpec{"a": {}})
	now = now.Add(time.Hour)
	is("still without one", false, map[string]v1alpha1.MemberObjectSpec{"a": {}})
}
