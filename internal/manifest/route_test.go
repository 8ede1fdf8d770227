// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/route"
)

func routeOptions(change func(*RouteOptions)) RouteOptions {
	o := RouteDefaults()
	o.Image, o.Run, o.Cluster, o.Secret = "tombolo.local/tombolo:dev", "example/shell:v1", "c1", "c1-backup"
	o.Hubs, o.Ranges = []string{"hub.example.com:8443"}, []string{"10.244.0.0/16"}
	if change != nil {
		change(&o)
	}
	return o
}

func asSidecar(o *RouteOptions) {
	o.Kind, o.Run, o.Workload, o.Namespace = RouteSidecar, "", "backup", "shop"
}

func withNames(o *RouteOptions) {
	o.DNS, o.Zone, o.Nameservers = "10.96.0.10", "c1.internal", []string{"10.100.0.10"}
}

// routePods is the pod of each form, as the golden files have it.
func routePods(t *testing.T) map[string]any {
	t.Helper()
	out := map[string]any{}
	for name, make := range cases() {
		if !strings.HasPrefix(name, "route-") {
			continue
		}
		data, err := make()
		if err != nil {
			t.Fatal(err)
		}
		docs := decode(t, data)
		for _, kind := range []string{"Deployment", "StatefulSet", "DaemonSet"} {
			if docs[kind] != nil {
				out[name] = at(t, docs[kind], "spec", "template", "spec")
			}
		}
	}
	if len(out) != 5 {
		t.Fatalf("%d pods", len(out))
	}
	return out
}

// TestRoutePodsAskForOneCapability: routed mode is the one container that is root, with one right of root's.
func TestRoutePodsAskForOneCapability(t *testing.T) {
	for name, pod := range routePods(t) {
		for _, want := range []struct {
			path  []any
			value any
		}{
			{[]any{"restartPolicy"}, "Always"}, // what makes it a sidecar
			{[]any{"startupProbe", "httpGet", "path"}, "/livez"},
			{[]any{"readinessProbe", "httpGet", "path"}, "/readyz"},
			{[]any{"livenessProbe", "httpGet", "path"}, "/livez"},
			{[]any{"securityContext", "runAsUser"}, 0},
			{[]any{"securityContext", "runAsNonRoot"}, false}, // the pod may say otherwise
			{[]any{"securityContext", "allowPrivilegeEscalation"}, false},
			{[]any{"securityContext", "readOnlyRootFilesystem"}, true},
			{[]any{"securityContext", "capabilities", "add"}, []any{"NET_ADMIN"}},
			{[]any{"securityContext", "capabilities", "drop"}, []any{"ALL"}},
			{[]any{"securityContext", "seccompProfile", "type"}, "RuntimeDefault"},
		} {
			if got := at(t, pod, append([]any{"initContainers", 0}, want.path...)...); !reflect.DeepEqual(got, want.value) {
				t.Errorf("%s: %v is %v, want %v", name, want.path, got, want.value)
			}
		}
		at(t, pod, "initContainers", 0, "resources", "limits", "memory")
		if strings.Contains(name, "sidecar") {
			if pod.(map[string]any)["containers"] != nil || pod.(map[string]any)["securityContext"] != nil {
				t.Errorf("%s changes what is the workload's own", name)
			}
			continue
		}
		got := at(t, pod, "containers", 0, "securityContext", "capabilities", "drop")
		if !reflect.DeepEqual(got, []any{"ALL"}) {
			t.Errorf("%s: the workload has capabilities: %v", name, got)
		}
	}
}

// TestRouteAsksItsOwnResolverFirst: only a policy of None keeps the cluster's server from being the first, and the
// program itself must not ask itself for its hubs.
func TestRouteAsksItsOwnResolverFirst(t *testing.T) {
	for name, pod := range routePods(t) {
		policy := pod.(map[string]any)["dnsPolicy"]
		if !strings.Contains(name, "names") {
			if policy != nil {
				t.Errorf("%s: dnsPolicy is %v", name, policy)
			}
			continue
		}
		servers, want := at(t, pod, "dnsConfig", "nameservers"), []any{"192.0.0.53", "10.100.0.10"}
		if policy != "None" || !reflect.DeepEqual(servers, want) {
			t.Errorf("%s: %v, %v", name, policy, servers)
		}
		mounts := at(t, pod, "initContainers", 0, "volumeMounts").([]any)
		if got := at(t, mounts[len(mounts)-1], "mountPath"); got != "/etc/resolv.conf" {
			t.Errorf("%s: the program asks itself", name)
		}
	}
}

