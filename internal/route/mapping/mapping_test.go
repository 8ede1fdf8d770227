// SPDX-License-Identifier: Apache-2.0

package mapping_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/internal/route/mapping"
)

func TestParse(t *testing.T) {
	for _, c := range []struct{ there, here, want, wrong string }{
		{"10.244.0.0/16", "", "10.244.0.0/16 of cluster c1", ""},
		{"10.244.0.0/16", "10.244.0.0/16", "10.244.0.0/16 of cluster c1", ""},
		{"10.244.0.0/16", "240.1.0.0/16", "10.244.0.0/16 of cluster c1 as 240.1.0.0/16", ""},
		{"fd00:10::/64", "fd00:20::/64", "fd00:10::/64 of cluster c1 as fd00:20::/64", ""},
		{"10.244.0.0/16", "240.1.0.0/17", "", "240.1.0.0/17 is smaller than 10.244.0.0/16: a range is mapped to one of the same size, /16"},
		{"10.244.0.0/16", "240.0.0.0/15", "", "is larger than"},
		{"10.244.0.0/16", "fd00::/16", "", "different families"},
		{"10.244.0.1/16", "", "", "has host bits set: write 10.244.0.0/16"},
		{"10.244.0.0/16", "240.1.0.1/16", "", "has host bits set: write 240.1.0.0/16"},
		{"10.244.0.0", "", "", "is not a CIDR"},
		{"::ffff:10.0.0.0/104", "", "", "is not a CIDR"},
		{"0.0.0.0/0", "", "", "is everything"},
		{"127.0.0.0/8", "", "", "cannot be routed"},
		{"169.254.0.0/16", "", "", "cannot be routed"},
		{"ff00::/8", "", "", "cannot be routed"},
	} {
		r, err := mapping.Parse("c1", c.there, c.here)
		if c.wrong == "" && (err != nil || r.String() != c.want || r.Mapped() != strings.Contains(c.want, " as ")) {
			t.Errorf("%s, %s: %v, %v", c.there, c.here, r, err)
		}
		if c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%s, %s: %v, %v", c.there, c.here, r, err)
		}
	}
	if r, err := mapping.ParseMap("c1", "10.244.0.0/16=240.1.0.0/16"); err != nil || r.Here.String() != "240.1.0.0/16" {
		t.Error(r, err)
	}
	for _, text := range []string{"10.244.0.0/16", "10.244.0.0/16=", "=10.244.0.0/16", "a=b"} {
		if r, err := mapping.ParseMap("c1", text); err == nil {
			t.Errorf("%s: %v", text, r)
		}
	}
}

