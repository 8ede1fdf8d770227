// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/fault"
)

const (
	testSecret = "bcdefghijklmnopqrstuvwxyz234567a"
	testJoin   = "tombolo://abcdefgh." + testSecret + "@hub.example.com:8443/c1/0123456789012345678901234567890123456789012"
)

func agentOptions(change func(*AgentOptions)) AgentOptions {
	o := AgentDefaults()
	o.Cluster, o.Join, o.Image = "c1", testJoin, "tombolo.local/tombolo:dev"
	o.Allow = []string{"10.96.0.0/12", "10.244.0.0/16:443,8000-8999", "*.svc.cluster.local:443"}
	if change != nil {
		change(&o)
	}
	return o
}

func hubOptions(change func(*HubOptions)) HubOptions {
	o := HubDefaults()
	o.Image, o.Advertise = "tombolo.local/tombolo:dev", []string{"hub.example.com:8443"}
	if change != nil {
		change(&o)
	}
	return o
}

// cases are the outputs that the golden files hold.
func cases() map[string]func() ([]byte, error) {
	agent := func(change func(*AgentOptions)) func() ([]byte, error) {
		return func() ([]byte, error) { return Agent(agentOptions(change)) }
	}
	hub := func(change func(*HubOptions)) func() ([]byte, error) {
		return func() ([]byte, error) { return Hub(hubOptions(change)) }
	}
	meet := func(change func(*MeetOptions)) func() ([]byte, error) {
		return func() ([]byte, error) { return Meet(meetOptions(change)) }
	}
	announce := func(change func(*AnnounceOptions)) func() ([]byte, error) {
		return func() ([]byte, error) { return Announce(announceOptions(change)) }
	}
	edge := func(change func(*EdgeOptions)) func() ([]byte, error) {
		return func() ([]byte, error) { return Edge(edgeOptions(change)) }
	}
	route := func(change func(*RouteOptions)) func() ([]byte, error) {
		return func() ([]byte, error) { return Route(routeOptions(change)) }
	}
	server := func(change func(*VPNServerOptions)) func() ([]byte, error) {
		return func() ([]byte, error) { return VPNServer(vpnServerOptions(change)) }
	}
	client := func(change func(*VPNClientOptions)) func() ([]byte, error) {
		return func() ([]byte, error) { return VPNClient(vpnClientOptions(change)) }
	}
	out := map[string]func() ([]byte, error){
		"vpn-server-plain": server(nil),
		"vpn-server-two": server(func(o *VPNServerOptions) {
			o.Pods, o.Secret, o.Bundles, o.StaticKey = 2, "vpn", nil, ""
			o.Ranges, o.Maps = []string{"fd00:10::/64"}, []string{"10.250.0.0/16=240.1.0.0/16"}
			o.Locals, o.ServiceAnnotations = []string{"10.0.0.0/16"}, []string{"example.com/from=gateway"}
		}),
		"vpn-server-foreign": server(asForeign),
		"vpn-server-udp": server(func(o *VPNServerOptions) {
			o.Protocol, o.Handshake, o.StaticKey, o.Connect, o.MTU = "udp", HandshakeNone, "", false, 1400
			o.ServiceType, o.NodePort, o.MemoryLimit = "NodePort", 31194, "1Gi"
		}),
		"vpn-client-plain": client(nil),
		"vpn-client-two": client(func(o *VPNClientOptions) {
			o.Pods, o.Secret, o.Bundles, o.StaticKey = 2, "vpn", nil, ""
			o.Maps, o.Servers = []string{"10.250.0.0/16=240.1.0.0/16", "fd00:10::/64=fd00:20::/64"}, []string{"s0.example.com:1194", "s1.example.com:1194"}
			o.Proxy, o.Destinations = "edge.example.com:8132", []string{"outbound|1194||vpn-seed-server-0.c1.svc.cluster.local",
				"outbound|1194||vpn-seed-server-1.c1.svc.cluster.local"}
		}),
		"vpn-client-foreign": client(func(o *VPNClientOptions) {
			o.Secret, o.Bundles, o.StaticKey, o.ForeignCA, o.ServerName = "vpn", nil, "", true, "vpn-seed-server"
			o.Handshake, o.Proxy, o.Header, o.Destinations = HandshakeCrypt, "gateway.example.com:8443", "X-Gardener-Destination",
				[]string{"outbound|1194||vpn-seed-server.c1.svc.cluster.local"}
			o.Transfer = []string{"192.168.200.0/24,fd00:30::/96"}
		}),
		"link-invitation": func() ([]byte, error) { return Invitation("west") },

		"route-plain": route(nil),
		"route-names": route(func(o *RouteOptions) {
			withNames(o)
			o.Ranges, o.Maps, o.RunArgs = nil, []string{"10.244.0.0/16=240.2.0.0/16", "fd00:10::/64=fd00:20::/64"}, []string{"sleep", "infinity"}
			o.NodeSelector, o.Tolerations, o.PriorityClass = []string{"kubernetes.io/os=linux"}, []string{"*"}, "high"
		}),
		"route-sidecar":       route(func(o *RouteOptions) { asSidecar(o); o.HealthPort = 9448 }),
		"route-sidecar-patch": route(func(o *RouteOptions) { asSidecar(o); o.Only, o.Workload = RoutePatch, "ds/probe" }),
		"route-sidecar-names": route(func(o *RouteOptions) {
			asSidecar(o)
			withNames(o)
			o.Workload, o.Searches, o.ImagePullSecret = "statefulset/prometheus", []string{"garden.local"}, "pull"
		}),
		"agent-plain": agent(nil),
		"agent-replicas": agent(func(o *AgentOptions) {
			o.Replicas, o.PriorityClass, o.ImagePullSecret = 3, "system-cluster-critical", "pull"
			o.NodeSelector = []string{"kubernetes.io/os=linux", "tier="}
			o.Tolerations = []string{"*", "dedicated=tombolo:NoExecute", "node-role.kubernetes.io/control-plane:NoSchedule"}
		}),
		"agent-persist": agent(func(o *AgentOptions) { o.Persist, o.StorageClass, o.Replicas = "64Mi", "fast", 2 }),
		"agent-ports": agent(func(o *AgentOptions) {
			o.Allow, o.Ports, o.PortFrom = nil, []string{"kube-host=6443", "registry=5000"}, []string{"10.244.0.0/16"}
		}),
		"agent-host-network": agent(func(o *AgentOptions) { o.HostNetwork, o.Namespace = true, "kube-system" }),
		"hub-plain":          hub(nil),
		"hub-sockets": hub(func(o *HubOptions) {
			o.Clusters, o.SocketHostPath, o.SocketMode = []string{"c1", "c2"}, "/run/tombolo", "0660"
			o.SocketProtocols = []string{"konnectivity", "connect"}
			o.NodeSelector = []string{"node-role.kubernetes.io/control-plane="}
			o.Tolerations = []string{"node-role.kubernetes.io/control-plane:NoSchedule"}
		}),
		"members-plain": func() ([]byte, error) { return Members(MembersDefaults()) },
		"members-pods": func() ([]byte, error) {
			return Members(MembersOptions{ServiceAccounts: []string{"kube-system/tombolo-mesh", "edge/mesh"}, NodeAnnotations: true})
		},
		"service-plain": meet(nil),
		"service-etcd": meet(func(o *MeetOptions) {
			o.Hosts, o.TLSSecret, o.Etcd, o.EtcdSecret, o.EtcdPrefix = nil, "tls", []string{"https://etcd-0:2379", "https://etcd-1:2379"}, "etcd", "/meet"
			o.Replicas, o.ServiceType = 3, "ClusterIP"
		}),
		"service-proxy": meet(func(o *MeetOptions) {
			o.Hosts, o.NoTLS, o.TrustedProxies, o.ServiceType = nil, true, []string{"10.0.0.0/8"}, "ClusterIP"
			o.StorageClass, o.HostNetwork = "fast", true
		}),
		"edge-plain":   edge(nil),
		"edge-objects": edge(func(o *EdgeOptions) { o.Tenants, o.Objects = "", true }),
		"edge-connect": edge(func(o *EdgeOptions) {
			o.Connect, o.Policies, o.From, o.Replicas = 8132, "policies", []string{"10.0.0.0/8", "192.0.2.7"}, 1
			o.HostNetwork, o.ServiceType = true, "ClusterIP"
		}),
		"announce-plain": announce(nil),
		"announce-services": announce(func(o *AnnounceOptions) {
			o.Services, o.Pin = []string{"https://discovery.example.com:8446"}, strings.Repeat("p", 43)
			o.SecretKeys, o.ClusterID, o.Kubernetes, o.StateHostPath = []string{"new", "old"}, "c", false, "/var/lib/tombolo/mesh"
		}),
		"announce-both": announce(func(o *AnnounceOptions) {
			o.Services, o.CAConfig, o.NodeAnnotations, o.HostNetwork = []string{"https://discovery.example.com"}, "discovery-ca", true, false
		}),
		"hub-node-port": hub(func(o *HubOptions) {
			o.ServiceType, o.NodePort, o.HostNetwork = "NodePort", 30443, true
			o.ServiceAnnotations = []string{"example.com/LB=internal"}
			o.Advertise = []string{"192.0.2.7:30443", "2001:db8::7", "hub.example.com"}
		}),
	}
	maps.Copy(out, meshCases())
	return out
}

