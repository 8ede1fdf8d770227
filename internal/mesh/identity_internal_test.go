// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

func TestAKeyIsDrawnOnce(t *testing.T) {
	dir := t.TempDir()
	first, err := readKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	again, err := readKey(dir)
	if err != nil || again.public != first.public {
		t.Errorf("%v, %v: %v", first, again, err)
	}
	info, err := os.Stat(filepath.Join(dir, keyFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v: %v", info.Mode(), err)
	}
	text, _ := os.ReadFile(filepath.Join(dir, keyFile))
	for _, shown := range []string{fmt.Sprint(first), fmt.Sprintf("%v", first), fmt.Sprintf("%#v", first)} {
		if strings.Contains(shown, strings.TrimSpace(string(text))) {
			t.Error("a private key is shown")
		}
	}
}

func TestKeysThatCannotBeUsed(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		want fault.Code
	}{
		"nothing":         {"", 0o600, fault.CodeStateCorrupt},
		"no base64":       {"x", 0o600, fault.CodeStateCorrupt},
		"zero":            {"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n", 0o600, fault.CodeStateCorrupt},
		"others may read": {"CQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n", 0o644, fault.CodeSecret},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, keyFile)
		if err := os.WriteFile(path, []byte(c.text), c.mode); err != nil {
			t.Fatal(err)
		}
		if _, err := readKey(dir); !fault.Has(err, c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if left, _ := os.ReadFile(path); string(left) != c.text {
			t.Errorf("%s: the file was changed", name)
		}
	}
}

func TestOverlayAddresses(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	prefix := topology.Overlay6("c")
	pool := netip.MustParsePrefix("100.112.0.0/12")
	mac := []byte{0x2e, 0x1a, 0xb6, 0x53, 0x81, 0x69}
	base := choice{derived: prefix, pool: pool, hardware: mac, id: "m5", young: time.Hour}
	fresh := overlay{Clusters: []string{"c"}, Node: "n"}
	chosen := fresh.choose(base, now)
	host, named := topology.Host6(prefix, mac), topology.Named6(prefix, "n")
	free := func(netip.Addr) bool { return false }
	first4 := topology.Choose4(pool, "n", free)
	second4 := topology.Choose4(pool, "n", func(a netip.Addr) bool { return a == first4 })
	member := func(id, node string, six, four netip.Addr) roster.Member {
		return roster.Member{
			Facts: roster.Facts{ID: id, Node: node, Overlay6: six, Overlay4: four}, Tier: roster.TierNative,
			Entries: []roster.Entry{{ID: id, Source: roster.Source{Tier: roster.TierNative, Name: "s"}}},
		}
	}
	kept := chosen
	kept.Since = now.Add(-2 * time.Hour)
	for name, c := range map[string]struct {
		was       overlay
		change    func(*choice)
		six, four netip.Addr
	}{
		"alone":                       {fresh, func(*choice) {}, host, first4},
		"without hardware":            {fresh, func(c *choice) { c.hardware = nil }, named, first4},
		"another has both":            {fresh, func(c *choice) { c.others = []roster.Member{member("m9", "x", host, first4)} }, named, second4},
		"what is chosen stays":        {chosen, func(c *choice) { c.hardware = nil }, host, first4},
		"we ourselves, as remembered": {fresh, func(c *choice) { c.others = []roster.Member{member("m1", "n", host, first4)} }, host, first4},
		"young, to a smaller id":      {chosen, func(c *choice) { c.others = []roster.Member{member("m1", "x", host, first4)} }, named, second4},
		"young, from a greater id":    {chosen, func(c *choice) { c.others = []roster.Member{member("m9", "x", host, first4)} }, host, first4},
		"old, from a smaller id":      {kept, func(c *choice) { c.others = []roster.Member{member("m1", "x", host, first4)} }, host, first4},
		"another pool":                {kept, func(c *choice) { c.pool = netip.MustParsePrefix("10.9.0.0/16") }, host, topology.Choose4(netip.MustParsePrefix("10.9.0.0/16"), "n", free)},
		"no pool":                     {kept, func(c *choice) { c.pool = netip.Prefix{} }, host, netip.Addr{}},
		"as the operator wants": {kept, func(c *choice) {
			c.six, c.four = netip.MustParseAddr("fd00::7"), netip.MustParseAddr("100.64.0.7")
		}, netip.MustParseAddr("fd00::7"), netip.MustParseAddr("100.64.0.7")},
	} {
		in := base
		c.change(&in)
		in.claims = claimsOf(roster.Result{Members: in.others}, in.id)
		got := c.was.choose(in, now)
		if got.Six != c.six || got.Four != c.four {
			t.Errorf("%s: %v and %v, want %v and %v", name, got.Six, got.Four, c.six, c.four)
		}
		if again := got.choose(in, now.Add(time.Second)); again.Six != got.Six || again.Four != got.Four {
			t.Errorf("%s: the same facts give another choice", name)
		}
	}
	dir := t.TempDir()
	if err := chosen.write(dir); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		node     string
		clusters []string
		counts   bool
	}{
		{"n", []string{"c"}, true},
		{"n", []string{"d", "c"}, true}, // a new secret beside the old one
		{"n", []string{"d"}, false},     // another cluster
		{"o", []string{"c"}, false},     // another name
	} {
		got, err := readOverlay(dir, c.node, c.clusters)
		if err != nil {
			t.Fatal(err)
		}
		if c.counts != (got.Six == chosen.Six && got.Four == chosen.Four && got.Prefix == chosen.Prefix && got.Since.Equal(chosen.Since)) || !slices.Equal(got.Clusters, c.clusters) {
			t.Errorf("%s of %v reads %+v", c.node, c.clusters, got)
		}
	}
}