func ranges(t interface{ Fatal(...any) }, texts ...string) (out []mapping.Range) {
	for _, text := range texts {
		f := strings.Fields(text + " ")
		here := ""
		if len(f) > 2 {
			here = f[2]
		}
		r, err := mapping.Parse(f[0], f[1], here)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

func TestOverlaps(t *testing.T) {
	for _, c := range []struct {
		name, why string
		ranges    []string
	}{
		{"apart", "", []string{"c1 10.244.0.0/16", "c1 10.96.0.0/12", "c1 fd00::/64", "c2 10.245.0.0/16"}},
		{"equal ranges, one mapped", "", []string{"c1 10.244.0.0/16", "c2 10.244.0.0/16 240.1.0.0/16"}},
		{"equal ranges", "10.244.0.0/16 of cluster c1 and 10.244.0.0/16 of cluster c2 overlap here: map one of them elsewhere",
			[]string{"c1 10.244.0.0/16", "c2 10.244.0.0/16"}},
		{"one within the other, by a mapping", "overlap here", []string{"c1 10.244.0.0/16", "c2 10.0.0.0/24 10.244.7.0/24"}},
		{"twice the same there", "are the same addresses there",
			[]string{"c1 10.244.0.0/16", "c1 10.244.3.0/24 240.1.0.0/24"}},
	} {
		table, overlaps := mapping.New(ranges(t, c.ranges...))
		if c.why == "" && (len(overlaps) > 0 || len(table.Ranges()) != len(c.ranges)) {
			t.Errorf("%s: %v", c.name, overlaps)
		}
		if c.why != "" && (len(overlaps) != 1 || overlaps[0].First != 0 || overlaps[0].Second != 1 ||
			!strings.Contains(overlaps[0].Why, c.why) || len(table.Ranges()) != 0) {
			t.Errorf("%s: %v", c.name, overlaps)
		}
	}
}

func TestThere(t *testing.T) {
	table, _ := mapping.New(ranges(t, "c1 10.244.0.0/16", "c2 10.244.0.0/16 240.1.0.0/16", "c1 fd00:10::/60 fd00:20::/60", "c3 10.9.9.9/32"))
	for here, want := range map[string]string{
		"10.244.3.4": "c1 10.244.3.4", "240.1.3.4": "c2 10.244.3.4", "::ffff:240.1.255.255": "c2 10.244.255.255",
		"fd00:20:0:f::9": "c1 fd00:10:0:f::9", "10.9.9.9": "c3 10.9.9.9",
		"10.243.255.255": "", "10.245.0.0": "", "240.2.0.0": "", "1.1.1.1": "", "255.255.255.255": "", "fd00:20:0:10::": "", "::": "",
	} {
		r, there, ok := table.There(netip.MustParseAddr(here))
		if got := r.Cluster + " " + there.String(); ok != (want != "") || ok && got != want {
			t.Errorf("%s: %s, %v", here, got, ok)
		}
	}
	if _, _, ok := (mapping.Table{}).There(netip.MustParseAddr("10.0.0.1")); ok {
		t.Error("an empty table finds something")
	}
}

// prefix draws a range in which an address may be moved, of a family.
func prefix(t *rapid.T, four bool, bits int, name string) netip.Prefix {
	n := 16
	if four {
		n = 4
	}
	b := rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, name)
	b[0] = 10
	a, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(a, bits).Masked()
}

// TestOneToOne is a property: an address of a mapped range leads to one address there, and that one back; the host bits stay.
func TestOneToOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		four := rapid.Bool().Draw(t, "IPv4")
		most := 128
		if four {
			most = 32
		}
		bits := rapid.IntRange(1, most).Draw(t, "bits")
		r := mapping.Range{Cluster: "c1", There: prefix(t, four, bits, "there"), Here: prefix(t, four, bits, "here")}
		table, overlaps := mapping.New([]mapping.Range{r})
		if len(overlaps) > 0 {
			t.Fatal(overlaps)
		}
		host := rapid.SliceOfN(rapid.Byte(), most/8, most/8).Draw(t, "host")
		ones, _ := netip.AddrFromSlice(slices.Repeat([]byte{0xff}, most/8))
		bytes, mask := r.Here.Addr().AsSlice(), netip.PrefixFrom(ones, bits).Masked().Addr().AsSlice()
		for i := range bytes {
			bytes[i] |= host[i] &^ mask[i]
		}
		here, _ := netip.AddrFromSlice(bytes)
		if !r.Here.Contains(here) {
			t.Fatalf("%s is not in %s", here, r.Here)
		}
		_, there, ok := table.There(here)
		if !ok || !r.There.Contains(there) {
			t.Fatalf("%s of %s leads to %s, %v", here, r, there, ok)
		}
		if back, ok := table.Here("c1", there); !ok || back != here {
			t.Fatalf("%s of %s leads to %s, and back to %s, %v", here, r, there, back, ok)
		}
		a, b := here.AsSlice(), there.AsSlice()
		x, y := r.Here.Addr().AsSlice(), r.There.Addr().AsSlice()
		for i := range a {
			if a[i]^x[i] != b[i]^y[i] {
				t.Fatalf("%s of %s leads to %s: the host bits differ", here, r, there)
			}
		}
	})
}
