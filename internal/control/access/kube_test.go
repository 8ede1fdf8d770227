// SPDX-License-Identifier: Apache-2.0

//go:build kube

package access_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/istio"
)

const (
	office, elsewhere, lost = "203.0.113.7", "198.51.100.7", "203.0.113.66"

	gatewayConfig = `    settle: 2s
    gateways:
    - {namespace: istio-ingress, selector: app=gw, enforcement: %s, provider: tombolo,
       connectPorts: [{port: 8132, header: Reversed-VPN}]}
`
	shared = `{apiVersion: v1, kind: Service, metadata: {name: gw, namespace: istio-ingress}, spec: {type: LoadBalancer,
  selector: {app: gw}, ports: [{name: tls, port: 443, targetPort: 9443}, {name: vpn, port: 8132, targetPort: 8132}]}}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: vpn, namespace: istio-ingress}
spec: {selector: {app: gw}, servers: [{hosts: ["*"], port: {name: vpn, number: 8132, protocol: HTTP}}]}
`
)

// cluster are the objects by which one cluster is reached.
func cluster(name string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Namespace, metadata: {name: shoot--p--%[1]s}}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: kube-apiserver, namespace: shoot--p--%[1]s}
spec: {selector: {app: gw}, servers: [
  {hosts: [api.%[1]s.example.org], port: {name: tls, number: 443, protocol: TLS}, tls: {mode: PASSTHROUGH}}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: kube-apiserver, namespace: shoot--p--%[1]s}
spec: {hosts: [api.%[1]s.example.org], gateways: [kube-apiserver], tls: [{match: [{port: 443,
  sniHosts: [api.%[1]s.example.org]}], route: [{destination: {host: kube-apiserver.shoot--p--%[1]s.svc.cluster.local}}]}]}
---
apiVersion: tombolo.dev/v1alpha1
kind: EdgeTenant
metadata: {name: %[1]s, namespace: shoot--p--%[1]s}
spec: {ways: [{flow: api, names: [api.%[1]s.example.org], upstreams: ["10.0.0.1:443"]},
  {flow: vpn, destinations: [outbound|1194||vpn-seed-server.shoot--p--%[1]s.svc.cluster.local]}]}
---
`, name)
}

// allows is a policy with ranges that may reach a cluster; those with a ! may not.
func allows(cluster string, ranges ...string) string {
	out := "apiVersion: tombolo.dev/v1alpha1\nkind: AccessPolicy\nmetadata: {name: " + cluster + "}\nrules:\n"
	for i, r := range ranges {
		verb := "allow"
		if text, deny := strings.CutPrefix(r, "!"); deny {
			verb, r = "deny", text
		}
		out += fmt.Sprintf("- {name: list%d, clusters: [%s], flows: [api, vpn], sources: [%q], %s: ['*']}\n", i, cluster, r, verb)
	}
	return out + "---\n"
}

// settled waits until a policy is in force, and returns its status.
func (x *world) settled(t *testing.T, name string) objects.AccessPolicyStatus {
	t.Helper()
	var o objects.AccessPolicy
	eventually(t, name+" is in force", func() string {
		o = objects.AccessPolicy{}
		x.get(t, &o, "accesspolicy", name)
		for _, kind := range []string{objects.ConditionAccepted, objects.ConditionReady, objects.ConditionCovered} {
			c := meta.FindStatusCondition(o.Status.Conditions, kind)
			if c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != o.Generation {
				return fmt.Sprintf("%+v", o.Status)
			}
		}
		return ""
	})
	return o.Status
}

// agree compares what the stored objects decide with what is wanted: for each cluster the sources that may reach it.
func (x *world) agree(t *testing.T, when, namespace string, wanted map[string][]string) {
	t.Helper()
	eventually(t, when, func() string {
		f := x.facts(t)
		w := istio.Workload{Namespace: namespace, Labels: map[string]string{"app": "gw"}, Provider: "tombolo",
			ConnectPorts: []istio.ConnectPort{{Port: 8132, Header: "reversed-vpn"}}}
		for name, may := range wanted {
			for _, from := range []string{office, elsewhere, lost} {
				for _, flow := range []string{"api", "vpn"} {
					allow, same := decides(f, w, name, flow, from)
					if !same || allow != slices.Contains(may, from) {
						return fmt.Sprintf("%s/%s from %s: allowed %v, known %v", name, flow, from, allow, same)
					}
				}
			}
		}
		if gaps := istio.Coverage(f, w); len(gaps) > 0 {
			return fmt.Sprint(gaps)
		}
		return ""
	})
}

// versions are those of the objects that were written, and the generations of the EnvoyFilters of others at the gateway:
// who owns a field may change.
func (x *world) versions(t *testing.T) map[string]string {
	t.Helper()
	each := func(field string) string {
		return `jsonpath={range .items[*]}{.kind}/{.metadata.namespace}/{.metadata.name} {.metadata.` + field + `}{"\n"}{end}`
	}
	out := map[string]string{}
	for line := range strings.Lines(x.kube(t, "get", "-A", "envoyfilters,authorizationpolicies,configmaps", "-l",
		istio.LabelManagedBy+"="+istio.ManagedBy, "-o", each("resourceVersion")) + x.kube(t, "get", "-n", "istio-ingress",
		"envoyfilters", "-l", istio.LabelManagedBy+"!="+istio.ManagedBy, "-o", each("generation"))) {
		if name, version, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			out[name] = version
		}
	}
	return out
}

func changed(a, b map[string]string) (out []string) {
	for name, version := range b {
		if a[name] != version {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func TestThreeClustersOfAGateway(t *testing.T) {
	t.Parallel()
	x := start(t, fmt.Sprintf(gatewayConfig, istio.Auto))
	x.apply(t, shared+"---\n"+cluster("a")+cluster("b")+cluster("c"))
	one, two := x.replica(t), x.replica(t)
	x.apply(t, allows("a", "203.0.113.0/24")+allows("b", "0.0.0.0/0", "::/0", "!203.0.113.66"))
	everybody := []string{office, elsewhere, lost}
	st := x.settled(t, "a")
	if st.Covered != "2/2" || len(st.Access) != 2 || st.Access[0].Entries[0].Source != "AccessPolicy a" ||
		st.Enforcement != "auto" || !slices.Equal(st.EditEnds, []string{"connections for api.a.example.org at port 9443"}) {
		t.Errorf("%+v", st)
	}
	x.settled(t, "b")
	x.agree(t, "the first lists", "istio-ingress", map[string][]string{
		"a": {office, lost}, "b": {office, elsewhere}, "c": everybody})

	before := x.versions(t)
	x.apply(t, allows("a", "198.51.100.0/24"))
	x.settled(t, "a")
	x.agree(t, "an edit", "istio-ingress", map[string][]string{"a": {elsewhere}, "b": {office, elsewhere}, "c": everybody})
	if got := changed(before, x.versions(t)); !slices.Equal(got, []string{
		"ConfigMap/istio-ingress/tombolo-ext-authz-policies-0", "EnvoyFilter/istio-ingress/tombolo-api-a"}) {
		t.Errorf("an edit of a wrote %q", got)
	}

	x.kube(t, "delete", "envoyfilter", "-n", "istio-ingress", "tombolo-api-a")
	x.kube(t, "patch", "authorizationpolicy", "-n", "istio-ingress", "tombolo-ext-authz", "--type=json",
		`-p=[{"op":"remove","path":"/spec/rules/0"}]`)
	x.agree(t, "drift is put back", "istio-ingress", map[string][]string{"a": {elsewhere}, "b": {office, elsewhere}})

	for _, r := range []*replica{one, two} { // whichever leads
		r.kill()
		x.replica(t)
		x.apply(t, allows("b", "203.0.113.0/24"))
		x.settled(t, "b")
		x.agree(t, "after a replica died", "istio-ingress", map[string][]string{"a": {elsewhere}, "b": {office, lost}})
		x.apply(t, allows("b", "0.0.0.0/0", "::/0", "!203.0.113.66"))
		x.settled(t, "b")
	}

	x.apply(t, `apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: tombolo-api-c, namespace: istio-ingress}
