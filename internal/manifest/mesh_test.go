// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/conf"
)

func meshOptions(change func(*MeshOptions)) MeshOptions {
	o := MeshDefaults()
	o.Image = "tombolo.local/tombolo:dev"
	if change != nil {
		change(&o)
	}
	return o
}

// meshFileConfig is what --config may give.
const meshFileConfig = `apiVersion: tombolo.dev/v1alpha1
kind: MeshConfig
cluster:
  secretFiles: [/etc/tombolo/secret/new, /etc/tombolo/secret/old]
sources:
  kubernetes: {inCluster: true}
  linked: {cluster: east}
mesh:
  engine: kernel
  policies: [/etc/tombolo/policies/policy.yaml]
  join: "@/etc/tombolo/join/join"
`

func meshCases() map[string]func() ([]byte, error) {
	mesh := func(change func(*MeshOptions)) func() ([]byte, error) {
		return func() ([]byte, error) { return Mesh(meshOptions(change)) }
	}
	return map[string]func() ([]byte, error){
		"mesh-plain": mesh(func(o *MeshOptions) { o.PodRanges = true }),
		"mesh-linked": mesh(func(o *MeshOptions) {
			o.LinkCluster, o.SecretText = "east", "c2VjcmV0"
			o.Accept, o.Keep, o.MaxUnavailable = []string{"10.0.0.0/8", "fd00::/8"}, true, 3
			o.Namespace, o.Tolerations, o.ImagePullSecret = "kube-system", []string{"dedicated:NoExecute"}, "pull"
		}),
		"mesh-config": mesh(func(o *MeshOptions) {
			o.Config, o.Join, o.Policies = meshFileConfig, testJoin, "policy"
			o.Secret, o.SecretKeys, o.StateHostPath = "cluster", []string{"new", "old"}, "/var/lib/mesh"
			o.MemoryLimit = "1Gi"
		}),
		"mesh-join": mesh(func(o *MeshOptions) { o.Join, o.Policies = testJoin, "policy" }),
	}
}

func TestMeshProblems(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*MeshOptions)
		want   string
	}{
		{"no image", func(o *MeshOptions) { o.Image = "" }, "--image: is missing"},
		{"a network of its own", func(o *MeshOptions) { o.HostNetwork = false }, "--host-network: is needed"},
		{"class", func(o *MeshOptions) { o.StorageClass = "x" }, "--storage-class:"},
		{"long name", func(o *MeshOptions) { o.Name = strings.Repeat("a", 41) }, "--name:"},
		{"odd secret", func(o *MeshOptions) { o.Secret = "a/b" }, "--secret:"},
		{"no key", func(o *MeshOptions) { o.SecretKeys = nil }, "--secret-key:"},
		{"a path as key", func(o *MeshOptions) { o.SecretKeys = []string{"../x"} }, "--secret-key:"},
		{"one secret for two keys", func(o *MeshOptions) { o.SecretKeys, o.SecretText = []string{"a", "b"}, testSecret }, "--secret-key:"},
		{"state", func(o *MeshOptions) { o.StateHostPath = "mesh" }, "--state-host-path:"},
		{"none at a time", func(o *MeshOptions) { o.MaxUnavailable = 0 }, "--max-unavailable:"},
		{"cluster", func(o *MeshOptions) { o.LinkCluster = "East" }, "--link-cluster:"},
		{"an address", func(o *MeshOptions) { o.Accept = []string{"10.0.0.1"} }, "--accept:"},
		{"no range", func(o *MeshOptions) { o.Accept = []string{"a/8"} }, "--accept:"},
		{"policies", func(o *MeshOptions) { o.Policies = "A" }, "--policies:"},
		{"said twice", func(o *MeshOptions) { o.Config, o.LinkCluster = meshFileConfig, "east" }, "--link-cluster: means nothing"},
		{"kept twice", func(o *MeshOptions) { o.Config, o.Keep = meshFileConfig, true }, "--keep: means nothing"},
		{"loud twice", func(o *MeshOptions) { o.Config, o.LogLevel = meshFileConfig, "debug" }, "--log-level: means nothing"},
		{"no node selector", func(o *MeshOptions) { o.NodeSelector = []string{"x"} }, "--node-selector:"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, err := Mesh(meshOptions(tc.change))
			checkProblem(t, out, err, tc.want)
		})
	}
}

