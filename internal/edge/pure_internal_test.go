// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/edge/tenant"
	"github.com/tombolo-io/tombolo/internal/edge/tenantfile"
)

func TestInTurn(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	for _, c := range []struct {
		turn    uint64
		ejected map[string]time.Time
		want    string
	}{
		{0, nil, "[a b c]"},
		{1, nil, "[b c a]"},
		{5, nil, "[c a b]"},
		{0, map[string]time.Time{"a": at(9)}, "[b c a]"},
		{1, map[string]time.Time{"a": at(9), "b": at(5)}, "[c b a]"}, // who is tried again first comes first
		{0, map[string]time.Time{"a": at(9), "b": at(5), "c": at(7)}, "[b c a]"},
	} {
		got := inTurn([]string{"a", "b", "c"}, c.turn, func(u string) time.Time { return c.ejected[u] })
		if fmt.Sprint(got) != c.want {
			t.Errorf("turn %d, %v: %v, want %s", c.turn, c.ejected, got, c.want)
		}
	}
	if got := inTurn(nil, 3, func(string) time.Time { return time.Time{} }); len(got) > 0 {
		t.Error(got)
	}
}

func TestEjection(t *testing.T) {
	now := time.Unix(100, 0)
	u := newUpstreams(func() time.Time { return now }, nil)
	at := func(s string) tenant.Upstream { return tenant.Upstream{Address: s} }
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30, 30, 30, 30, 30} {
		u.note(at("a"), false)
		if got := u.failing[at("a")].until.Sub(now); got != want*time.Second {
			t.Errorf("ejected for %v, want %v s", got, int(want))
		}
	}
	if got := u.Failing(); !slices.Equal(got, []string{"a"}) {
		t.Error(got)
	}
	u.note(at("a"), true)
	if len(u.failing) > 0 || len(u.Failing()) > 0 {
		t.Error("one that answers is still remembered")
	}
	for i := range 2 * mostEjected {
		u.note(at(fmt.Sprint(i)), false)
	}
	if len(u.failing) != mostEjected {
		t.Errorf("%d upstreams are remembered", len(u.failing))
	}
	now = now.Add(time.Minute)
	if u.note(at("new"), false); len(u.failing) != 1 {
		t.Errorf("%d upstreams are remembered after their time", len(u.failing))
	}
}

func TestParseConfigRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"tenants: [a]\n":  "listeners: there is no listener",
		"listeners: []\n": "tenants: there is no file, hub or Kubernetes with tenants: nothing could be reached",
		"tenants: [a]\nlisteners: [{name: a, listen: ':1', protocol: tls, unknownName: closed}]\n":                                             `listeners[0].unknownName: "closed" is neither alert nor close; did you mean close?`,
		"tenants: [a]\nlisteners: [{name: a, listen: ':1', protocol: connect, unknownName: close}]\n":                                          `listeners[0].unknownName: it is about server names`,
		"tenants: [a]\nlisteners: [{name: a, listen: ':1', protocol: tlss}]\n":                                                                 `e.yaml:4:47: listeners[0].protocol: "tlss" is neither tls nor connect; did you mean tls?`,
		"tenants: [a]\nlisteners: [{name: a, listen: ':1', protocol: tls}]\nhubs: [{name: h1, address: a, certificate: f}]\n":                  "hubs[0].address",
		"tenants: [a]\nlisteners: [{name: a, listen: ':1', protocol: tls}]\nhubs: [{name: h1, address: 'a:1'}]\n":                              "hubs[0].certificate: there is none",
		"tenants: [a]\nhubs: [{name: h1, address: 'a:1', certificate: f}, {name: h1, address: 'b:1', certificate: f}]\n":                       "hubs[1].name: another hub has the name",
		"tenants: [a]\nlisteners: [{name: A b, listen: ':1', protocol: tls}]\n":                                                                "listeners[0].name",
		"tenants: [a]\nlisteners: [{name: a, listen: x, protocol: tls}]\n":                                                                     "listeners[0].listen",
		"tenants: [a]\nlisteners: [{name: a, listen: ':1', protocol: tls}, {name: a, listen: ':2', protocol: tls}]\n":                          "listeners[1].name: listeners[0] has the name",
		"tenants: [a]\nlisteners: [{name: a, listen: ':1', protocol: tls}, {name: b, listen: ':1', protocol: tls}]\n":                          "listeners[1].listen: listeners[0] listens on",
		"tenants: [a]\nlisteners: [{name: a, listen: ':1', protocol: tls, proxyProtocol: {from: [10.0.0.1/8, 'x', '::ffff:10.0.0.0/104']}}]\n": "did you mean 10.0.0.0/8",
		"tenants: [a]\nlimits: {perSource: -1}\n":                                                                                              "limits.perSource: -1 is negative",
	} {
		_, err := ParseConfig("e.yaml", []byte("apiVersion: tombolo.dev/v1alpha1\nkind: EdgeConfig\n"+text))
		if !fault.Has(err, fault.CodeConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", text, err, want)
		}
	}
}