// TestGolden compares with testdata; TOMBOLO_UPDATE_GOLDEN=1 rewrites it.
func TestGolden(t *testing.T) {
	update := os.Getenv("TOMBOLO_UPDATE_GOLDEN") != ""
	var names []string
	for name, make := range cases() {
		names = append(names, name+".golden.yaml")
		t.Run(name, func(t *testing.T) {
			got, err := make()
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", name+".golden.yaml")
			if update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("the output differs from %s; look at it with TOMBOLO_UPDATE_GOLDEN=1 and git diff. Got:\n%s", file, got)
			}
		})
	}
	files, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !slices.Contains(names, f.Name()) {
			t.Errorf("testdata/%s belongs to no case", f.Name())
		}
	}
}

// decode reads the stream back as any YAML reader would.
func decode(t *testing.T, data []byte) map[string]map[string]any {
	t.Helper()
	out := map[string]map[string]any{}
	for dec := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var doc map[string]any
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, data)
		}
		kind, _ := doc["kind"].(string)
		if kind == "" || out[kind] != nil {
			t.Fatalf("a document has no kind, or there are two of kind %q", kind)
		}
		out[kind] = doc
	}
}

// at walks maps and lists by keys and indexes; a missing place fails the test.
func at(t *testing.T, doc any, path ...any) any {
	t.Helper()
	for i, p := range path {
		switch p := p.(type) {
		case string:
			m, ok := doc.(map[string]any)
			if !ok || m[p] == nil {
				t.Fatalf("nothing at %v", path[:i+1])
			}
			doc = m[p]
		case int:
			l, ok := doc.([]any)
			if !ok || len(l) <= p {
				t.Fatalf("nothing at %v", path[:i+1])
			}
			doc = l[p]
		}
	}
	return doc
}