// TestMeshSuits: a file that all nodes have, and what the objects give them.
func TestMeshSuits(t *testing.T) {
	whole := func(o *MeshOptions) { o.Join, o.Policies = testJoin, "policy" }
	for _, tc := range []struct {
		name   string
		change func(*v1alpha1.MeshConfig)
		with   func(*MeshOptions)
		want   string // empty: it suits
	}{
		{"as it is", nil, whole, ""},
		{"all said", func(c *v1alpha1.MeshConfig) {
			c.Node.StateDir, c.Node.RunDir, c.HealthListen = "/var/lib/tombolo/mesh", "/run/tombolo", "127.0.0.1:8448"
		}, whole, ""},
		{"no API server", func(c *v1alpha1.MeshConfig) { c.Sources.Kubernetes = nil }, whole, ""},
		{"a name", func(c *v1alpha1.MeshConfig) { c.Node.Name = "a" }, whole, "node.name"},
		{"a Node", func(c *v1alpha1.MeshConfig) { c.Sources.Kubernetes.Node = "a" }, whole, "sources.kubernetes.node"},
		{"another state", func(c *v1alpha1.MeshConfig) { c.Node.StateDir = "/state" }, whole, "node.stateDir"},
		{"other sockets", func(c *v1alpha1.MeshConfig) { c.Node.RunDir = "/sockets" }, whole, "node.runDir"},
		{"health for all", func(c *v1alpha1.MeshConfig) { c.HealthListen = ":8448" }, whole, "healthListen"},
		{"a secret elsewhere", func(c *v1alpha1.MeshConfig) { c.Cluster.SecretFiles[0] = "/etc/tombolo/cluster.secret" }, whole, "cluster.secretFiles"},
		{"a kubeconfig", func(c *v1alpha1.MeshConfig) { c.Sources.Kubernetes.Kubeconfig = "/k" }, whole, "inCluster"},
		{"annotations", func(c *v1alpha1.MeshConfig) { c.Sources.Kubernetes.Read = &[]string{"annotations"} }, whole, "annotations"},
		{"a file of members", func(c *v1alpha1.MeshConfig) { c.Sources.File = "/f" }, whole, "sources.file"},
		{"CAs", func(c *v1alpha1.MeshConfig) { c.Sources.Services = []v1alpha1.MeshService{{CAFile: "/f"}} }, whole, "sources.services[0].caFile"},
		{"a policy elsewhere", func(c *v1alpha1.MeshConfig) { c.Mesh.Policies = []string{"/policy.yaml"} }, whole, "mesh.policies"},
		{"no policies", func(c *v1alpha1.MeshConfig) { c.Mesh.Policies = nil }, whole, "--policies:"},
		{"policies of nobody", nil, func(o *MeshOptions) { o.Join = testJoin }, "--policies:"},
		{"a line in the file", func(c *v1alpha1.MeshConfig) { c.Mesh.Join = testJoin }, whole, "mesh.join"},
		{"no line", nil, func(o *MeshOptions) { o.Policies = "policy" }, "--join: is missing"},
		{"a line for nobody", func(c *v1alpha1.MeshConfig) { c.Mesh.Join = "" }, whole, "--join:"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var c v1alpha1.MeshConfig
			if err := conf.Decode("mesh.yaml", []byte(meshFileConfig), &c).Err(); err != nil {
				t.Fatal(err)
			}
			if tc.change != nil {
				tc.change(&c)
			}
			err := meshOptions(tc.with).Suits(c)
			if tc.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			checkProblem(t, nil, err, tc.want)
		})
	}
}

// TestMeshPodsAskForTheirCapabilities: root and two capabilities, and of the node its network, TUN, the settings of its
// network, and one directory.
func TestMeshPodsAskForTheirCapabilities(t *testing.T) {
	for name, make := range meshCases() {
		t.Run(name, func(t *testing.T) {
			data, err := make()
			if err != nil {
				t.Fatal(err)
			}
			// there are two Secrets in some
			rest, own, _ := strings.Cut(string(data), "kind: DaemonSet\n")
			if strings.Contains(own, "\n---\n") || !strings.HasSuffix(rest, "apiVersion: apps/v1\n") {
				t.Fatal("the DaemonSet is not last")
			}
			pod := at(t, decode(t, []byte("kind: DaemonSet\n"+own))["DaemonSet"], "spec", "template", "spec")
			box := at(t, pod, "containers", 0)
			if got := at(t, box, "securityContext", "capabilities"); !reflect.DeepEqual(got, map[string]any{
				"add": []any{"NET_ADMIN", "NET_RAW"}, "drop": []any{"ALL"}}) {
				t.Errorf("capabilities %v", got)
			}
			for _, want := range []struct {
				path  []any
				value any
			}{
				{[]any{"hostNetwork"}, true}, {[]any{"dnsPolicy"}, "ClusterFirstWithHostNet"},
				{[]any{"securityContext", "seccompProfile", "type"}, "RuntimeDefault"},
				{[]any{"containers", 0, "securityContext", "allowPrivilegeEscalation"}, false},
				{[]any{"containers", 0, "securityContext", "readOnlyRootFilesystem"}, true},
				{[]any{"containers", 0, "securityContext", "runAsUser"}, 0},
				{[]any{"containers", 0, "readinessProbe", "httpGet", "host"}, "127.0.0.1"},
				{[]any{"automountServiceAccountToken"}, true},
				{[]any{"priorityClassName"}, "system-node-critical"},
			} {
				if got := at(t, pod, want.path...); got != want.value {
					t.Errorf("%v is %v, want %v", want.path, got, want.value)
				}
			}
			if args := at(t, box, "args").([]any); slices.Contains(args, any("--leave")) {
				t.Error("an update would say farewell")
			}
			if strings.Contains(string(data), "privileged: true") {
				t.Error("it is privileged")
			}
		})
	}
}