func TestMostTunnels(t *testing.T) {
	c := newCounts()
	for i, n := range []int{2, 5, 1, 5, 3} {
		for range n {
			if err := c.enter(string(rune('a'+i)), 10, 100); err != nil {
				t.Fatal(err)
			}
		}
	}
	for n, want := range map[int]string{1: "[{b 5}]", 3: "[{b 5} {d 5} {e 3}]", 9: "[{b 5} {d 5} {e 3} {a 2} {c 1}]"} {
		if got, clusters := c.most(n); fmt.Sprint(got) != want || clusters != 5 {
			t.Errorf("%d: %v of %d, want %s", n, got, clusters, want)
		}
	}
}

// FuzzParseConfig: every file is either refused with a place, or names listeners and tenants.
func FuzzParseConfig(f *testing.F) {
	f.Add([]byte("apiVersion: tombolo.dev/v1alpha1\nkind: EdgeConfig\ntenants: [a]\n" +
		"listeners: [{name: a, listen: ':1', protocol: tls, proxyProtocol: {from: [10.0.0.0/8, '::1']}}]\nlimits: {perSource: 3}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := ParseConfig("e.yaml", b)
		if err != nil {
			if !fault.Has(err, fault.CodeConfig) {
				t.Fatalf("%v", err)
			}
			return
		}
		if len(c.Listeners) == 0 || c.Total <= 0 || c.Source <= 0 || c.PerCluster <= 0 || c.Drain <= 0 || c.DialTimeout <= 0 {
			t.Fatalf("%+v", c)
		}
		for _, l := range c.Listeners {
			for _, p := range l.Trusted {
				if !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() {
					t.Fatalf("%v", p)
				}
			}
		}
	})
}

// What a list that was cut short does not have may exist.
func TestAListThatIsCutRemovesNothing(t *testing.T) {
	table := tenant.NewTable()
	o := objects{tenantfile.NewFeed(tenantfile.FeedOptions{
		Source: "Kubernetes", Book: tenantfile.NewBook(table), Log: slog.New(slog.DiscardHandler), Now: time.Now,
		Reloaded: func(error) {},
	})}
	list := func(name string) map[string]json.RawMessage {
		return map[string]json.RawMessage{"ns/" + name: json.RawMessage(`{"apiVersion":"tombolo.dev/v1alpha1",
			"kind":"EdgeTenant","metadata":{"name":"` + name + `"},"spec":{"ways":[{"flow":"api","names":["` + name +
			`.k"],"upstreams":["a:1"]}]}}`)}
	}
	for _, c := range []struct {
		name string
		cut  bool
		want [2]bool // c1, c2
	}{
		{"c1", false, [2]bool{true, false}},
		{"c2", true, [2]bool{true, true}},
		{"c2", false, [2]bool{false, true}},
	} {
		o.Whole(list(c.name), c.cut)
		_, c1 := table.ByName("c1.k", nil)
		_, c2 := table.ByName("c2.k", nil)
		if got := [2]bool{c1, c2}; got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
