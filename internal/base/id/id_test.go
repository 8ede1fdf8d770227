// SPDX-License-Identifier: Apache-2.0

package id_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/internal/base/id"
)

func TestALabelIsOneOfRFC1123(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		ok   bool
	}{
		"one letter is accepted":                         {"a", true},
		"one digit is accepted":                          {"7", true},
		"a hyphen within is accepted":                    {"a-b", true},
		"hyphens in a row are accepted":                  {"a--b", true},
		"digits alone are accepted":                      {"0815", true},
		"63 characters are accepted":                     {strings.Repeat("a", 63), true},
		"64 characters are refused":                      {strings.Repeat("a", 64), false},
		"nothing is refused":                             {"", false},
		"a hyphen alone is refused":                      {"-", false},
		"a hyphen in front is refused":                   {"-a", false},
		"a hyphen at the end is refused":                 {"a-", false},
		"an upper-case letter is refused":                {"Prod", false},
		"a dot is refused":                               {"a.b", false},
		"an underscore is refused":                       {"a_b", false},
		"a slash is refused":                             {"a/b", false},
		"two dots, as in a path, are refused":            {"..", false},
		"a space is refused":                             {"a b", false},
		"a line end is refused":                          {"a\n", false},
		"a NUL is refused":                               {"a\x00b", false},
		"a letter beyond ASCII is refused":               {"köln", false},
		"the Kelvin sign, which lowers to k, is refused": {"\u212a8s", false},
		"bytes that are no UTF-8 are refused":            {"a\xff", false},
		"a percent sign is refused":                      {"a%2fb", false},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, err := id.ParseCluster(c.text)
			if (err == nil) != c.ok {
				t.Errorf("cluster %q: %v", c.text, err)
			}
			agent, err := id.ParseAgent(c.text)
			if (err == nil) != c.ok {
				t.Errorf("agent %q: %v", c.text, err)
			}
			if c.ok && (cluster.String() != c.text || agent.String() != c.text || cluster.IsZero()) {
				t.Errorf("%q became %q and %q", c.text, cluster, agent)
			}
			if !c.ok && (!cluster.IsZero() || agent != (id.Agent{})) {
				t.Errorf("a refused name left %q and %q", cluster, agent)
			}
		})
	}
}

func TestEveryFormOfURI(t *testing.T) {
	for text, want := range map[string]id.Identity{
		"spiffe://tombolo.internal/hub/h1":               {TrustDomain: "tombolo.internal", Role: id.RoleHub, Name: "h1"},
		"spiffe://x/endpoint/e1.seed":                    {TrustDomain: "x", Role: id.RoleEndpoint, Name: "e1.seed"},
		"spiffe://x/discovery/d1":                        {TrustDomain: "x", Role: id.RoleDiscovery, Name: "d1"},
		"spiffe://x/operator/anna":                       {TrustDomain: "x", Role: id.RoleOperator, Name: "anna"},
		"spiffe://a.b.c/cluster/c1/agent/agent-1":        {TrustDomain: "a.b.c", Role: id.RoleAgent, Cluster: cluster(t, "c1"), Name: "agent-1"},
		"spiffe://a.b.c/cluster/c1/node/n1":              {TrustDomain: "a.b.c", Role: id.RoleNode, Cluster: cluster(t, "c1"), Name: "n1"},
		"spiffe://a.b.c/cluster/c1/client/apiserver":     {TrustDomain: "a.b.c", Role: id.RoleClient, Cluster: cluster(t, "c1"), Name: "apiserver"},
		"spiffe://a.b.c/cluster/cluster/agent/agent":     {TrustDomain: "a.b.c", Role: id.RoleAgent, Cluster: cluster(t, "cluster"), Name: "agent"},
		"spiffe://" + strings.Repeat("a", 63) + "/hub/h": {TrustDomain: strings.Repeat("a", 63), Role: id.RoleHub, Name: "h"},
	} {
		got, err := id.ParseURI(text)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		if got.URI() != text || got.String() != text {
			t.Errorf("%s renders as %s", text, got.URI())
		}
	}
}