// TestMeshConfigIsOne decodes the file as the program does.
func TestMeshConfigIsOne(t *testing.T) {
	yes := true
	for _, tc := range []struct {
		change func(*MeshOptions)
		want   func(v1alpha1.MeshConfig) bool
	}{
		{nil, func(c v1alpha1.MeshConfig) bool {
			return c.Sources.Kubernetes.InCluster && c.Sources.Linked == nil && !c.Announce.PodRanges && c.Mesh.Accept == nil
		}},
		{func(o *MeshOptions) {
			o.PodRanges, o.LinkCluster, o.Join, o.Policies, o.Keep = yes, "east", testJoin, "p", yes
		},
			func(c v1alpha1.MeshConfig) bool {
				return c.Announce.PodRanges && c.Sources.Linked.Cluster == "east" && c.Mesh.Join == "@/etc/tombolo/join/join" &&
					slices.Equal(c.Mesh.Policies, []string{"/etc/tombolo/policies/policy.yaml"}) && c.Mesh.Keep
			}},
	} {
		o := meshOptions(tc.change)
		text, err := asText(meshNodeConfigOf(o))
		if err != nil {
			t.Fatal(err)
		}
		var got v1alpha1.MeshConfig
		if err := conf.Decode("mesh.yaml", []byte(text), &got).Err(); err != nil || got.Kind != v1alpha1.KindMeshConfig || !tc.want(got) {
			t.Errorf("%v: %+v", err, got)
		}
		if err := o.Suits(got); err != nil {
			t.Error("our own file does not suit:", err)
		}
	}
}

// TestWhatNewPodsAreFor: what a running node takes over replaces no pod, all else does.
func TestWhatNewPodsAreFor(t *testing.T) {
	stamp := func(change func(*MeshOptions)) string {
		data, err := Mesh(meshOptions(change))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(data), "tombolo.dev/mesh-config: ")
		out, _, _ := strings.Cut(rest, "\n")
		return out
	}
	plain := stamp(func(o *MeshOptions) { o.LinkCluster, o.Accept = "east", []string{"10.0.0.0/8"} })
	for what, c := range map[string]struct {
		change func(*MeshOptions)
		same   bool
	}{
		"the same":          {func(o *MeshOptions) { o.LinkCluster, o.Accept = "east", []string{"10.0.0.0/8"} }, true},
		"another range":     {func(o *MeshOptions) { o.LinkCluster, o.Accept = "east", []string{"10.0.0.0/9", "fd00::/8"} }, true},
		"no range":          {func(o *MeshOptions) { o.LinkCluster = "east" }, true},
		"a secret":          {func(o *MeshOptions) { o.LinkCluster, o.SecretText = "east", "x" }, true},
		"another cluster":   {func(o *MeshOptions) { o.LinkCluster = "west" }, false},
		"a line":            {func(o *MeshOptions) { o.LinkCluster, o.Join = "east", testJoin }, false},
		"a file":            {func(o *MeshOptions) { o.Config = meshFileConfig }, false},
		"what is kept":      {func(o *MeshOptions) { o.LinkCluster, o.Keep = "east", true }, false},
		"another verbosity": {func(o *MeshOptions) { o.LinkCluster, o.LogLevel = "east", "debug" }, false},
	} {
		if got := stamp(c.change); (got == plain) != c.same || len(got) != 16 {
			t.Errorf("%s: %q, and %q before", what, got, plain)
		}
	}
}