// TestPodsAskForNothing holds every pod to what the "restricted" Pod Security
// Standard wants, and to a root file system that cannot be written.
func TestPodsAskForNothing(t *testing.T) {
	for name, make := range cases() {
		if strings.HasPrefix(name, "members-") || strings.HasPrefix(name, "link-") {
			continue // they run nothing
		}
		if strings.HasPrefix(name, "route-") {
			continue // they need a capability: TestRoutePodsAskForOneCapability
		}
		if strings.HasPrefix(name, "vpn-") {
			continue // they need some: TestVPNPodsAskForTheirCapabilities
		}
		if strings.HasPrefix(name, "mesh-") {
			continue // they too: TestMeshPodsAskForTheirCapabilities
		}
		t.Run(name, func(t *testing.T) {
			data, err := make()
			if err != nil {
				t.Fatal(err)
			}
			docs := decode(t, data)
			work := docs["Deployment"]
			if work == nil {
				work = docs["StatefulSet"]
			}
			if work == nil {
				work = docs["DaemonSet"]
			}
			pod := at(t, work, "spec", "template", "spec")
			box := at(t, pod, "containers", 0)
			for _, want := range []struct {
				path  []any
				value any
			}{
				{[]any{"automountServiceAccountToken"}, docs["ClusterRoleBinding"] != nil}, // who has no rights has no token
				{[]any{"enableServiceLinks"}, false},
				{[]any{"securityContext", "runAsNonRoot"}, true},
				{[]any{"securityContext", "runAsUser"}, User},
				{[]any{"securityContext", "fsGroup"}, User},
				{[]any{"securityContext", "seccompProfile", "type"}, "RuntimeDefault"},
				{[]any{"containers", 0, "securityContext", "allowPrivilegeEscalation"}, false},
				{[]any{"containers", 0, "securityContext", "readOnlyRootFilesystem"}, true},
				{[]any{"containers", 0, "securityContext", "capabilities", "drop", 0}, "ALL"},
				{[]any{"containers", 0, "livenessProbe", "httpGet", "path"}, "/livez"},
				{[]any{"containers", 0, "readinessProbe", "httpGet", "path"}, "/readyz"},
				{[]any{"terminationGracePeriodSeconds"}, 35},
			} {
				if got := at(t, pod, want.path...); got != want.value {
					t.Errorf("%v is %v, want %v", want.path, got, want.value)
				}
			}
			at(t, box, "resources", "requests", "memory")
			at(t, box, "resources", "limits", "memory")
			if at(t, docs["ServiceAccount"], "automountServiceAccountToken") != false {
				t.Error("the service account mounts its token")
			}
			for key, value := range at(t, work, "spec", "selector", "matchLabels").(map[string]any) {
				if got := at(t, work, "spec", "template", "metadata", "labels", key); got != value {
					t.Errorf("the selector wants %s=%v, the pod has %v", key, value, got)
				}
			}
		})
	}
}

