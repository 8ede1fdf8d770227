// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
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
	if first.certificate.pin.IsZero() || again.certificate.pin != first.certificate.pin {
		t.Errorf("the certificates %v and %v", first.certificate.pin, again.certificate.pin)
	}
	for _, name := range []string{keyFile, certificateFile} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v: %v", name, info.Mode(), err)
		}
		text, _ := os.ReadFile(filepath.Join(dir, name))
		s := state{key: first}
		for _, shown := range []string{fmt.Sprint(first), fmt.Sprintf("%v", first), fmt.Sprintf("%#v", first), fmt.Sprintf("%+v", first.certificate), fmt.Sprintf("%#v", s.key)} {
			if strings.Contains(shown, strings.TrimSpace(string(text))) {
				t.Errorf("%s is shown", name)
			}
		}
		seed := first.certificate.signer.Get().Seed()
		if all := fmt.Sprintf("%v %+v", first.certificate, &first.certificate); strings.Contains(all, strings.Trim(fmt.Sprint(seed), "[]")) {
			t.Error("the bytes of a private key are shown")
		}
	}
}

// TestACertificateComesWithItsKey: one that is missing is drawn, as beside the key of an older version; without the key
// both are new ones.
func TestACertificateComesWithItsKey(t *testing.T) {
	dir := t.TempDir()
	first, err := readKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		removed string
		key     bool // it stays
	}{{certificateFile, true}, {keyFile, false}} {
		if err := os.Remove(filepath.Join(dir, c.removed)); err != nil {
			t.Fatal(err)
		}
		next, err := readKey(dir)
		if err != nil || (next.public == first.public) != c.key || next.certificate.pin == first.certificate.pin {
			t.Errorf("without %s: %v and %v, %v", c.removed, next.public, next.certificate.pin, err)
		}
		again, err := readKey(dir)
		if err != nil || again.public != next.public || again.certificate.pin != next.certificate.pin {
			t.Errorf("without %s, at the start after that: %v and %v, %v", c.removed, again.public, again.certificate.pin, err)
		}
		first = next
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
		for _, file := range []string{keyFile, certificateFile} {
			dir := t.TempDir()
			if _, err := readKey(dir); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, file)
			if err := errors.Join(os.WriteFile(path, []byte(c.text), c.mode), os.Chmod(path, c.mode)); err != nil {
				t.Fatal(err)
			}
			if _, err := readKey(dir); !fault.Has(err, c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %s: %v, want %s", file, name, err, c.want)
			}
			if left, _ := os.ReadFile(path); string(left) != c.text {
				t.Errorf("%s: %s: the file was changed", file, name)
			}
		}
	}
}

// hasFour is a member that one source knows with an address of the pool.
func hasFour(tier roster.Tier, id string, four netip.Addr) roster.Member {
	from := roster.Source{Tier: tier, Name: "s"}
	return roster.Member{
		Facts: member.Facts{ID: id, Node: "x", Overlay4: four}, Tier: tier,
		Sources: map[roster.Field][]roster.Source{roster.FieldOverlay4: {from}},
		Entries: []roster.Entry{{Source: from, ID: id}},
	}
}