spec: {configPatches: []}
---
`+allows("c", "203.0.113.0/24"))
	eventually(t, "an object of somebody else stays", func() string {
		var o objects.AccessPolicy
		x.get(t, &o, "accesspolicy", "c")
		c := meta.FindStatusCondition(o.Status.Conditions, objects.ConditionReady)
		if c == nil || c.Reason != objects.ReasonUnwritten || !strings.Contains(c.Message, "istio-ingress/tombolo-api-c") {
			return fmt.Sprintf("%+v", o.Status)
		}
		return ""
	})
	if out := x.kube(t, "get", "envoyfilter", "-n", "istio-ingress", "tombolo-api-c", "-o", "jsonpath={.metadata.labels}"); out != "" {
		t.Errorf("it has labels: %s", out)
	}
	x.kube(t, "delete", "envoyfilter", "-n", "istio-ingress", "tombolo-api-c")
	x.settled(t, "c")
	x.agree(t, "three lists", "istio-ingress", map[string][]string{
		"a": {elsewhere}, "b": {office, elsewhere}, "c": {office, lost}})

	x.kube(t, "delete", "accesspolicy", "a")
	x.agree(t, "a has no list", "istio-ingress", map[string][]string{
		"a": everybody, "b": {office, elsewhere}, "c": {office, lost}})
	x.kube(t, "delete", "edgetenant", "-n", "shoot--p--b", "b")
	x.kube(t, "delete", "accesspolicies", "--all")
	x.kube(t, "delete", "edgetenants", "-A", "--all")
	eventually(t, "nothing is left", func() string { return strings.Join(changed(nil, x.versions(t)), " ") })
}

func TestGatewaysMoveAndBadInputChangesNothing(t *testing.T) {
	t.Parallel()
	x := start(t, fmt.Sprintf(gatewayConfig, istio.EnvoyFilters))
	x.apply(t, shared+"---\n"+cluster("a")+cluster("b")+allows("a", "203.0.113.0/24"))
	r := x.replica(t)
	x.settled(t, "a")
	wanted := map[string][]string{"a": {office, lost}, "b": {office, elsewhere, lost}}
	x.agree(t, "envoyfilter", "istio-ingress", wanted)

	for _, enforcement := range []string{istio.Policies, istio.Auto, istio.EnvoyFilters} {
		r.kill()
		x.features = "  access:\n" + fmt.Sprintf(gatewayConfig, enforcement)
		r = x.replica(t)
		eventually(t, "the move to "+enforcement, func() string {
			f := x.facts(t)
			w := istio.Workload{Namespace: "istio-ingress", Labels: map[string]string{"app": "gw"}, Provider: "tombolo",
				ConnectPorts: []istio.ConnectPort{{Port: 8132, Header: "reversed-vpn"}}}
			for _, flow := range []string{"api", "vpn"} { // at every moment
				if allow, _ := decides(f, w, "a", flow, elsewhere); allow {
					t.Fatalf("a/%s is open to %s", flow, elsewhere)
				}
			}
			var o objects.AccessPolicy
			x.get(t, &o, "accesspolicy", "a")
			if gaps := istio.Coverage(f, w); len(gaps) > 0 || o.Status.Enforcement != enforcement ||
				!meta.IsStatusConditionTrue(o.Status.Conditions, objects.ConditionReady) {
				return fmt.Sprint(gaps, o.Status)
			}
			return ""
		})
		x.agree(t, enforcement, "istio-ingress", wanted)
	}

	before := x.versions(t)
	x.apply(t, allows("a", "nonsense"))
	eventually(t, "it is refused", func() string {
		var o objects.AccessPolicy
		x.get(t, &o, "accesspolicy", "a")
		if s := o.Status; s.Refused == nil || s.Refused.Path != "rules[0].sources[0]" || s.Refused.InForce == nil ||
			meta.IsStatusConditionTrue(s.Conditions, objects.ConditionAccepted) {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
	if got := changed(before, x.versions(t)); len(got) > 0 {
		t.Errorf("bad input wrote %q", got)
	}
	r.kill()
	r = x.replica(t)
	x.apply(t, allows("b", "198.51.100.0/24")) // what was in force is known from the status
	x.settled(t, "b")
	wanted["b"] = []string{elsewhere}
	x.agree(t, "after a restart", "istio-ingress", wanted)
	if events := x.kube(t, "get", "events", "-o", "jsonpath={.items[*].reason}"); !strings.Contains(events, "AcceptedInvalid") {
		t.Errorf("events: %s", events)
	}

	x.apply(t, allows("a", "203.0.113.0/24"))
	x.settled(t, "a")
	r.kill()
	x.features = "  access:\n" + strings.Replace(fmt.Sprintf(gatewayConfig, istio.EnvoyFilters), "istio-ingress", "istio-other", 1) +
		"    formerNamespaces: [istio-ingress]\n"
	for _, kind := range []string{"service/gw", "gateway.networking.istio.io/vpn"} { // the gateway moves
		x.kube(t, "delete", "-n", "istio-ingress", kind)
	}
	x.apply(t, strings.ReplaceAll(shared, "istio-ingress", "istio-other"))
	r = x.replica(t)
	eventually(t, "the gateway moved", func() string {
		for name := range x.versions(t) {
			if strings.Contains(name, "/istio-ingress/") {
				return name
			}
		}
		return ""
	})
	x.agree(t, "in the other namespace", "istio-other", wanted)

	r.kill() // what is deleted while nobody is there holds until somebody is: decision 0029
	before = x.versions(t)
	x.kube(t, "delete", "accesspolicies", "--all")
	x.kube(t, "delete", "edgetenants", "-A", "--all")
	if got := changed(before, x.versions(t)); len(before) == 0 || len(got) > 0 {
		t.Errorf("of %d objects, these changed without a controller: %q", len(before), got)
	}
	x.replica(t)
	eventually(t, "nothing is left", func() string { return strings.Join(changed(nil, x.versions(t)), " ") })
}
