// SPDX-License-Identifier: Apache-2.0

package acl

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/gardener"
	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/control/clusters"
)

func from[T any](t *testing.T, text string, args ...any) (out T) {
	t.Helper()
	if err := json.Unmarshal(fmt.Appendf(nil, text, args...), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

const (
	clusterText = `{"metadata": {"name": "%[1]s"}, "spec": {
"seed": {"metadata": {"name": "eu1"}, "spec": {"networks": {"nodes": "10.250.0.0/16", "pods": "10.96.0.0/11"},
  "ingress": {"domain": "ingress.eu1.example"}}},
"shoot": {"metadata": {"name": "s", "namespace": "garden-p"}, "spec": {"networking": {"nodes": "10.180.0.0/16"},
  "provider": {"workers": [{"name": "a"}]}}, "status": {"technicalID": "%[1]s",
  "advertisedAddresses": [{"name": "external", "url": "https://api.%[1]s.example"}]}}}}`
	extensionText = `{"metadata": {"name": "acl", "namespace": "%s"}, "spec": {"type": "acl", "providerConfig": {"rule":
  {"action": "%s", "type": "remote_ip", "cidrs": ["%s"]}}}}`
)

func list(t *testing.T, ns, action, cidr string) extension {
	return extension{Extension: from[gardener.Extension](t, extensionText, ns, action, cidr), Generation: 1}
}

// seed has one shoot with a list.
func seed(t *testing.T, more ...string) facts {
	f := facts{Clusters: map[string]gardener.Cluster{}, Infrastructures: map[string]gardener.Infrastructure{}}
	for _, ns := range append([]string{"shoot--p--s"}, more...) {
		f.Extensions = append(f.Extensions, list(t, ns, "ALLOW", "203.0.113.0/24"))
		f.Clusters[ns] = from[gardener.Cluster](t, clusterText, ns)
		f.Infrastructures[ns+"/s"] = from[gardener.Infrastructure](t,
			`{"metadata": {"name": "s", "namespace": "%s"}, "status": {"egressCIDRs": ["198.51.100.7/32"]}}`, ns)
	}
	return f
}

// done stores what is planned.
func (p planned) done(f facts) facts {
	for _, o := range p.write {
		switch o := o.(type) {
		case *objects.AccessPolicy:
			f.Policies = append(slices.DeleteFunc(slices.Clone(f.Policies), func(x objects.AccessPolicy) bool { return x.Name == o.Name }), *o)
		case *objects.EdgeTenant:
			f.Tenants = append(slices.DeleteFunc(slices.Clone(f.Tenants), func(x objects.EdgeTenant) bool { return x.Name == o.Name }), *o)
		}
	}
	return f
}

func names(list []client.Object) (out []string) {
	for _, o := range list {
		out = append(out, strings.TrimPrefix(fmt.Sprintf("%T ", o), "*v1alpha1.")+o.GetNamespace()+"/"+o.GetName())
	}
	return out
}

var both = []string{"AccessPolicy /shoot--p--s", "EdgeTenant shoot--p--s/shoot--p--s"}

func TestALabelledListIsWrittenOnce(t *testing.T) {
	f := seed(t)
	p := decide(f, options{Most: 50})
	if !slices.Equal(names(p.write), both) || len(p.remove) > 0 || p.outcomes[0].refused() {
		t.Fatal(names(p.write), p.outcomes)
	}
	for _, o := range p.write {
		if !ours(o, "shoot--p--s") {
			t.Errorf("%v", o.GetLabels())
		}
	}
	if again := decide(p.done(f), options{Most: 50}); len(again.write)+len(again.remove) > 0 {
		t.Errorf("%v, %v", names(again.write), names(again.remove))
	}
}

// What is written can be read by those who read such objects, and means the list.
func TestWhatIsWrittenMeansTheList(t *testing.T) {
	for _, c := range []struct {
		action, cidr   string
		in, out        []string
		always, closed bool
	}{
		{"ALLOW", "203.0.113.0/24", []string{"203.0.113.7", "10.250.0.1", "10.96.0.1", "10.180.0.1", "198.51.100.7", "192.0.2.1"}, []string{"8.8.8.8"}, true, true},
		{"allow", "203.0.113.0/24", []string{"203.0.113.7", "10.180.0.1", "198.51.100.7"}, []string{"8.8.8.8"}, true, true},
		{"deny", "203.0.113.0/24", []string{"8.8.8.8", "10.250.0.1", "192.0.2.1"}, []string{"203.0.113.7"}, true, false},
	} {
		f := seed(t)
		f.Extensions[0] = list(t, "shoot--p--s", c.action, c.cidr)
		additional := istio.ReadAlways([]string{"192.0.2.1"})
		f = decide(f, options{Additional: additional}).done(f)
		m := clusters.Memory{Always: additional}
		w := m.Read([]clusters.Policy{{Name: f.Policies[0].Name, Content: f.Policies[0].AccessContent}},
			[]clusters.Tenant{{Name: f.Tenants[0].Name, Namespace: f.Tenants[0].Namespace, Spec: f.Tenants[0].Spec}})
		if len(w.Clusters) != 1 || len(w.Held()) > 0 || len(w.Tenants[0].Refused) > 0 || len(w.Policies[0].Refused) > 0 {
			t.Fatalf("%+v", w)
		}
		flows := map[string]bool{}
		for _, way := range w.Clusters[0].Ways {
			flows[way.Flow] = true
			for _, a := range c.in {
				if !way.List.Admits(netip.MustParseAddr(a)) {
					t.Errorf("%s: %s is refused in %s", c.action, a, way.Flow)
				}
			}
			for _, a := range c.out {
				if way.List.Admits(netip.MustParseAddr(a)) {
					t.Errorf("%s: %s is let in in %s", c.action, a, way.Flow)
				}
			}
		}
		if len(flows) != 4 {
			t.Errorf("%v", flows)
		}
		for _, r := range f.Policies[0].Rules {
			if r.Name == gardener.RuleAdditional {
				t.Error("the controller's own ranges are said twice")
			}
		}
	}
}

func TestBadInputChangesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*facts)
		want   string
		users  bool
	}{
		"host bits":         {func(f *facts) { f.Extensions[0] = list(t, "shoot--p--s", "ALLOW", "192.0.2.1/24") }, `spec.providerConfig.rule.cidrs[0]: "192.0.2.1/24" has host bits set`, true},
		"IPv4-mapped":       {func(f *facts) { f.Extensions[0] = list(t, "shoot--p--s", "ALLOW", "::ffff:192.0.2.0/120") }, "spec.providerConfig.rule.cidrs[0]: ", true},
		"too many":          {func(f *facts) { f.Extensions[0] = list(t, "shoot--p--s", "ALLOW", `192.0.2.0/24", "203.0.113.0/24`) }, "at most 1 are accepted", true},
		"denied nodes":      {func(f *facts) { f.Extensions[0] = list(t, "shoot--p--s", "DENY", "10.180.7.0/24") }, "is locked out", true},
		"denied additional": {func(f *facts) { f.Extensions[0] = list(t, "shoot--p--s", "DENY", "192.0.2.0/24") }, "operator's configuration additionalRanges: 192.0.2.0/24 is locked out", true},
		"the author": {func(f *facts) {
			f.Extensions[0].Metadata.Annotations = map[string]string{gardener.AnnotationAuthor: "8.8.8.8"}
		}, "the author of the list, at 8.8.8.8 is locked out", true},
		"the Shoot's author": {func(f *facts) {
			c := f.Clusters["shoot--p--s"]
			c.Spec.Shoot.Metadata.Annotations = map[string]string{gardener.AnnotationAuthor: "2001:db8::1"}
			f.Clusters["shoot--p--s"] = c
		}, "2001:db8::1 is locked out", true},
		"no author": {func(f *facts) {
			f.Extensions[0].Metadata.Annotations = map[string]string{gardener.AnnotationAuthor: "me"}
		}, "metadata.annotations[tombolo.dev/author-address]: it is no address", false},
		"no Cluster":           {func(f *facts) { delete(f.Clusters, "shoot--p--s") }, "Cluster shoot--p--s: it is missing", false},
		"no Infrastructure":    {func(f *facts) { delete(f.Infrastructures, "shoot--p--s/s") }, "Infrastructure shoot--p--s/s: it is missing", false},
		"a broken Cluster":     {func(f *facts) { f.Broken = map[string]string{"Cluster shoot--p--s": "no JSON"} }, "Cluster shoot--p--s: no JSON", false},
		"broken shoot-info":    {func(f *facts) { f.Broken = map[string]string{shootInfo: "no JSON"} }, shootInfo + ": no JSON", false},
		"another technical id": {func(f *facts) { f.Clusters["shoot--p--s"] = from[gardener.Cluster](t, clusterText, "shoot--p--x") }, "and not the Extension's namespace", false},
		"somebody else's":      {func(f *facts) { f.Policies[0].Labels = nil }, "AccessPolicy shoot--p--s: it is somebody else's", false},
		"somebody else's way":  {func(f *facts) { f.Tenants[0].Labels = nil }, "EdgeTenant shoot--p--s/shoot--p--s: it is somebody else's", false},
		"a list that moves now": {func(f *facts) {
			f.Extensions[0].Metadata.Annotations = map[string]string{annotationOperation: askMigrate}
		}, "", false},
		"a list that moved": {func(f *facts) {
			f.Extensions[0].Status.LastOperation = &operation{Type: opMigrate, State: stateSucceeded}
			f.Extensions[0].Metadata.DeletionTimestamp = "2026-01-01T00:00:00Z"
			f.Clusters = nil
		}, "", false},
	} {
		o := options{Most: 1, Additional: istio.ReadAlways([]string{"192.0.2.0/24"})}
		f := seed(t)
		f = decide(f, o).done(f)
		c.change(&f)
		p := decide(f, o)
		text, users := refusal(p.outcomes[0].problems)
		if len(p.write)+len(p.remove) > 0 || !strings.Contains(text, c.want) || (c.want == "") != (text == "") || users != c.users {
			t.Errorf("%s: write %v, remove %v; %v %s", name, names(p.write), names(p.remove), users, text)
		}
	}
}