func TestOverlayAddresses(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	prefix, pool := member.Overlay6("c"), netip.MustParsePrefix("100.112.0.0/12")
	base := choice{clusters: []string{"c"}, derived: prefix, pool: pool}
	fresh := overlay{ID: "m5"}
	chosen := fresh.choose(base, now)
	six := member.Address6(prefix, "m5")
	first4 := member.Address4(pool, "m5", func(netip.Addr) bool { return false })
	second4 := member.Address4(pool, "m5", func(a netip.Addr) bool { return a == first4 })
	third4 := member.Address4(pool, "m5", func(a netip.Addr) bool { return a == first4 || a == second4 })
	listed := func(m roster.Member) roster.Member { // by a file on this machine, too
		from := roster.Source{Tier: roster.TierStatic, Name: "members.yaml"}
		m.ID, m.Tier, m.Entries = "x", roster.TierStatic, append([]roster.Entry{{Source: from, ID: "x"}}, m.Entries...)
		return m
	}
	for name, c := range map[string]struct {
		was       overlay
		change    func(*choice)
		six, four netip.Addr
		gave      bool
	}{
		"alone":                     {fresh, func(*choice) {}, six, first4, false},
		"another has the first":     {fresh, func(c *choice) { c.others = []roster.Member{hasFour(roster.TierNative, "m9", first4)} }, six, second4, false},
		"and one in Kubernetes":     {fresh, func(c *choice) { c.others = []roster.Member{hasFour(roster.TierKubernetes, "m9", first4)} }, six, second4, false},
		"both, from the smaller id": {chosen, func(c *choice) { c.others = []roster.Member{hasFour(roster.TierNative, "m1", first4)} }, six, second4, true},
		"both, and it has the next": {chosen, func(c *choice) {
			c.others = []roster.Member{hasFour(roster.TierNative, "m1", first4), hasFour(roster.TierNative, "m2", second4)}
		}, six, third4, true},
		"both, from the smaller id, which a file lists": {chosen, func(c *choice) {
			c.others = []roster.Member{listed(hasFour(roster.TierNative, "m1", first4))}
		}, six, second4, true},
		"both, from the greater id, which a file lists": {chosen, func(c *choice) {
			c.others = []roster.Member{listed(hasFour(roster.TierNative, "m9", first4))}
		}, six, first4, false},
		"both, from the greater id":   {chosen, func(c *choice) { c.others = []roster.Member{hasFour(roster.TierNative, "m9", first4)} }, six, first4, false},
		"a smaller id without a word": {chosen, func(c *choice) { c.others = []roster.Member{hasFour(roster.TierKubernetes, "m1", first4)} }, six, first4, false},
		"another pool": {chosen, func(c *choice) { c.pool = netip.MustParsePrefix("10.9.0.0/16") }, six,
			member.Address4(netip.MustParsePrefix("10.9.0.0/16"), "m5", func(netip.Addr) bool { return false }), false},
		"no pool": {chosen, func(c *choice) { c.pool = netip.Prefix{} }, six, netip.Addr{}, false},
		"as the operator wants": {chosen, func(c *choice) {
			c.six, c.four = netip.MustParseAddr("fd00::7"), netip.MustParseAddr("100.64.0.7")
		}, netip.MustParseAddr("fd00::7"), netip.MustParseAddr("100.64.0.7"), false},
		"what the operator wants is kept": {overlay{ID: "m5", Four: first4}, func(c *choice) {
			c.four, c.others = first4, []roster.Member{hasFour(roster.TierNative, "m1", first4)}
		}, six, first4, false},
	} {
		in := base
		c.change(&in)
		got := c.was.choose(in, now)
		if got.Six != c.six || got.Four != c.four || (got.Gave != nil) != c.gave {
			t.Errorf("%s: %v and %v, gave %+v; want %v and %v", name, got.Six, got.Four, got.Gave, c.six, c.four)
		}
		if again := got.choose(in, now.Add(time.Second)); !again.sameAddresses(got) {
			t.Errorf("%s: the same facts give another choice", name)
		}
	}
	dir := t.TempDir()
	if err := chosen.write(dir); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		id                string
		clusters          []string
		prefix, addresses bool
	}{
		{"m5", []string{"c"}, true, true},
		{"m5", []string{"d", "c"}, true, true}, // a new secret beside the old one
		{"m5", []string{"d"}, false, false},    // another cluster
		{"m6", []string{"c"}, true, false},     // another member
	} {
		got, err := readOverlay(dir, c.id, c.clusters)
		if err != nil {
			t.Fatal(err)
		}
		if c.prefix != (got.Prefix == prefix) || c.addresses != got.sameAddresses(chosen) || got.ID != c.id {
			t.Errorf("%s of %v reads %+v", c.id, c.clusters, got)
		}
	}
}

// TestAfterAPartition: two members with one address, whichever sees the other first, come to
// different ones, and it is the greater id that moves.
func TestAfterAPartition(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	c := choice{derived: member.Overlay6("c"), pool: netip.MustParsePrefix("100.112.0.0/12")}
	four := netip.MustParseAddr("100.112.0.9")
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		nodes := []overlay{{ID: "m1", Four: four}, {ID: "m2", Four: four}}
		for range 3 {
			for _, i := range order {
				o := nodes[1-i]
				in := c
				in.others = []roster.Member{hasFour(roster.TierNative, o.ID, o.Four)}
				nodes[i] = nodes[i].choose(in, now)
			}
		}
		if nodes[0].Four != four || nodes[1].Four == four || nodes[1].Gave == nil || nodes[1].Gave.Address != four || nodes[1].Gave.fault().Code != fault.CodeOverlay {
			t.Errorf("in the order %v they have %v and %v, and tell %+v", order, nodes[0].Four, nodes[1].Four, nodes[1].Gave)
		}
	}
}

// TestABrokenOverlayFileIsTold, and replaced; one that is not there is nothing special.
func TestABrokenOverlayFileIsTold(t *testing.T) {
	dir := t.TempDir()
	if got, err := readOverlay(dir, "m5", []string{"c"}); err != nil || got.Six.IsValid() {
		t.Errorf("without a file: %+v, %v", got, err)
	}
	for _, text := range []string{"", "\x00\x00", `{"clusters":["c"],"id":"m5","overlay6":"fd00::`, `{"clusters":["c"],"id":"m5","prefix":"::/0"}`} {
		if err := os.WriteFile(filepath.Join(dir, overlayFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := readOverlay(dir, "m5", []string{"c"}); !fault.Has(err, fault.CodeStateCorrupt) || got.Prefix.IsValid() || got.ID != "m5" {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

// TestThePrefixOutlivesASecret: it is that of the first secret, for who was there and
// for who comes later.
func TestThePrefixOutlivesASecret(t *testing.T) {
	first, second, named := member.Overlay6("first"), member.Overlay6("second"), member.Overlay6("by name")
	at := func(p netip.Prefix, n byte) roster.Member {
		a := p.Addr().As16()
		a[15] = n
		return roster.Member{Facts: member.Facts{Node: string(rune('a' + n)), Overlay6: netip.AddrFrom16(a)}}
	}
	strange := roster.Member{Facts: member.Facts{Node: "z", Overlay6: netip.MustParseAddr("2001:db8::1")}}
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
		if got := (overlay{Prefix: c.was}).prefix(c.in); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
