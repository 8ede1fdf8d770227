// SPDX-License-Identifier: Apache-2.0

//go:build kube

package access_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/istio"
)

// shoot are the objects of a shoot at its seed, except its list.
func shoot(name string) string {
	text, _, _ := strings.Cut(cluster(name), "apiVersion: tombolo.dev")
	return text + fmt.Sprintf(`apiVersion: extensions.gardener.cloud/v1alpha1
kind: Cluster
metadata: {name: shoot--p--%[1]s}
spec:
  cloudProfile: {}
  seed: {metadata: {name: eu1}, spec: {networks: {nodes: 10.250.0.0/16, pods: 10.96.0.0/11}, ingress: {domain: ingress.eu1.example}}}
  shoot:
    metadata: {name: %[1]s, namespace: garden-p}
    spec: {networking: {nodes: 10.180.0.0/16}, provider: {workers: [{name: w}]}}
    status: {technicalID: shoot--p--%[1]s, advertisedAddresses: [{name: external, url: "https://api.%[1]s.example.org"}]}
---
apiVersion: extensions.gardener.cloud/v1alpha1
kind: Infrastructure
metadata: {name: %[1]s, namespace: shoot--p--%[1]s}
spec: {type: local}
---
`, name)
}

// extension is the list of a shoot, with an operation that gardenlet asks for.
func extension(name, operation, action string, ranges ...string) string {
	ask := ""
	if operation != "" {
		ask = fmt.Sprintf(", annotations: {gardener.cloud/operation: %s}", operation)
	}
	return fmt.Sprintf(`apiVersion: extensions.gardener.cloud/v1alpha1
kind: Extension
metadata: {name: acl, namespace: shoot--p--%s%s}
spec: {type: acl, providerConfig: {rule: {action: %s, type: remote_ip, cidrs: ["%s"]}}}
---
`, name, ask, action, strings.Join(ranges, `", "`))
}

// stored is an Extension as it is stored.
type stored struct {
	Metadata struct {
		Generation      int64
		ResourceVersion string
		Annotations     map[string]string
	}
	Status struct {
		ObservedGeneration int64
		LastOperation      struct{ Type, State, Description string }
		LastError          *struct {
			Description string
			Codes       []string
		}
	}
}

func (x *world) extension(t *testing.T, name string) (out stored) {
	t.Helper()
	x.get(t, &out, "extensions.extensions.gardener.cloud", "-n", "shoot--p--"+name, "acl")
	return out
}

// answered waits until gardenlet has its answer.
func (x *world) answered(t *testing.T, name, kind, state string) (out stored) {
	t.Helper()
	eventually(t, name+" is answered: "+kind+" "+state, func() string {
		out = x.extension(t, name)
		s := out.Status
		if s.LastOperation.Type != kind || s.LastOperation.State != state || s.ObservedGeneration != out.Metadata.Generation ||
			out.Metadata.Annotations["gardener.cloud/operation"] != "" || (s.LastError != nil) != (state == "Error") {
			return fmt.Sprintf("%+v", out)
		}
		return ""
	})
	return out
}

// made are the objects that were written for Extensions, with their versions.
func (x *world) made(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for line := range strings.Lines(x.kube(t, "get", "-A", "accesspolicies,edgetenants", "-o",
		`jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.generation}{"\n"}{end}`)) {
		if name, version, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			out[name] = version
		}
	}
	return out
}

// appears waits until a list is written for a shoot.
func (x *world) appears(t *testing.T, name string) {
	t.Helper()
	eventually(t, name+" is written", func() string {
		if got := x.made(t); got["AccessPolicy/"+name] == "" || got["EdgeTenant/"+name] == "" {
			return fmt.Sprint(got)
		}
		return ""
	})
}

const readsExtensions = gatewayConfig + "    gardener: {answer: %v}\n"

