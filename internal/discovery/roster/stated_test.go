// SPDX-License-Identifier: Apache-2.0

package roster_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// TestWhatOthersSayIsBehindUs: of this node's own ranges those count that others see, by
// the tiers of who states them.
func TestWhatOthersSayIsBehindUs(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	p := netip.MustParsePrefix
	me := roster.Self{Tier: roster.TierNative, Facts: member.Facts{ID: "me", Node: "here", Key: member.Key{1}}}
	said := func(tier roster.Tier, id, node string, key member.Key, ranges ...netip.Prefix) roster.Said {
		return roster.Said{Source: roster.Source{Tier: tier, Name: "s"}, Facts: member.Facts{ID: id, Node: node, Key: key, Ranges: ranges}}
	}
	file := said(roster.TierStatic, "file", "here", member.Key{}, p("10.1.0.0/16"))
	kube := said(roster.TierKubernetes, "here", "here", member.Key{1}, p("10.2.0.0/16"))
	for name, c := range map[string]struct {
		said []roster.Said
		own  []netip.Prefix
		want []netip.Prefix
	}{
		"nobody":                      {nil, nil, nil},
		"this node alone":             {nil, []netip.Prefix{p("10.9.0.0/16")}, []netip.Prefix{p("10.9.0.0/16")}},
		"a file":                      {[]roster.Said{file}, nil, []netip.Prefix{p("10.1.0.0/16")}},
		"a file beside this node":     {[]roster.Said{file}, []netip.Prefix{p("10.9.0.0/16")}, []netip.Prefix{p("10.1.0.0/16"), p("10.9.0.0/16")}},
		"Kubernetes":                  {[]roster.Said{kube}, nil, []netip.Prefix{p("10.2.0.0/16")}},
		"Kubernetes, whom we outrank": {[]roster.Said{kube}, []netip.Prefix{p("10.9.0.0/16")}, []netip.Prefix{p("10.9.0.0/16")}},
		"both":                        {[]roster.Said{kube, file}, nil, []netip.Prefix{p("10.1.0.0/16"), p("10.2.0.0/16")}},
		"another node":                {[]roster.Said{said(roster.TierStatic, "file", "there", member.Key{2}, p("10.1.0.0/16"))}, nil, nil},
		"the older protocol":          {[]roster.Said{said(roster.TierOlder, "x", "here", member.Key{1}, p("10.1.0.0/16"))}, nil, nil},
		"what we said ourselves":      {[]roster.Said{said(roster.TierNative, "me", "here", member.Key{1}, p("10.1.0.0/16"))}, nil, nil},
	} {
		r := roster.Merge(now, me, c.said, roster.Rules{})
		if got, _ := r.Behind(c.own, nil); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestFarewellsAreTold: who has signed that it leaves is told, whose lease ends is not.
func TestFarewellsAreTold(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	me := roster.Self{Tier: roster.TierNative, Facts: member.Facts{ID: "me", Node: "here"}}
	of := func(id string, until time.Time, removed bool) roster.Said {
		return roster.Said{Source: roster.Source{Tier: roster.TierNative, Name: "s"}, Facts: member.Facts{ID: id, Node: id, Key: member.Key{id[0]}}, Version: 1, Until: until, Removed: removed}
	}
	later := now.Add(time.Hour)
	r := roster.Merge(now, me, []roster.Said{of("a", later, false), of("b", later, true), of("c", now, false)}, roster.Rules{})
	if len(r.Members) != 1 || r.Members[0].ID != "a" || !slices.Equal(r.Removed, []string{"b"}) {
		t.Errorf("members %v, removed %v", r.Members, r.Removed)
	}
}
