// SPDX-License-Identifier: Apache-2.0

package extauthz

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/authz"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/kube/kubetest"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/edge/tenant"
	"github.com/tombolo-io/tombolo/internal/edge/tenantfile"
)

// TestEntriesLinger: an entry that moves to another ConfigMap is never gone, and one that is gone goes after a while.
func TestEntriesLinger(t *testing.T) {
	e := entries{map[string]string{}, map[string]time.Time{}}
	begin := time.Unix(1000, 0)
	for i, step := range []struct {
		at      time.Duration
		all     map[string]string
		changed string
		gone    string
	}{
		{0, map[string]string{"a": "1", "b": "1"}, "a b", ""},
		{0, map[string]string{"a": "1", "b": "2"}, "b", ""},
		{0, map[string]string{"a": "1"}, "", ""},                    // b moves
		{linger / 2, map[string]string{"a": "1", "b": "2"}, "", ""}, // and is there again
		{linger, map[string]string{"b": "2"}, "", ""},
		{2*linger - 1, map[string]string{"b": "2"}, "", ""},
		{2 * linger, map[string]string{"b": "2"}, "", "a"},
		{3 * linger, map[string]string{"b": "2"}, "", ""},
		{3 * linger, map[string]string{"a": "1", "b": "2"}, "a", ""},
	} {
		changed, gone := e.next(step.all, begin.Add(step.at))
		if got := strings.Join(slices.Sorted(maps.Keys(changed)), " "); got != step.changed {
			t.Errorf("step %d: changed %q, want %q", i, got, step.changed)
		}
		if got := strings.Join(gone, " "); got != step.gone {
			t.Errorf("step %d: gone %q, want %q", i, got, step.gone)
		}
	}
}

// TestConfigMapsOfAController: lists and tenants of ConfigMaps count within moments, a bad list keeps the last good
// one or closes its cluster, and an API server that is away takes nothing.
func TestConfigMapsOfAController(t *testing.T) {
	s := kubetest.New(t)
	s.Mangle(func(r *http.Request, w http.ResponseWriter) bool {
		if got := r.URL.Query().Get("labelSelector"); got != "app.kubernetes.io/managed-by=tombolo" {
			http.Error(w, "selects "+got, http.StatusBadRequest)
			return true
		}
		return false
	})
	put := func(name string, data map[string]string) {
		t.Helper()
		text, err := json.Marshal(map[string]any{"metadata": map[string]any{"namespace": "gateways"}, "data": data})
		if err != nil {
			t.Fatal(err)
		}
		s.Put(kubetest.ConfigMaps, name, string(text))
	}
	list := func(cluster, sources string) string {
		return `{"apiVersion":"tombolo.dev/v1alpha1","kind":"AccessPolicy","rules":[{"name":"r","clusters":["` + cluster +
			`"],"flows":["api"],"sources":["` + sources + `"],"allow":["*"]}]}`
	}
	way := func(cluster, host string) string {
		return `{"apiVersion":"tombolo.dev/v1alpha1","kind":"EdgeTenant","metadata":{"name":"` + cluster +
			`"},"spec":{"ways":[{"flow":"api","names":["` + host + `"],"upstreams":["192.0.2.1:443"]}]}}`
	}
	put("tombolo-ext-authz-policies-0", map[string]string{"c1.yaml": list("c1", "203.0.113.0/24")})
	put("tombolo-ext-authz-tenants-0", map[string]string{"c1.yaml": way("c1", "c1.k"), "c2.yaml": way("c2", "c2.k")})
	put("other", map[string]string{"c3.yaml": way("c3", "c3.k")})

	rules, tenants := authz.NewTable(), tenant.NewTable()
	log := slog.New(slog.NewTextHandler(io.MultiWriter(t.Output()), nil))
	feed := tenantfile.NewFeed(tenantfile.FeedOptions{Source: "ConfigMaps", Book: tenantfile.NewBook(tenants), Log: log,
		Now: time.Now, Reloaded: func(error) {}})
	m := NewConfigMaps(ConfigMapOptions{Client: s.Client(t, "x"), Namespace: "gateways", Policy: rules, Tenants: feed,
		Log: log, Reloaded: func(error) {}})
	g := run.NewGroup(t.Context())
	g.Go("config-maps", func(ctx context.Context) error { return m.Run(ctx) })
	t.Cleanup(func() {
		g.Stop()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	admits := func(host, from string) bool {
		route, known := tenants.ByName(host, nil)
		return known && rules.Decide(policy.Request{Cluster: route.Tenant.Name, Flow: "api", Port: 443,
			Source: netip.MustParseAddr(from)}).Allow
	}
	eventually := func(what string, is func() bool) { t.Helper(); runtest.Eventually(t, what, is) }
	<-feed.Heard()
	if !admits("c1.k", "203.0.113.1") || admits("c1.k", "192.0.2.1") || !admits("c2.k", "192.0.2.1") ||
		admits("c3.k", "192.0.2.1") {
		t.Fatal("the first list is not what the ConfigMaps say")
	}
	put("tombolo-ext-authz-policies-0", map[string]string{"c1.yaml": list("c1", "192.0.2.0/24")})
	eventually("the list changes", func() bool { return admits("c1.k", "192.0.2.1") && !admits("c1.k", "203.0.113.1") })
	put("tombolo-ext-authz-policies-0", map[string]string{"c1.yaml": "rules: 1", "c2.yaml": "rules: 1"})
	eventually("a cluster whose first list is bad is closed", func() bool { return !admits("c2.k", "192.0.2.1") })
	if !admits("c1.k", "192.0.2.1") || admits("c1.k", "203.0.113.1") {
		t.Error("a bad list did not keep what was in force")
	}
	s.Away(true)
	eventually("that the API server is away is told", func() bool { return feed.Status().Away != "" })
	if !admits("c1.k", "192.0.2.1") || admits("c2.k", "192.0.2.1") {
		t.Error("an API server that is away took something")
	}
	s.Away(false)
	put("tombolo-ext-authz-policies-0", map[string]string{"c1.yaml": list("c1", "203.0.113.0/24")})
	eventually("it is followed again", func() bool { return admits("c1.k", "203.0.113.1") })
	eventually("a list that is gone goes", func() bool { return admits("c2.k", "192.0.2.1") })
}