// TestHubConfigIsOne decodes the ConfigMap's file as the hub would.
func TestHubConfigIsOne(t *testing.T) {
	o := hubOptions(func(o *HubOptions) {
		o.Clusters, o.SocketHostPath, o.SocketMode = []string{"c1"}, "/run/tombolo", "0660"
	})
	data, err := Hub(o)
	if err != nil {
		t.Fatal(err)
	}
	text := at(t, decode(t, data)["ConfigMap"], "data", "hub.yaml").(string)
	var got v1alpha1.HubConfig
	if err := conf.Decode("hub.yaml", []byte(text), &got).Err(); err != nil {
		t.Fatal(err)
	}
	if got.APIVersion != v1alpha1.Version || got.Kind != v1alpha1.KindHubConfig || got.StateDir != "/var/lib/tombolo/hub" ||
		got.RunDir != "/run/tombolo" || got.Admin.Listen != ":8444" || got.Sockets.Mode != "0660" ||
		!slices.Equal(got.Advertise, o.Advertise) || got.DrainTimeout.Duration != o.DrainTimeout {
		t.Errorf("the hub would read %+v", got)
	}
	if len(got.Clusters) != 1 || got.Clusters[0].Name != "c1" || len(got.Clusters[0].Sockets) != 1 || got.Clusters[0].Sockets[0].Protocol != "konnectivity" {
		t.Errorf("the hub would read the clusters %+v", got.Clusters)
	}
}

// TestYAMLTraps gives names that are legal in Kubernetes and not text in YAML.
func TestYAMLTraps(t *testing.T) {
	for _, word := range []string{"null", "true", "no", "on", "y", "1234", "1e3", "0x1f", "010", "12-3", "2001-01-01"} {
		data, err := Agent(agentOptions(func(o *AgentOptions) {
			o.Namespace, o.Name, o.PriorityClass = word, word, word
			o.NodeSelector = []string{"a=" + word}
			o.Image = word + ":" + word
		}))
		if err != nil {
			t.Errorf("%s: %v", word, err)
			continue
		}
		d := decode(t, data)["Deployment"]
		for _, path := range [][]any{
			{"metadata", "name"},
			{"metadata", "namespace"},
			{"spec", "template", "spec", "priorityClassName"},
			{"spec", "template", "spec", "nodeSelector", "a"},
			{"spec", "selector", "matchLabels", "app.kubernetes.io/instance"},
		} {
			if got := at(t, d, path...); got != word {
				t.Errorf("%q at %v is read as %v (%T)", word, path, got, got)
			}
		}
		// Readers of YAML 1.1 take more words for booleans than this library does.
		if slices.Contains([]string{"no", "on", "y"}, word) && !strings.Contains(string(data), `namespace: "`+word+`"`) {
			t.Errorf("%q is not quoted", word)
		}
	}
}