// TestABrokenOverlayFileIsTold, and replaced; one that is not there is nothing special.
func TestABrokenOverlayFileIsTold(t *testing.T) {
	dir := t.TempDir()
	if got, err := readOverlay(dir, "n", []string{"c"}); err != nil || got.Six.IsValid() {
		t.Errorf("without a file: %+v, %v", got, err)
	}
	for _, text := range []string{"", "\x00\x00", `{"clusters":["c"],"node":"n","overlay6":"fd00::`, `{"clusters":["c"],"node":"n","prefix":"::/0"}`} {
		if err := os.WriteFile(filepath.Join(dir, overlayFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := readOverlay(dir, "n", []string{"c"}); !fault.Has(err, fault.CodeStateCorrupt) || got.Prefix.IsValid() || got.Node != "n" {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

// TestThePrefixOutlivesASecret: it is that of the first secret, for who was there and
// for who comes later.
func TestThePrefixOutlivesASecret(t *testing.T) {
	first, second, named := topology.Overlay6("first"), topology.Overlay6("second"), topology.Overlay6("by name")
	at := func(p netip.Prefix, n byte) roster.Member {
		a := p.Addr().As16()
		a[15] = n
		return roster.Member{Facts: roster.Facts{Node: string(rune('a' + n)), Overlay6: netip.AddrFrom16(a)}}
	}
	strange := roster.Member{Facts: roster.Facts{Node: "z", Overlay6: netip.MustParseAddr("2001:db8::1")}}
	for name, c := range map[string]struct {
		was  netip.Prefix
		in   choice
		want netip.Prefix
	}{
		"alone":                  {netip.Prefix{}, choice{derived: second}, second},
		"who was there":          {first, choice{derived: second}, first},
		"who comes later":        {netip.Prefix{}, choice{derived: second, others: []roster.Member{at(first, 1), at(first, 2), at(second, 3)}}, first},
		"as many of each":        {netip.Prefix{}, choice{derived: second, others: []roster.Member{at(first, 1), at(second, 3)}}, second},
		"no prefix of ours":      {netip.Prefix{}, choice{derived: second, others: []roster.Member{strange, strange}}, second},
		"the operator gave name": {first, choice{derived: second, named: named, others: []roster.Member{at(first, 1)}}, named},
	} {
		if got := (overlay{Node: "n", Prefix: c.was}).prefix(c.in); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