func TestAForcedListIsWritten(t *testing.T) {
	f := seed(t)
	f.Extensions[0] = list(t, "shoot--p--s", "DENY", "10.180.7.0/24")
	c := f.Clusters["shoot--p--s"]
	c.Spec.Shoot.Metadata.Annotations = map[string]string{gardener.AnnotationForce: "true"}
	f.Clusters["shoot--p--s"] = c
	p := decide(f, options{})
	if !slices.Equal(names(p.write), both) || !strings.Contains(notice(p.outcomes[0].problems), "locked out") {
		t.Errorf("%v: %v", names(p.write), p.outcomes[0].problems)
	}
}

// Where nobody else guards a cluster, it is not open because its first list is bad.
func TestAFirstListThatIsRefusedClosesTheCluster(t *testing.T) {
	o := options{Closes: true}
	bad := func(f *facts) { f.Extensions[0] = list(t, "shoot--p--s", "ALLOW", "192.0.2.1/24") }
	f := seed(t)
	bad(&f)
	if p := decide(f, options{}); len(p.write) > 0 {
		t.Errorf("beside Gardener's extension: %v", names(p.write))
	}
	unknown := f
	unknown.Infrastructures = nil
	if p := decide(unknown, o); len(p.write) > 0 {
		t.Errorf("an unknown platform: %v", names(p.write))
	}
	other := f
	other.Tenants = []objects.EdgeTenant{{}}
	other.Tenants[0].Namespace, other.Tenants[0].Name = "shoot--p--s", "shoot--p--s"
	if p := decide(other, o); len(p.write) > 0 {
		t.Errorf("somebody else's: %v", names(p.write))
	}
	p := decide(f, o)
	if !slices.Equal(names(p.write), both) || !p.outcomes[0].refused() || !p.outcomes[0].closed {
		t.Fatalf("%v", names(p.write))
	}
	f = p.done(f)
	var rules []string
	for _, r := range f.Policies[0].Rules {
		rules = append(rules, r.Group+"/"+r.Name)
	}
	if !slices.Equal(rules, []string{"platform/seed-nodes", "platform/seed-pods", "platform/shoot-egress", "platform/shoot-nodes"}) {
		t.Errorf("%v", rules)
	}
	if p := decide(f, o); len(p.write) > 0 || !p.outcomes[0].closed {
		t.Errorf("again: %v", names(p.write))
	}
	f.Infrastructures["shoot--p--s/s"] = from[gardener.Infrastructure](t, `{"status": {"egressCIDRs": ["198.51.100.9/32"]}}`)
	if p := decide(f, o); !slices.Equal(names(p.write), both[:1]) {
		t.Errorf("other egress: %v", names(p.write))
	}
	f.Extensions[0] = list(t, "shoot--p--s", "ALLOW", "192.0.2.0/24")
	p = decide(f, o)
	if !slices.Equal(names(p.write), both[:1]) || p.outcomes[0].closed {
		t.Errorf("mended: %v", names(p.write))
	}
	f = p.done(f)
	bad(&f)
	if p := decide(f, o); len(p.write)+len(p.remove) > 0 || p.outcomes[0].closed {
		t.Errorf("bad once more: %v", names(p.write))
	}
}

