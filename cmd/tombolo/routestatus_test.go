// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/admin"
)

func TestPrintRoute(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	st := admin.RouteStatus{
		Version: "v1", Since: now.Add(-time.Hour), Link: "tombolo-route", Addresses: []string{"192.0.0.8"},
		Resolver: []string{"192.0.0.53", "fd74:6f6d:626f::53"}, Table: 181, Rule: 32510, HealthListen: "127.0.0.1:8448", Limit: 4,
		Clusters: []admin.RouteCluster{
			{Name: "c1", Identity: "spiffe://x/cluster/c1/route/a", Expires: now, Ranges: []admin.RouteRange{{Range: "10.0.0.0/16"}},
				DNS: &admin.RouteDNS{Zone: "cluster.local", Domain: "cluster.local", Server: "10.96.0.10:53"}},
			{Name: "c2", Ranges: []admin.RouteRange{{Range: "10.0.0.0/16", As: "240.2.0.0/16"}},
				DNS: &admin.RouteDNS{Zone: "c2.internal", Domain: "cluster.local", Server: "10.96.0.10:53", Failed: "policy_denied: no"}},
		},
	}
	var out strings.Builder
	if err := printRoute(&out, st, now); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"rule 32510\nnames are resolved at 192.0.0.53 and fd74:6f6d:626f::53\n",
		"  10.0.0.0/16\n  names under cluster.local, asked of 10.96.0.10:53\n",
		"  names under c2.internal, which are under cluster.local there, asked of 10.96.0.10:53\n    the last one: policy_denied: no\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q", want)
		}
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

func TestPrintRouteTo(t *testing.T) {
	for _, c := range []struct {
		e    admin.RouteExplanation
		want string
	}{
		{admin.RouteExplanation{Asked: "192.0.0.53:53", Resolver: true},
			"192.0.0.53:53 is the resolver: it answers questions for the names of clusters\n"},
		{admin.RouteExplanation{Asked: "240.2.3.4:80", Cluster: "c2", Target: "10.0.3.4:80", Identity: "spiffe://x",
			Range: admin.RouteRange{Range: "10.0.0.0/16", As: "240.2.0.0/16"}},
			"240.2.3.4:80 is 10.0.3.4:80 in cluster c2, by the range 10.0.0.0/16, which is reached as 240.2.0.0/16\n" +
				"whether it may: tombolo policy explain c2 10.0.3.4:80 --as spiffe://x\n"},
		{admin.RouteExplanation{Asked: "web.c2.internal:443", Cluster: "c2", Target: "web.cluster.local", Identity: "spiffe://x",
			DNS: &admin.RouteDNS{Zone: "c2.internal", Domain: "cluster.local", Server: "10.96.0.10:53", Failed: "dial_timeout: none"}},
			"web.c2.internal:443: its name is web.cluster.local in cluster c2, where 10.96.0.10:53 is asked for it\n" +
				"the last question: dial_timeout: none\n" +
				"whether it may be asked: tombolo policy explain c2 10.96.0.10:53 --as spiffe://x\n" +
				"where a connection leads: tombolo route explain ADDRESS:PORT, with the address in the answer\n"},
	} {
		var out strings.Builder
		if err := printRouteTo(&out, c.e); err != nil || out.String() != c.want {
			t.Errorf("%v\n%s", err, out.String())
		}
	}
}