// TestRouteConfigIsOne gives the ConfigMap's file to the program's own parser, which has the same defaults as this
// package.
func TestRouteConfigIsOne(t *testing.T) {
	for name, change := range map[string]func(*RouteOptions){
		"plain": nil, "sidecar": asSidecar, "names": withNames,
		"both families": func(o *RouteOptions) {
			withNames(o)
			o.Maps, o.DNS = []string{"fd00:10::/64=fd00:20::/64"}, "[fd00:10::a]:5353"
		},
		"IPv6": func(o *RouteOptions) { withNames(o); o.Ranges = []string{"fd00:10::/64"} },
	} {
		o := routeOptions(change)
		data, err := Route(o)
		if err != nil {
			t.Fatal(name, err)
		}
		text := at(t, decode(t, data)["ConfigMap"], "data", "route.yaml").(string)
		got, err := route.ParseConfig("route.yaml", []byte(text))
		if err != nil {
			t.Fatal(name, err)
		}
		if got.RunDir != RunDir || got.HealthListen != ":8448" || got.Drain != o.DrainTimeout || len(got.Clusters) != 1 ||
			got.Clusters[0].Certificate != "/etc/tombolo/certificate/c1.pem" || !slices.Equal(got.Clusters[0].Hubs, o.Hubs) ||
			len(got.Table.Ranges()) != len(o.Ranges)+len(o.Maps) || len(got.Names) == 0 != (o.DNS == "") {
			t.Errorf("%s: the program would read %+v", name, got)
		}
		whole, err := route.ParseConfig("default.yaml", []byte(`apiVersion: tombolo.dev/v1alpha1
kind: RouteConfig
clusters:
- {name: c1, hubs: ["h:1"], certificate: /c.pem, ranges: [{range: 10.0.0.0/8}], dns: {server: 10.0.0.10}}
`))
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range got.Addresses {
			if !slices.Contains(whole.Addresses, a) {
				t.Errorf("%s: %s is not by default an address of the link", name, a)
			}
		}
		for _, a := range got.Resolver {
			if !slices.Contains(whole.Resolver, a) {
				t.Errorf("%s: %s is not by default a resolver", name, a)
			}
		}
		if name == "plain" && len(got.Addresses) != 1 {
			t.Errorf("an address of a family without ranges: %v", got.Addresses)
		}
	}
}

// TestRouteParts: the parts are the whole, for the two commands that take one each.
func TestRouteParts(t *testing.T) {
	part := func(only string) map[string]map[string]any {
		data, err := Route(routeOptions(func(o *RouteOptions) { asSidecar(o); o.Only = only }))
		if err != nil {
			t.Fatal(err)
		}
		return decode(t, data)
	}
	whole, objects, patch := part(""), part(RouteObjects), part(RoutePatch)
	if len(whole) != 2 || len(objects) != 1 || len(patch) != 1 || !reflect.DeepEqual(whole["ConfigMap"], objects["ConfigMap"]) ||
		!reflect.DeepEqual(whole["Deployment"], patch["Deployment"]) {
		t.Errorf("%v\n%v\n%v", whole, objects, patch)
	}
}