func TestGardenersListsAreReadAndAnswered(t *testing.T) {
	t.Parallel()
	x := start(t, fmt.Sprintf(readsExtensions, istio.EnvoyFilters, true))
	x.apply(t, shared+"---\n"+shoot("a")+shoot("b"))
	x.apply(t, extension("a", "reconcile", "allow", "203.0.113.0/24"))
	r := x.replica(t)
	wanted := map[string][]string{"shoot--p--a": {office, lost}}
	x.answered(t, "a", "Create", "Succeeded")
	x.settled(t, "shoot--p--a")
	x.agree(t, "the first list", "istio-ingress", wanted)

	x.apply(t, extension("a", "reconcile", "ALLOW", "198.51.100.0/24"))
	x.answered(t, "a", "Reconcile", "Succeeded")
	wanted["shoot--p--a"] = []string{elsewhere}
	x.agree(t, "an edit", "istio-ingress", wanted)

	before := x.made(t)
	x.apply(t, extension("a", "reconcile", "ALLOW", "203.0.113.7/24"))
	bad := x.answered(t, "a", "Reconcile", "Error")
	if e := bad.Status.LastError; !strings.HasPrefix(e.Description, `spec.providerConfig.rule.cidrs[0]: "203.0.113.7/24" has host bits set`) ||
		!slices.Equal(e.Codes, []string{"ERR_CONFIGURATION_PROBLEM"}) {
		t.Errorf("%+v", e)
	}
	eventually(t, "an event", func() string {
		events := x.kube(t, "get", "events", "-n", "shoot--p--a", "-o", "jsonpath={.items[*].reason}")
		if !strings.Contains(events, "ListRefused") {
			return events
		}
		return ""
	})
	r.kill()
	x.replica(t)
	x.apply(t, extension("b", "restore", "ALLOW", "203.0.113.0/24")) // proof that the new one works
	x.answered(t, "b", "Restore", "Succeeded")
	wanted["shoot--p--b"] = []string{office, lost}
	x.agree(t, "a restart with a bad list", "istio-ingress", wanted)
	after := x.made(t)
	for name, version := range before {
		if after[name] != version {
			t.Errorf("a bad list changed %s", name)
		}
	}

	x.apply(t, extension("a", "", "DENY", "203.0.113.0/24"))
	x.answered(t, "a", "Reconcile", "Succeeded")
	wanted["shoot--p--a"] = []string{elsewhere}
	x.agree(t, "a list of denied ranges", "istio-ingress", wanted)
	x.apply(t, extension("a", "", "ALLOW", "203.0.113.66/32"))
	wanted["shoot--p--a"] = []string{lost}
	x.agree(t, "another action", "istio-ingress", wanted)
	x.kube(t, "patch", "infrastructure.extensions.gardener.cloud", "-n", "shoot--p--a", "a", "--subresource=status", "--type=merge",
		`-p={"status":{"egressCIDRs":["198.51.100.7/32"]}}`)
	wanted["shoot--p--a"] = []string{elsewhere, lost}
	x.agree(t, "other egress", "istio-ingress", wanted)
	x.kube(t, "delete", "accesspolicy", "shoot--p--a")
	x.appears(t, "shoot--p--a")
	x.settled(t, "shoot--p--a")
	x.agree(t, "drift", "istio-ingress", wanted)

	x.apply(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: shoot-info, namespace: kube-system},
  data: {nodeNetworks: "10.250.0.0/16,203.0.113.7/32"}}`)
	wanted["shoot--p--a"] = []string{office, elsewhere, lost}
	x.agree(t, "another network of the seed", "istio-ingress", wanted)

	x.apply(t, shoot("d")) // it sleeps
	x.kube(t, "delete", "gateways.networking.istio.io,virtualservices", "-n", "shoot--p--d", "kube-apiserver")
	x.apply(t, extension("d", "reconcile", "ALLOW", "203.0.113.66/32"))
	x.answered(t, "d", "Create", "Succeeded")
	x.apply(t, cluster("d")[:strings.Index(cluster("d"), "apiVersion: tombolo.dev")]) // it wakes up
	x.settled(t, "shoot--p--d")
	wanted["shoot--p--d"] = []string{office, lost} // and the seed's
	x.agree(t, "a shoot that slept", "istio-ingress", wanted)

	x.apply(t, shoot("c")+extension("c", "reconcile", "ALLOW", "203.0.113.0/33"))
	closed := x.answered(t, "c", "Create", "Error")
	if e := closed.Status.LastError; !strings.HasPrefix(e.Description, "only the platform gets in until a list is accepted: ") {
		t.Errorf("%+v", e)
	}
	wanted["shoot--p--c"] = []string{office} // the seed's
	x.agree(t, "a first list that is bad", "istio-ingress", wanted)
	x.apply(t, extension("c", "reconcile", "ALLOW", "203.0.113.0/24"))
	x.answered(t, "c", "Create", "Succeeded")
	wanted["shoot--p--c"] = []string{office, lost}
	x.agree(t, "it is mended", "istio-ingress", wanted)
	x.kube(t, "patch", "clusters.extensions.gardener.cloud", "shoot--p--c", "--type=merge",
		`-p={"spec":{"shoot":{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"}}}}`)
	x.kube(t, "patch", "extensions.extensions.gardener.cloud", "-n", "shoot--p--c", "acl", "--type=merge",
		`-p={"metadata":{"finalizers":["extensions.gardener.cloud/acl-extension-service"]}}`)
	x.kube(t, "delete", "extensions.extensions.gardener.cloud", "-n", "shoot--p--c", "acl") // waits until it is gone
	x.apply(t, extension("b", "reconcile", "ALLOW", "203.0.113.0/24"))                      // a later pass
	x.answered(t, "b", "Reconcile", "Succeeded")
	x.agree(t, "a shoot that is deleted", "istio-ingress", wanted)
	x.kube(t, "delete", "clusters.extensions.gardener.cloud", "shoot--p--c")

	x.kube(t, "annotate", "extensions.extensions.gardener.cloud", "-n", "shoot--p--a", "acl", "gardener.cloud/operation=migrate")
	x.answered(t, "a", "Migrate", "Succeeded")
	delete(wanted, "shoot--p--c")
	x.agree(t, "the shoot moves", "istio-ingress", wanted)
	x.kube(t, "delete", "extensions.extensions.gardener.cloud", "-A", "--all")
	eventually(t, "nothing is left", func() string {
		return strings.Join(append(changed(nil, x.versions(t)), changed(nil, x.made(t))...), " ")
	})
}

func TestGardenersListsAreReadBesideItsExtension(t *testing.T) {
	t.Parallel()
	x := start(t, fmt.Sprintf(readsExtensions, istio.EnvoyFilters, false))
	x.apply(t, shared+"---\n"+shoot("a")+shoot("b")+extension("a", "reconcile", "ALLOW", "203.0.113.0/24"))
	x.apply(t, extension("b", "", "ALLOW", "2001:db8::1/64"))
	x.apply(t, allows("shoot--p--b", "203.0.113.0/24")) // somebody else's
	before := x.extension(t, "a")
	x.replica(t)
	x.appears(t, "shoot--p--a")
	x.settled(t, "shoot--p--a")
	x.agree(t, "a list", "istio-ingress", map[string][]string{"shoot--p--a": {office, lost}})
	x.apply(t, extension("b", "", "ALLOW", "198.51.100.0/24"))
	eventually(t, "an event about the other's policy", func() string {
		events := x.kube(t, "get", "events", "-n", "shoot--p--b", "-o", "jsonpath={.items[*].message}")
		if !strings.Contains(events, "AccessPolicy shoot--p--b: it is somebody else's") {
			return events
		}
		return ""
	})
	if after := x.extension(t, "a"); after.Metadata.ResourceVersion != before.Metadata.ResourceVersion {
		t.Errorf("%+v, and was %+v", after, before)
	}
	if got := x.made(t); got["EdgeTenant/shoot--p--b"] != "" || got["AccessPolicy/shoot--p--b"] != "1" {
		t.Errorf("%v", got)
	}
	x.kube(t, "delete", "extensions.extensions.gardener.cloud", "-A", "--all")
	eventually(t, "only the other's is left", func() string {
		if got := changed(nil, x.made(t)); !slices.Equal(got, []string{"AccessPolicy/shoot--p--b"}) {
			return strings.Join(got, " ")
		}
		return ""
	})
}