func TestAgentProblems(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*AgentOptions)
		want   string
	}{
		{"no join", func(o *AgentOptions) { o.Join = "" }, "--join: is missing"},
		{"join of another scheme", func(o *AgentOptions) { o.Join = strings.Replace(testJoin, "tombolo:", "https:", 1) }, "--join: this is not a join line"},
		{"join in two lines", func(o *AgentOptions) { o.Join = testJoin + "\nx: y" }, "--join: this is not a join line"},
		{"join without token", func(o *AgentOptions) { o.Join = "tombolo://" + testSecret + "/c1/pin" }, "--join: this is not a join line"},
		{"foreign join", func(o *AgentOptions) { o.Cluster = "c2" }, `--join: the join line is for cluster "c1", not "c2"`},
		{"no allow", func(o *AgentOptions) { o.Allow = nil }, "--allow: is missing"},
		{"odd allow", func(o *AgentOptions) { o.Allow = []string{"10.0.0.0/8\n- --x"} }, "--allow:"},
		{"no image", func(o *AgentOptions) { o.Image = "" }, "--image: is missing"},
		{"odd image", func(o *AgentOptions) { o.Image = "Tombolo:dev" }, "--image:"},
		{"odd tag", func(o *AgentOptions) { o.Image = "tombolo:a b" }, "malformed tag"},
		{"odd digest", func(o *AgentOptions) { o.Image = "tombolo@sha256:12" }, "--image:"},
		{"namespace", func(o *AgentOptions) { o.Namespace = "Kube" }, "--namespace:"},
		{"long name", func(o *AgentOptions) { o.Name = strings.Repeat("a", 53) }, "at most 52"},
		{"pull policy", func(o *AgentOptions) { o.ImagePullPolicy = "Sometimes" }, "Always, IfNotPresent, Never"},
		{"selector", func(o *AgentOptions) { o.NodeSelector = []string{"a"} }, "--node-selector:"},
		{"toleration", func(o *AgentOptions) { o.Tolerations = []string{"a:Never"} }, "NoExecute"},
		{"replicas", func(o *AgentOptions) { o.Replicas = 0 }, "--replicas:"},
		{"quantity", func(o *AgentOptions) { o.MemoryLimit = "lots" }, "--memory-limit:"},
		{"zero quantity", func(o *AgentOptions) { o.CPURequest = "0.0" }, "--cpu-request:"},
		{"storage class alone", func(o *AgentOptions) { o.StorageClass = "x" }, "--storage-class:"},
		{"log level", func(o *AgentOptions) { o.LogLevel = "loud" }, "--log-level:"},
		{"drain", func(o *AgentOptions) { o.DrainTimeout = 0 }, "--drain-timeout:"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, err := Agent(agentOptions(tc.change))
			checkProblem(t, out, err, tc.want)
		})
	}
	out, err := Agent(agentOptions(func(o *AgentOptions) { o.Image, o.Namespace, o.Replicas = "", "", -1 }))
	checkProblem(t, out, err, "--image")
	for _, option := range []string{"--image", "--namespace", "--replicas"} {
		if !strings.Contains(err.Error(), option) {
			t.Errorf("three problems, but %s is not named: %v", option, err)
		}
	}
}