// Extensions go before API servers do.
func TestAShootThatEndsStaysGuarded(t *testing.T) {
	for name, change := range map[string]func(*gardener.Shoot){
		"it is deleted": func(s *gardener.Shoot) { s.Metadata.DeletionTimestamp = "2026-01-01T00:00:00Z" },
		"it moves": func(s *gardener.Shoot) {
			*s = from[gardener.Shoot](t, `{"status": {"lastOperation": {"type": "Migrate"}}}`)
		},
		"it will move": func(s *gardener.Shoot) { s.Spec.SeedName, s.Status.SeedName = "b", "a" },
	} {
		f := seed(t)
		f = decide(f, options{}).done(f)
		c := f.Clusters["shoot--p--s"]
		change(&c.Spec.Shoot)
		f.Clusters["shoot--p--s"] = c
		f.Extensions[0].Metadata.DeletionTimestamp = "2026-01-01T00:00:00Z"
		if p := decide(f, options{}); len(p.remove)+len(p.write) > 0 {
			t.Errorf("%s: %v", name, names(p.remove))
		}
		f.Extensions = nil
		if p := decide(f, options{}); len(p.remove)+len(p.write) > 0 {
			t.Errorf("%s, and the Extension is gone: %v", name, names(p.remove))
		}
		f.Clusters = nil
		if p := decide(f, options{}); len(p.remove) != 2 {
			t.Errorf("%s, and all is gone: %v", name, names(p.remove))
		}
	}
}

