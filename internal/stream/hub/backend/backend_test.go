// SPDX-License-Identifier: Apache-2.0

package backend_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/stream/hub/backend"
)

// parse gives a table, and what is wrong with it.
func parse(fallback string, all ...v1alpha1.BackendConfig) (backend.Table, string) {
	var wrong []string
	t := backend.Parse(all, fallback, func(path, format string, args ...any) {
		wrong = append(wrong, path+": "+fmt.Sprintf(format, args...))
	})
	return t, strings.Join(wrong, "\n")
}

func vpn() v1alpha1.BackendConfig {
	return v1alpha1.BackendConfig{Name: "vpn", Proxy: "vpn.shoot--p--{cluster}.svc:9443", CA: "/etc/{cluster}/ca.crt",
		Certificate: "/etc/{cluster}/tls.crt", Key: "/etc/{cluster}/tls.key"}
}

func single() v1alpha1.BackendConfig {
	return v1alpha1.BackendConfig{Name: "one", Proxy: "192.0.2.1:9443", ServerName: "vpn-seed-server", CA: "/etc/ca.crt"}
}

func cluster(t *testing.T, name string) id.Cluster {
	t.Helper()
	c, err := id.ParseCluster(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestConfiguration(t *testing.T) {
	change := func(b v1alpha1.BackendConfig, fn func(*v1alpha1.BackendConfig)) v1alpha1.BackendConfig {
		fn(&b)
		return b
	}
	for name, c := range map[string]struct {
		fallback string
		all      []v1alpha1.BackendConfig
		want     string
	}{
		"none":                {},
		"two":                 {"vpn", []v1alpha1.BackendConfig{vpn(), single()}, ""},
		"agents by name":      {"agents", nil, ""},
		"unknown default":     {"vpn2", []v1alpha1.BackendConfig{vpn()}, "defaultBackend: \"vpn2\" is no backend: there are agents, vpn"},
		"one for all":         {"one", []v1alpha1.BackendConfig{single()}, "defaultBackend: the proxy of one has no {cluster}"},
		"twice":               {"", []v1alpha1.BackendConfig{vpn(), vpn()}, "backends[1].name: \"vpn\" is the name of another"},
		"taken":               {"", []v1alpha1.BackendConfig{change(vpn(), func(b *v1alpha1.BackendConfig) { b.Name = "agents" })}, "backends[0].name"},
		"default is no name":  {"", []v1alpha1.BackendConfig{change(vpn(), func(b *v1alpha1.BackendConfig) { b.Name = "default" })}, "backends[0].name"},
		"bad name":            {"", []v1alpha1.BackendConfig{change(vpn(), func(b *v1alpha1.BackendConfig) { b.Name = "a b" })}, "backends[0].name"},
		"no port":             {"", []v1alpha1.BackendConfig{change(vpn(), func(b *v1alpha1.BackendConfig) { b.Proxy = "{cluster}.svc" })}, "backends[0].proxy"},
		"no CA":               {"", []v1alpha1.BackendConfig{change(vpn(), func(b *v1alpha1.BackendConfig) { b.CA = "" })}, "backends[0].ca"},
		"no key":              {"", []v1alpha1.BackendConfig{change(vpn(), func(b *v1alpha1.BackendConfig) { b.Key = "" })}, "backends[0].key"},
		"no certificate":      {"", []v1alpha1.BackendConfig{change(vpn(), func(b *v1alpha1.BackendConfig) { b.Certificate = "" })}, "backends[0].certificate"},
		"of one and of all":   {"", []v1alpha1.BackendConfig{change(single(), func(b *v1alpha1.BackendConfig) { b.CA = "/{cluster}" })}, "backends[0].proxy"},
		"all at once":         {"x", []v1alpha1.BackendConfig{{}}, "backends[0].ca"},
		"more than are taken": {"", make([]v1alpha1.BackendConfig, 9), "backends: 9 backends, at most 8"},
	} {
		_, got := parse(c.fallback, c.all...)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestWhatCarriesACluster(t *testing.T) {
	table, _ := parse("vpn", vpn(), single())
	for own, want := range map[string]string{"": "vpn", "agents": "agents", "one": "one"} {
		if got := table.Of(own); got != want {
			t.Errorf("with %q: %s, want %s", own, got, want)
		}
	}
	if got := (backend.Table{}).Of(""); got != backend.Agents {
		t.Errorf("without a configuration: %s", got)
	}
	p, err := table.Proxy("vpn", cluster(t, "c7"))
	if err != nil || p.Address != "vpn.shoot--p--c7.svc:9443" || p.ServerName != "vpn.shoot--p--c7.svc" || p.CA != "/etc/c7/ca.crt" ||
		p.Certificate != "/etc/c7/tls.crt" || p.Key != "/etc/c7/tls.key" {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := table.Proxy("gone", cluster(t, "c7")); !fault.Has(err, fault.CodeBackendUnknown) {
		t.Error(err)
	}
}

// A proxy of one cluster takes no second one; a backend is there as long as somebody has it or a stream by it.
func TestChoicesAndRemovals(t *testing.T) {
	table, _ := parse("", vpn(), single())
	uses := map[string]backend.Use{"c1": {Own: "one"}, "c2": {Own: "vpn"}, "c3": {Open: map[string]int{"vpn": 2, "agents": 5}}}
	for _, c := range []struct {
		cluster, name string
		want          fault.Code
	}{
		{"c1", "one", ""}, {"c2", "one", fault.CodeConfig}, {"c2", "agents", ""}, {"c2", "", ""}, {"c3", "vpn", ""},
		{"c3", "nothing", fault.CodeBackendUnknown},
	} {
		if err := table.Choose(cluster(t, c.cluster), c.name, uses); (err != nil || c.want != "") && !fault.Has(err, c.want) {
			t.Errorf("%s to %q: %v, want %q", c.cluster, c.name, err, c.want)
		}
	}
	onlyVPN, _ := parse("", vpn())
	onlyOne, _ := parse("", single())
	for name, c := range map[string]struct {
		next backend.Table
		uses map[string]backend.Use
		want []string
	}{
		"nothing goes":         {table, uses, nil},
		"a choice":             {onlyVPN, uses, []string{"cluster c1 has one"}},
		"a choice, streams":    {onlyOne, uses, []string{"cluster c2 has vpn", "cluster c3 has 2 open streams by vpn"}},
		"by default, no agent": {backend.Table{}, map[string]backend.Use{"c1": {By: "vpn"}}, []string{"cluster c1 goes by vpn, and no agent of it is connected"}},
		"by default, agents":   {backend.Table{}, map[string]backend.Use{"c1": {By: "vpn", Ready: true}}, nil},
		"one for two":          {onlyOne, map[string]backend.Use{"c1": {Own: "one", By: "one"}, "c2": {Own: "one", By: "one"}}, []string{"clusters c1 and c2 have one"}},
		"nobody has it":        {onlyOne, map[string]backend.Use{"c1": {Own: "one"}, "c2": {Own: "agents", Open: map[string]int{"vpn": 0}}}, nil},
		"agents are no loss":   {backend.Table{}, map[string]backend.Use{"c3": {Own: "agents", Open: map[string]int{"agents": 5}}}, nil},
	} {
		err := c.next.Replaces(uses)
		if c.uses != nil {
			err = c.next.Replaces(c.uses)
		}
		if (err == nil) != (c.want == nil) || err != nil && !fault.Has(err, fault.CodeBackendInUse) {
			t.Errorf("%s: %v", name, err)
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v does not say %q", name, err, w)
			}
		}
	}
	many := map[string]backend.Use{}
	for i := range 20 {
		many[fmt.Sprintf("c%02d", i)] = backend.Use{Own: "vpn"}
	}
	if err := onlyOne.Replaces(many); err == nil || !strings.Contains(err.Error(), "cluster c04 has vpn; and 15 more") {
		t.Error(err)
	}
}