func TestRouteProblems(t *testing.T) {
	sidecar := func(change func(*RouteOptions)) func(*RouteOptions) {
		return func(o *RouteOptions) { asSidecar(o); change(o) }
	}
	named := func(change func(*RouteOptions)) func(*RouteOptions) {
		return func(o *RouteOptions) { withNames(o); change(o) }
	}
	for name, tc := range map[string]struct {
		change func(*RouteOptions)
		want   string
	}{
		"no image":           {func(o *RouteOptions) { o.Image = "" }, "--image: is missing"},
		"kind":               {func(o *RouteOptions) { o.Kind = "pod" }, "--kind: \"pod\" is not one of sidecar, deployment"},
		"nothing to run":     {func(o *RouteOptions) { o.Run = "" }, "--run: is missing: routes are those of a pod"},
		"odd image to run":   {func(o *RouteOptions) { o.Run = "A:b" }, "--run: \"A:b\" is not the name of an image"},
		"stray workload":     {func(o *RouteOptions) { o.Workload = "x" }, "--workload: means nothing without --kind sidecar"},
		"no workload":        {sidecar(func(o *RouteOptions) { o.Workload = "" }), "--workload: is missing"},
		"odd workload":       {sidecar(func(o *RouteOptions) { o.Workload = "job/x" }), "--workload: \"job/x\""},
		"runs and patches":   {sidecar(func(o *RouteOptions) { o.Run = "x" }), "--run: means nothing with --kind sidecar"},
		"selects":            {sidecar(func(o *RouteOptions) { o.NodeSelector = []string{"a=b"} }), "--node-selector: means nothing"},
		"tolerates":          {sidecar(func(o *RouteOptions) { o.Tolerations = []string{"*"} }), "--toleration: means nothing"},
		"priority":           {sidecar(func(o *RouteOptions) { o.PriorityClass = "x" }), "--priority-class: means nothing"},
		"stray only":         {func(o *RouteOptions) { o.Only = RoutePatch }, "--only: means nothing without --kind sidecar"},
		"odd only":           {sidecar(func(o *RouteOptions) { o.Only = "x" }), "--only: \"x\" is not one of objects, patch"},
		"no cluster":         {func(o *RouteOptions) { o.Cluster = "" }, "--cluster: is missing"},
		"no hub":             {func(o *RouteOptions) { o.Hubs = nil }, "--hub: is missing"},
		"hub without port":   {func(o *RouteOptions) { o.Hubs = []string{"hub"} }, "--hub:"},
		"no secret":          {func(o *RouteOptions) { o.Secret = "" }, "--certificate-secret: is missing"},
		"odd secret":         {func(o *RouteOptions) { o.Secret = "c1.pem/" }, "--certificate-secret:"},
		"health port":        {func(o *RouteOptions) { o.HealthPort = 0 }, "--health-port:"},
		"host network":       {func(o *RouteOptions) { o.HostNetwork = true }, "--host-network: would route for the whole node"},
		"storage class":      {func(o *RouteOptions) { o.StorageClass = "x" }, "--storage-class:"},
		"no range":           {func(o *RouteOptions) { o.Ranges = nil }, "--range: is missing, and so is --map"},
		"host bits":          {func(o *RouteOptions) { o.Ranges = []string{"10.244.0.1/16"} }, "--range: 10.244.0.1/16 has host bits set"},
		"smaller map":        {func(o *RouteOptions) { o.Maps = []string{"10.96.0.0/12=240.0.0.0/13"} }, "--map: 240.0.0.0/13 is smaller"},
		"no map":             {func(o *RouteOptions) { o.Maps = []string{"10.96.0.0/12"} }, "--map: \"10.96.0.0/12\" is not RANGE=RANGE"},
		"overlap":            {func(o *RouteOptions) { o.Maps = []string{"10.96.0.0/16=10.244.0.0/16"} }, "--map: 10.244.0.0/16 of cluster c1"},
		"the link's":         {func(o *RouteOptions) { o.Ranges = []string{"192.0.0.0/28"} }, "--range: 192.0.0.8, the link's own address"},
		"the resolver's":     {named(func(o *RouteOptions) { o.Maps = []string{"10.1.0.0/28=192.0.0.48/28"} }), "--map: 192.0.0.53, the resolver's"},
		"dns":                {named(func(o *RouteOptions) { o.DNS = "dns.example.com" }), "--dns: \"dns.example.com\" is not the address"},
		"no zone":            {named(func(o *RouteOptions) { o.Zone = "" }), "--zone: is missing: cluster.local is the pod's own"},
		"odd zone":           {named(func(o *RouteOptions) { o.Zone = "a..b" }), "--zone:"},
		"no nameserver":      {named(func(o *RouteOptions) { o.Nameservers = nil }), "--nameserver: there are 0"},
		"odd nameserver":     {named(func(o *RouteOptions) { o.Nameservers = []string{"dns"} }), "--nameserver: \"dns\" is not an address"},
		"routed nameserver":  {named(func(o *RouteOptions) { o.Nameservers = []string{"10.244.0.10"} }), "--nameserver: 10.244.0.10, which the pod needs"},
		"search":             {named(func(o *RouteOptions) { o.Searches = []string{"a b"} }), "--search: \"a b\" is not a domain"},
		"searches":           {named(func(o *RouteOptions) { o.Searches = slices.Repeat([]string{"a"}, 33) }), "--search: there are 33"},
		"zone alone":         {func(o *RouteOptions) { o.Zone = "x" }, "--zone: means nothing without --dns"},
		"nameserver alone":   {func(o *RouteOptions) { o.Nameservers = []string{"x"} }, "--nameserver: means nothing without --dns"},
		"search alone":       {func(o *RouteOptions) { o.Searches = []string{"x"} }, "--search: means nothing without --dns"},
		"several, both said": {func(o *RouteOptions) { o.Run, o.Hubs = "", nil }, "--hub: is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := Route(routeOptions(tc.change))
			if len(out) > 0 || !fault.Has(err, fault.CodeUsage) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
	_, err := Route(RouteOptions{})
	for _, option := range []string{"image", "kind", "cluster", "hub", "certificate-secret", "range", "health-port"} {
		if err == nil || !strings.Contains(err.Error(), "--"+option+": ") {
			t.Errorf("not all at once: no --%s in %v", option, err)
		}
	}
}
