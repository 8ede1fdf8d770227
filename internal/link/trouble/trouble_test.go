// SPDX-License-Identifier: Apache-2.0

package trouble_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/link/trouble"
)

// TestVerdicts: each trouble, with its reason and what to do.
func TestVerdicts(t *testing.T) {
	calico := trouble.CNIFacts{Name: "calico", From: "spec.cni"}
	no := trouble.CNIFacts{Name: "unknown", Reason: "CNIUnknown", Problem: "y; z"}
	unread := trouble.CNIFacts{Reason: "CNIUnknown", Unread: "it is away"}
	const where = "the host cluster"
	for name, c := range map[string]struct {
		got                  trouble.Verdict
		status, reason, says string
	}{
		"a CNI":  {trouble.CNI(calico), trouble.Yes, trouble.Told, "calico, by spec.cni"},
		"no CNI": {trouble.CNI(no), trouble.No, "CNIUnknown", "y; z; IPPools"},
		"unread": {trouble.CNI(unread), trouble.Unknown, trouble.Unread, "it is away"},

		"pools":        {trouble.Pools(nil, ""), trouble.Yes, trouble.Made, "an IPPool for each"},
		"no Calico":    {trouble.NoPools(), trouble.Yes, trouble.NotNeeded, "no IPPool"},
		"pools failed": {trouble.Pools([]string{"a"}, "x is away"), trouble.No, trouble.Failed, "x is away; it is tried again"},
		"names taken":  {trouble.Pools([]string{"b", "a"}, ""), trouble.No, trouble.NameTaken, "address: a, b; give it another name"},
		"many taken": {trouble.Pools([]string{"a", "b", "c", "d", "e", "f", "g"}, ""), trouble.No, trouble.NameTaken,
			"d, e, 2 more; give"},

		"a right clock": {trouble.Clock(0), trouble.Yes, trouble.InTime, "less than 30s"},
		"just right":    {trouble.Clock(-30 * time.Second), trouble.Yes, trouble.InTime, "less than 30s"},
		"ahead":         {trouble.Clock(31 * time.Second), trouble.No, trouble.ClockAhead, "about 30s ahead"},
		"ahead by much": {trouble.Clock(303 * time.Second), trouble.No, trouble.ClockAhead, "about 5m0s ahead"},
		"behind":        {trouble.Clock(-2 * time.Hour), trouble.No, trouble.ClockBehind, "about 2h0m0s behind"},

		"one version":       {trouble.Version("v1.4.2", "v1.4.2"), trouble.Yes, trouble.Fits, "v1.4.2"},
		"a later patch":     {trouble.Version("v1.4.2", "v1.4.9"), trouble.Yes, trouble.Fits, "v1.4.9"},
		"an older member":   {trouble.Version("1.4.2", "v1.1.0"), trouble.Yes, trouble.Fits, "v1.1.0"},
		"a newer member":    {trouble.Version("v1.4.2", "v1.5.0-rc.1"), trouble.No, trouble.MemberNewer, "update the host"},
		"another major":     {trouble.Version("v1.4.2", "v2.0.0"), trouble.No, trouble.Incompatible, "one major version"},
		"an older major":    {trouble.Version("v2.0.0", "v1.9.0"), trouble.No, trouble.Incompatible, "one major version"},
		"one build":         {trouble.Version("dev", "dev"), trouble.Yes, trouble.Fits, "dev"},
		"builds":            {trouble.Version("dev", "v1.0.0"), trouble.Unknown, trouble.Unversioned, "cannot be compared"},
		"it does not say":   {trouble.Version("v1.0.0", ""), trouble.Unknown, trouble.Unversioned, "none that it says"},
		"no version at all": {trouble.Version("v1.0.0", "v1"), trouble.Unknown, trouble.Unversioned, "cannot"},

		"all kinds": {trouble.Kinds(where, nil), trouble.Yes, trouble.Fits, "has all kinds"},
		"kinds": {trouble.Kinds(where, []string{"members.tombolo.dev", "clusters.tombolo.dev", "clusternodes.tombolo.dev"}),
			trouble.No, trouble.KindsMissing, "the host cluster lacks the CustomResourceDefinition clusternodes.tombolo.dev, " +
				"clusters.tombolo.dev, members.tombolo.dev; apply there what 'tombolo controller manifest' and " +
				"'tombolo discovery manifest' prints"},
		"somebody's": {trouble.Kinds(where, []string{"nodes"}), trouble.No, trouble.KindsMissing,
			"CustomResourceDefinition nodes. It continues"},

		"heard":   {trouble.Report(4*time.Minute, time.Minute), trouble.Yes, trouble.Heard, "alive"},
		"silent":  {trouble.Report(4*time.Minute+1, time.Minute), trouble.No, trouble.Silent, "log of the controller"},
		"not yet": {trouble.Report(5*time.Minute, 2*time.Minute), trouble.Yes, trouble.Heard, "alive"},

		"few nodes":      {trouble.Nodes(999), trouble.Yes, trouble.WithinBound, "fewer than 1000"},
		"too many nodes": {trouble.Nodes(1000), trouble.No, trouble.TooManyNodes, "spec.excludeNodes"},
	} {
		if c.got.Status != c.status || c.got.Reason != c.reason || !strings.Contains(c.got.Message, c.says) {
			t.Errorf("%s: %+v", name, c.got)
		}
	}
}

// TestSkew: what an answer tells of a clock.
func TestSkew(t *testing.T) {
	at := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		took, ahead, want time.Duration
		ok                bool
	}{
		"right":    {time.Second, 0, 0, true},
		"ahead":    {2 * time.Second, time.Hour, time.Hour + time.Second/2, true},
		"behind":   {0, -time.Minute, -time.Minute - time.Second/2, true},
		"too slow": {11 * time.Second, time.Hour, 0, false},
		"set back": {-time.Second, 0, 0, false},
	} {
		asked := at.Add(c.ahead)
		if got, ok := trouble.Skew(asked, asked.Add(c.took), at); ok != c.ok || got != c.want {
			t.Errorf("%s: %v %v", name, got, ok)
		}
	}
	if _, ok := trouble.Skew(at, at, time.Time{}); ok {
		t.Error("an answer without a time")
	}
}

// TestNewest: nodes may say several versions while a controller is updated.
func TestNewest(t *testing.T) {
	for want, versions := range map[string][]string{"": nil, "v1.10.0": {"v1.9.0", "v1.10.0", "dev"}, "dev": {"dev", "x"},
		"v1.0.0": {"dev", "v1.0.0", ""}} {
		if got := trouble.Newest(versions); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