func TestHubProblems(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*HubOptions)
		want   string
	}{
		{"no advertise", func(o *HubOptions) { o.Advertise = nil }, "--advertise: is missing"},
		{"odd advertise", func(o *HubOptions) { o.Advertise = []string{"https://hub"} }, "--advertise:"},
		{"advertised port", func(o *HubOptions) { o.Advertise = []string{"hub:0"} }, "--advertise:"},
		{"cluster", func(o *HubOptions) { o.Clusters = []string{"C"} }, "--cluster:"},
		{"cluster twice", func(o *HubOptions) { o.Clusters = []string{"c", "c"} }, "stands twice"},
		{"service type", func(o *HubOptions) { o.ServiceType = "ExternalName" }, "--service-type:"},
		{"node port", func(o *HubOptions) { o.ServiceType, o.NodePort = "ClusterIP", 30443 }, "--node-port:"},
		{"host path", func(o *HubOptions) { o.SocketHostPath = "/run/../etc" }, "--socket-host-path:"},
		{"root as host path", func(o *HubOptions) { o.SocketHostPath = "/" }, "--socket-host-path:"},
		{"protocol", func(o *HubOptions) { o.Clusters, o.SocketProtocols = []string{"c"}, []string{"smtp"} }, "--socket:"},
		{"sockets of nobody", func(o *HubOptions) { o.SocketProtocols = []string{"connect"} }, "--socket:"},
		{"mode", func(o *HubOptions) { o.SocketMode = "0444" }, "--socket-mode:"},
		{"annotation", func(o *HubOptions) { o.ServiceAnnotations = []string{"x"} }, "--service-annotation:"},
		{"storage", func(o *HubOptions) { o.StorageSize = "" }, "--storage-size:"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, err := Hub(hubOptions(tc.change))
			checkProblem(t, out, err, tc.want)
		})
	}
}

func checkProblem(t *testing.T, out []byte, err error, want string) {
	t.Helper()
	if err == nil || len(out) != 0 {
		t.Fatalf("accepted: %v\n%s", err, out)
	}
	if !fault.Has(err, fault.CodeUsage) {
		t.Errorf("%v is no usage fault", err)
	}
	text := fault.From(err).Explain()
	if !strings.Contains(text, want) {
		t.Errorf("%q does not contain %q", text, want)
	}
	if strings.Contains(text, testSecret) {
		t.Errorf("the token's secret is shown: %q", text)
	}
}

func TestNamespaceThatIsNotOurs(t *testing.T) {
	for _, change := range []func(*AgentOptions){
		func(o *AgentOptions) { o.NoNamespace = true },
		func(o *AgentOptions) { o.Namespace = "default" },
		func(o *AgentOptions) { o.Namespace = "kube-system" },
	} {
		data, err := Agent(agentOptions(change))
		if err != nil {
			t.Fatal(err)
		}
		if docs := decode(t, data); docs["Namespace"] != nil || docs["Deployment"] == nil {
			t.Errorf("a foreign namespace is written:\n%s", data)
		}
	}
}

func TestTolerations(t *testing.T) {
	for text, want := range map[string]toleration{
		"*":              {Operator: "Exists"},
		"a":              {Key: "a", Operator: "Exists"},
		"a:NoExecute":    {Key: "a", Operator: "Exists", Effect: "NoExecute"},
		"x/a=b":          {Key: "x/a", Operator: "Equal", Value: "b"},
		"a=:NoSchedule":  {Key: "a", Operator: "Equal", Effect: "NoSchedule"},
		"a=b:NoSchedule": {Key: "a", Operator: "Equal", Value: "b", Effect: "NoSchedule"},
	} {
		if got, err := parseToleration(text); err != nil || got != want {
			t.Errorf("%s gives %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "=b", "a:", "a=b:Never", "a b", ":NoSchedule", "a=b=c"} {
		if got, err := parseToleration(text); err == nil {
			t.Errorf("%q is accepted as %+v", text, got)
		}
	}
}

func TestImages(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("a1", 32)
	for image, ok := range map[string]bool{
		"tombolo": true, "localhost:5000/tombolo": true, "r.example.com/a/b:v1.2_x": true,
		"r.example.com/a/b" + digest: true, "r.example.com/a/b:v1" + digest: true,
		"a//b": false, "/a": false, "a/": false, "a:": false, "a:-x": false, "a@": false, "-a": false,
		"a b": false, "a\n": false, "A/b": false, "a" + digest + "0": false,
	} {
		var p problems
		p.image("image", image)
		if (len(p) == 0) != ok {
			t.Errorf("%q: problems %v, want accepted %v", image, p, ok)
		}
	}
}