// A policy is in force as soon as it is read; that of a shoot whose ways nobody knows yet guards nothing.
func TestAListIsInForce(t *testing.T) {
	yes := func(kind, reason string, status metav1.ConditionStatus) []metav1.Condition {
		return []metav1.Condition{{Type: kind, Status: status, Reason: reason, Message: "because", ObservedGeneration: 1}}
	}
	ready := yes(objects.ConditionReady, objects.ReasonInForce, metav1.ConditionTrue)
	pending := yes(objects.ConditionReady, objects.ReasonPending, metav1.ConditionFalse)
	asleep := append(slices.Clone(pending), yes(objects.ConditionCovered, objects.ReasonNoGateway, metav1.ConditionUnknown)...)
	for name, c := range map[string]struct {
		policy, tenant []metav1.Condition
		change         func(*facts)
		want           string
	}{
		"both":               {policy: ready, tenant: ready},
		"no gateway":         {policy: asleep, tenant: ready},
		"an unknown tenant":  {policy: ready, want: "the list is written, and not yet in force"},
		"a new policy":       {tenant: ready, want: "the list is written, and not yet in force"},
		"a tenant that wait": {policy: ready, tenant: pending, want: "EdgeTenant shoot--p--s/shoot--p--s is not ready: because"},
		"a policy that wait": {policy: pending, tenant: ready, want: "AccessPolicy shoot--p--s is not ready: because"},
		"an edit":            {policy: ready, tenant: ready, change: func(f *facts) { f.Extensions[0] = list(t, "shoot--p--s", "ALLOW", "192.0.2.0/24") }, want: "the list is being written"},
		"an old status":      {policy: ready, tenant: ready, change: func(f *facts) { f.Policies[0].Generation = 2 }, want: "the list is written, and not yet in force"},
		"nothing yet":        {change: func(f *facts) { f.Policies, f.Tenants = nil, nil }, want: "the list is being written"},
	} {
		f := seed(t)
		f = decide(f, options{}).done(f)
		f.Policies[0].Generation, f.Tenants[0].Generation = 1, 1
		f.Policies[0].Status.Conditions, f.Tenants[0].Status.Conditions = c.policy, c.tenant
		if c.change != nil {
			c.change(&f)
		}
		if got := decide(f, options{}).outcomes[0].waits(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Any input leads to a new decision.
func TestEveryInputCounts(t *testing.T) {
	for name, change := range map[string]func(*facts){
		"egress": func(f *facts) {
			f.Infrastructures["shoot--p--s/s"] = from[gardener.Infrastructure](t, `{"status": {"egressCIDRs": ["198.51.100.9/32"]}}`)
		},
		"the list": func(f *facts) { f.Extensions[0] = list(t, "shoot--p--s", "ALLOW", "192.0.2.0/24") },
		"shootinfo": func(f *facts) {
			f.ShootInfo = &gardener.ConfigMap{Data: map[string]string{"podNetworks": "2001:db8::/64"}}
		},
		"the gateway": func(f *facts) {
			f.ShootInfo = &gardener.ConfigMap{Data: map[string]string{"egressCIDRs": "203.0.113.255/32"}}
			f.Gateways = []gardener.Service{{}, from[gardener.Service](t, `{"status": {"loadBalancer": {"ingress": [{"ipMode": "Proxy"}]}}}`)}
		},
		"drift": func(f *facts) { f.Policies[0].Rules = f.Policies[0].Rules[:1] },
	} {
		f := seed(t)
		f = decide(f, options{}).done(f)
		change(&f)
		if p := decide(f, options{}); !slices.Equal(names(p.write), both[:1]) {
			t.Errorf("%s: %v, %v", name, names(p.write), p.outcomes[0].problems)
		}
	}
	f := seed(t)
	f = decide(f, options{}).done(f)
	c := f.Clusters["shoot--p--s"]
	c.Spec.Shoot.Status.AdvertisedAddresses = append(c.Spec.Shoot.Status.AdvertisedAddresses, gardener.Address{Name: "internal", URL: "https://x.example"})
	f.Clusters["shoot--p--s"] = c
	if p := decide(f, options{}); !slices.Equal(names(p.write), both[1:]) {
		t.Errorf("a new name: %v", names(p.write))
	}
}

func TestAListThatEndsLeavesNothing(t *testing.T) {
	back := []string{both[1], both[0]}
	for name, c := range map[string]struct {
		change func(*facts)
		want   []string
	}{
		"gone":                       {func(f *facts) { f.Extensions = f.Extensions[1:] }, back},
		"being deleted":              {func(f *facts) { f.Extensions[0].Metadata.DeletionTimestamp = "2026-01-01T00:00:00Z" }, back},
		"gone, and so is its tenant": {func(f *facts) { f.Extensions, f.Tenants = f.Extensions[1:], f.Tenants[1:] }, back[1:]},
		"gone, and its policy is somebody else's": {func(f *facts) { f.Extensions, f.Policies[0].Labels = f.Extensions[1:], nil }, back[:1]},
		"a copy of ours by another name": {func(f *facts) {
			c := f.Policies[0]
			c.Name = "copy"
			f.Policies = append(f.Policies, c)
		}, []string{"AccessPolicy /copy"}},
	} {
		f := seed(t, "shoot--p--x")
		f = decide(f, options{}).done(f)
		c.change(&f)
		if p := decide(f, options{}); !slices.Equal(names(p.remove), c.want) || len(p.write) > 0 {
			t.Errorf("%s: remove %v, write %v", name, names(p.remove), names(p.write))
		}
	}
}

func TestTwoListsOfACluster(t *testing.T) {
	f := seed(t)
	second := list(t, "shoot--p--s", "ALLOW", "192.0.2.0/24")
	second.Metadata.Name = "zcl"
	f.Extensions = []extension{second, f.Extensions[0]}
	p := decide(f, options{})
	if text, _ := refusal(p.outcomes[1].problems); !slices.Equal(names(p.write), both) || p.outcomes[0].refused() || !strings.Contains(text, "the Extension acl") {
		t.Errorf("%v: %v", names(p.write), text)
	}
}
