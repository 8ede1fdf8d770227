// SPDX-License-Identifier: Apache-2.0

package wireguard

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/member"
)

// cluster is one that has all that it needs.
func cluster(name string, mode Mode, address string, n byte) Cluster {
	return Cluster{name, mode, netip.MustParseAddr(address), keysOf(n).Public, secretOf(n), secretOf(n)}
}

// seed is a configuration with place for two clusters.
func seed(t *testing.T, enabled bool) Config {
	t.Helper()
	raw := rawConfig()
	raw.Enabled, raw.MaxClusters = enabled, 2
	c, problems := parse(raw)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return c
}

func TestEffectiveMode(t *testing.T) {
	for mode, want := range map[Mode][3]bool{ // not configured, not enabled, enabled
		Inherit: {false, false, true}, On: {false, true, true}, Off: {false, false, false},
	} {
		for i, c := range []Config{{Enabled: true}, seed(t, false), seed(t, true)} {
			if got := c.Effective(mode); got != want[i] {
				t.Errorf("%s, case %d: %v", mode, i, got)
			}
		}
	}
}

func TestSettle(t *testing.T) {
	a, b := cluster("a", On, "192.168.128.16", 11), cluster("b", Off, "192.168.128.17", 12)
	third := cluster("c", Inherit, "192.168.128.18", 13)
	unkeyed := third
	unkeyed.PublicKey, unkeyed.PrivateKey = keysOf(20).Public, Secret{}
	for name, c := range map[string]struct {
		config Config
		all    []Cluster
		name   string
		change Change
		want   Cluster
		fault  fault.Code
		why    string
	}{
		"the first question, off": {config: seed(t, false), name: "c", want: Cluster{Name: "c", Mode: Inherit}},
		"the first question, on":  {config: seed(t, true), all: []Cluster{a, b}, name: "c", want: third},
		"on":                      {config: seed(t, false), all: []Cluster{b}, name: "a", change: Change{Mode: On}, want: cluster("a", On, "192.168.128.16", 13)},
		"again":                   {config: seed(t, false), all: []Cluster{a, b}, name: "a", change: Change{Mode: On}, want: a},
		"off keeps all":           {config: seed(t, false), all: []Cluster{a, b}, name: "a", change: Change{Mode: Off}, want: cluster("a", Off, "192.168.128.16", 11)},
		"on again":                {config: seed(t, false), all: []Cluster{a, b}, name: "b", change: Change{Mode: On}, want: cluster("b", On, "192.168.128.17", 12)},
		"a key of its own":        {config: seed(t, true), all: []Cluster{a, b}, name: "c", change: Change{PublicKey: keysOf(20).Public}, want: unkeyed},
		"its own key again":       {config: seed(t, true), all: []Cluster{a, b}, name: "a", change: Change{PublicKey: keysOf(11).Public}, want: a},
		"another's key":           {config: seed(t, true), all: []Cluster{a, b}, name: "c", change: Change{PublicKey: keysOf(11).Public}, fault: fault.CodeWireGuardTaken, why: "cluster a has"},
		"an endpoint's key":       {config: seed(t, true), name: "c", change: Change{PublicKey: keysOf(2).Public}, fault: fault.CodeWireGuardTaken, why: "endpoint e2 has"},
		"without a range":         {name: "c", change: Change{Mode: On}, fault: fault.CodeWireGuardOff, why: "no range"},
		"beyond the cap":          {config: seed(t, true), all: []Cluster{a, cluster("b", On, "192.168.128.17", 12)}, name: "c", fault: fault.CodeLimit, why: "wireguard.maxClusters is 2, and 2 clusters are on"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.config.Settle(c.all, c.name, c.change, keysOf(13))
			if c.fault != "" {
				if !fault.Has(err, c.fault) || !strings.Contains(err.Error(), c.why) || fault.From(err).Next == "" {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil || !got.Same(c.want) {
				t.Errorf("%+v, %v; want %+v", got, err, c.want)
			}
		})
	}
}

// A switch for all does not go around the cap, and a cap that is lowered switches nobody off.
func TestReplaces(t *testing.T) {
	off, on := seed(t, false), seed(t, true) // of two clusters each
	three := []Cluster{cluster("a", On, "192.168.128.16", 1), cluster("b", On, "192.168.128.17", 2), cluster("c", Inherit, "192.168.128.18", 3)}
	if err := on.Replaces(off, three); !fault.Has(err, fault.CodeLimit) || !strings.Contains(err.Error(), "3 clusters would be on") {
		t.Error(err)
	}
	if err := on.Replaces(on, three); err != nil {
		t.Error(err)
	}
	if err := off.Replaces(on, three); err != nil {
		t.Error(err)
	}
}

func TestFits(t *testing.T) {
	c := seed(t, true)
	if err := c.Fits([]Cluster{{Name: "x"}, cluster("a", On, "192.168.128.16", 1)}); err != nil {
		t.Error(err)
	}
	err := c.Fits([]Cluster{cluster("a", Off, "192.168.132.16", 1), cluster("b", On, "192.168.128.15", 2), cluster("c", On, "192.168.128.16", 3)})
	if !fault.Has(err, fault.CodeWireGuardTaken) || !strings.Contains(err.Error(), "a (192.168.132.16), b (192.168.128.15)") {
		t.Error(err)
	}
	var many []Cluster
	for i := range 12 {
		many = append(many, cluster(fmt.Sprint("c", i), On, "10.0.0.1", 1))
	}
	if err := c.Fits(many); !strings.Contains(err.Error(), "c7 (10.0.0.1) and 4 more") {
		t.Error(err)
	}
	if err := (Config{}).Fits(many); err != nil {
		t.Error(err)
	}
}

func TestImport(t *testing.T) {
	a, b := cluster("a", On, "192.168.128.16", 11), cluster("b", Inherit, "192.168.128.17", 12)
	at := func(address string) Cluster { k := b; k.Address = netip.MustParseAddr(address); return k }
	off := Cluster{Name: "b", Mode: Off}
	other := b
	other.PublicKey, other.PrivateKey = member.Key{9}, secretOf(9)
	for name, c := range map[string]struct {
		config Config
		all    []Cluster
		in     Cluster
		fresh  bool
		want   Cluster
		fault  fault.Code
		why    string
	}{
		"with its address":        {config: seed(t, true), all: []Cluster{a}, in: b, want: b},
		"again":                   {config: seed(t, true), all: []Cluster{a, b}, in: b, want: b},
		"again with another one":  {config: seed(t, true), all: []Cluster{a, at("192.168.128.18")}, in: b, fresh: true, want: at("192.168.128.18")},
		"another address":         {config: seed(t, true), all: []Cluster{a}, in: at("10.0.0.1"), fresh: true, want: at("192.168.128.17")},
		"nothing but its mode":    {in: off, want: off},
		"outside of the range":    {config: seed(t, true), in: at("10.0.0.1"), fault: fault.CodeWireGuardTaken, why: "outside of the range 192.168.128.0/22"},
		"an endpoint's":           {config: seed(t, true), in: at("192.168.128.2"), fault: fault.CodeWireGuardTaken, why: "it is not for clusters"},
		"taken":                   {config: seed(t, true), all: []Cluster{a}, in: at("192.168.128.16"), fault: fault.CodeWireGuardTaken, why: "cluster a has it"},
		"no range":                {in: b, fresh: true, fault: fault.CodeWireGuardOff, why: "no range"},
		"here with another key":   {config: seed(t, true), all: []Cluster{b}, in: other, fault: fault.CodeWireGuardTaken, why: "differs in: publicKey, privateKey"},
		"here with another mode":  {config: seed(t, true), all: []Cluster{b}, in: off, fresh: true, fault: fault.CodeWireGuardTaken, why: "differs in: mode, address"},
		"a key that another has":  {config: seed(t, true), all: []Cluster{a}, in: cluster("b", On, "192.168.128.17", 11), fault: fault.CodeWireGuardTaken, why: "cluster a has the public key"},
		"beyond the cap":          {config: seed(t, true), all: []Cluster{a, cluster("c", On, "192.168.128.18", 3)}, in: b, fault: fault.CodeLimit, why: "maxClusters"},
		"beyond the cap, but off": {config: seed(t, true), all: []Cluster{a, cluster("c", On, "192.168.128.18", 3)}, in: cluster("b", Off, "192.168.128.17", 12), want: cluster("b", Off, "192.168.128.17", 12)},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.config.Import(c.all, c.in, c.fresh)
			if c.fault != "" {
				if !fault.Has(err, c.fault) || !strings.Contains(err.Error(), c.why) || fault.From(err).Next == "" {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil || !got.Same(c.want) {
				t.Errorf("%+v, %v; want %+v", got, err, c.want)
			}
		})
	}
}

// TestNoSecretIsPrinted: neither of a cluster nor in an error.
func TestNoSecretIsPrinted(t *testing.T) {
	k := cluster("a", On, "192.168.128.16", 11)
	text := k.Secret.Encode()
	if out := fmt.Sprintf("%v %+v %#v %s", k, k, k, k.Secret); strings.Contains(out, text) {
		t.Error(out)
	}
	if _, err := ParseSecret(text + "x"); err == nil || strings.Contains(err.Error(), text) {
		t.Error(err)
	}
	if back, err := ParseSecret(text); err != nil || !back.equal(k.Secret) {
		t.Error(err)
	}
}