func cluster(t *testing.T, s string) id.Cluster {
	t.Helper()
	c, err := id.ParseCluster(s)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWhatIsNoIdentityIsRefused(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":                             "",
		"another scheme":                      "https://td/hub/h",
		"the scheme in upper case":            "SPIFFE://td/hub/h",
		"no trust domain":                     "spiffe:///hub/h",
		"a trust domain alone":                "spiffe://td",
		"a trust domain in upper case":        "spiffe://TD/hub/h",
		"a trust domain with a port":          "spiffe://td:1/hub/h",
		"a trust domain with a user":          "spiffe://u@td/hub/h",
		"a trust domain with an empty label":  "spiffe://a..b/hub/h",
		"a trust domain with a final dot":     "spiffe://td./hub/h",
		"a trust domain of 254 characters":    "spiffe://" + strings.Repeat("a.", 126) + "aa/hub/h",
		"an unknown role":                     "spiffe://td/root/h",
		"a hub without a name":                "spiffe://td/hub/",
		"a hub with something after its name": "spiffe://td/hub/h/x",
		"a final slash":                       "spiffe://td/hub/h/",
		"an agent without a cluster":          "spiffe://td/agent/a",
		"an empty cluster":                    "spiffe://td/cluster//agent/a",
		"a cluster with a bad name":           "spiffe://td/cluster/C1/agent/a",
		"a hub within a cluster":              "spiffe://td/cluster/c1/hub/h",
		"an operator within a cluster":        "spiffe://td/cluster/c1/operator/o",
		"a role in upper case":                "spiffe://td/cluster/c1/Agent/a",
		"an agent without a name":             "spiffe://td/cluster/c1/agent/",
		"a query":                             "spiffe://td/hub/h?x=1",
		"a fragment":                          "spiffe://td/hub/h#x",
		"an escape":                           "spiffe://td/hub/%68",
		"a way up the path":                   "spiffe://td/cluster/c1/agent/../c2",
		"a double slash":                      "spiffe://td//hub/h",
		"white space around":                  " spiffe://td/hub/h",
		"a line end":                          "spiffe://td/hub/h\n",
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := id.ParseURI(text); err == nil || got != (id.Identity{}) {
				t.Errorf("%q was read as %+v, %v", text, got, err)
			}
		})
	}
}

func label() *rapid.Generator[string] {
	return rapid.StringMatching(`[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?`)
}

func TestWhatIsRenderedIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := id.Identity{
			TrustDomain: rapid.StringMatching(`[a-z0-9]{1,20}(\.[a-z0-9]{1,20}){0,3}`).Draw(t, "trust domain"),
			Role:        rapid.SampledFrom([]id.Role{id.RoleHub, id.RoleOperator, id.RoleDiscovery, id.RoleAgent, id.RoleClient}).Draw(t, "role"),
			Name:        label().Draw(t, "name"),
		}
		if want.Role == id.RoleAgent || want.Role == id.RoleClient {
			c, err := id.ParseCluster(label().Draw(t, "cluster"))
			if err != nil {
				t.Fatal(err)
			}
			want.Cluster = c
		}
		got, err := id.ParseURI(want.URI())
		if err != nil || got != want {
			t.Fatalf("%s was read as %+v, %v", want.URI(), got, err)
		}
	})
}

func FuzzParseURI(f *testing.F) {
	f.Add("spiffe://tombolo.internal/hub/h")
	f.Add("spiffe://td/cluster/c1/agent/a")
	f.Add("spiffe://td/cluster/c1/client/a%2f")
	f.Fuzz(func(t *testing.T, text string) {
		who, err := id.ParseURI(text)
		if err != nil {
			return
		}
		if who.URI() != text {
			t.Errorf("%q renders as %q", text, who.URI())
		}
		if (who.Role == id.RoleAgent || who.Role == id.RoleClient) == who.Cluster.IsZero() {
			t.Errorf("%q: role %s with cluster %q", text, who.Role, who.Cluster)
		}
	})
}
