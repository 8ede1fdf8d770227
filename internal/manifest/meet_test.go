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

func meetOptions(change func(*MeetOptions)) MeetOptions {
	o := MeetDefaults()
	o.Image, o.Hosts = "tombolo.local/tombolo:dev", []string{"discovery.example.com", "192.0.2.7"}
	if change != nil {
		change(&o)
	}
	return o
}

func announceOptions(change func(*AnnounceOptions)) AnnounceOptions {
	o := AnnounceDefaults()
	o.Image, o.Secret = "tombolo.local/tombolo:dev", "cluster"
	if change != nil {
		change(&o)
	}
	return o
}

func TestMeetProblems(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*MeetOptions)
		want   string
	}{
		{"no way in", func(o *MeetOptions) { o.Hosts = nil }, "--host: is missing"},
		{"odd host", func(o *MeetOptions) { o.Hosts = []string{"https://x"} }, "--host:"},
		{"two ways in", func(o *MeetOptions) { o.TLSSecret = "s" }, "one of --host"},
		{"two others", func(o *MeetOptions) { o.NoTLS = true }, "one of --host"},
		{"a CA for each replica", func(o *MeetOptions) { o.Etcd = []string{"http://e:2379"} }, "--tls-secret: is missing"},
		{"replicas of a memory", func(o *MeetOptions) { o.Replicas = 2 }, "--replicas:"},
		{"no replica", func(o *MeetOptions) { o.Replicas = 0 }, "--replicas:"},
		{"etcd's URL", func(o *MeetOptions) { o.Hosts, o.TLSSecret, o.Etcd = nil, "s", []string{"e:2379"} }, "--etcd:"},
		{"etcd's password", func(o *MeetOptions) { o.Hosts, o.TLSSecret, o.Etcd = nil, "s", []string{"http://u:p@e:2379"} }, "--etcd:"},
		{"etcd's secret alone", func(o *MeetOptions) { o.EtcdSecret = "s" }, "--etcd: is missing"},
		{"etcd's secret over http", func(o *MeetOptions) { o.Hosts, o.TLSSecret, o.Etcd, o.EtcdSecret = nil, "s", []string{"http://e"}, "s" }, "--etcd-secret:"},
		{"etcd's prefix", func(o *MeetOptions) { o.Hosts, o.TLSSecret, o.Etcd, o.EtcdPrefix = nil, "s", []string{"http://e"}, "x" }, "--etcd-prefix:"},
		{"a class without a volume", func(o *MeetOptions) {
			o.Hosts, o.TLSSecret, o.Etcd, o.StorageClass = nil, "s", []string{"http://e"}, "x"
		}, "--storage-class:"},
		{"a proxy", func(o *MeetOptions) { o.TrustedProxies = []string{"proxy"} }, "--trusted-proxy:"},
		{"service type", func(o *MeetOptions) { o.ServiceType = "ExternalName" }, "--service-type:"},
		{"node port", func(o *MeetOptions) { o.ServiceType, o.NodePort = "ClusterIP", 30443 }, "--node-port:"},
		{"annotation", func(o *MeetOptions) { o.ServiceAnnotations = []string{"x"} }, "--service-annotation:"},
		{"storage", func(o *MeetOptions) { o.StorageSize = "" }, "--storage-size:"},
		{"secret", func(o *MeetOptions) { o.Hosts, o.TLSSecret = nil, "A b" }, "--tls-secret:"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, err := Meet(meetOptions(tc.change))
			checkProblem(t, out, err, tc.want)
		})
	}
}

func TestAnnounceProblems(t *testing.T) {
	pin := strings.Repeat("p", 43)
	for _, tc := range []struct {
		name   string
		change func(*AnnounceOptions)
		want   string
	}{
		{"no secret", func(o *AnnounceOptions) { o.Secret = "" }, "--secret: is missing"},
		{"odd secret", func(o *AnnounceOptions) { o.Secret = "a/b" }, "--secret:"},
		{"no key", func(o *AnnounceOptions) { o.SecretKeys = nil }, "--secret-key:"},
		{"a path as key", func(o *AnnounceOptions) { o.SecretKeys = []string{"../x"} }, "--secret-key:"},
		{"a key twice", func(o *AnnounceOptions) { o.SecretKeys = []string{"a", "a"} }, "stands twice"},
		{"many keys", func(o *AnnounceOptions) { o.SecretKeys = []string{"a", "b", "c", "d", "e"} }, "--secret-key:"},
		{"nowhere", func(o *AnnounceOptions) { o.Kubernetes = false }, "--kubernetes:"},
		{"no CA", func(o *AnnounceOptions) { o.Services = []string{"https://a"} }, "--pin: is missing"},
		{"two CAs", func(o *AnnounceOptions) { o.Services, o.Pin, o.CAConfig = []string{"https://a"}, pin, "c" }, "--pin: stands in place"},
		{"odd pin", func(o *AnnounceOptions) { o.Services, o.Pin = []string{"https://a"}, "x" }, "--pin:"},
		{"http", func(o *AnnounceOptions) { o.Services = []string{"http://a"} }, "--insecure"},
		{"http with a pin", func(o *AnnounceOptions) { o.Services, o.Insecure, o.Pin = []string{"http://a"}, true, pin }, "--service:"},
		{"odd URL", func(o *AnnounceOptions) { o.Services, o.Pin = []string{"a:1"}, pin }, "--service:"},
		{"a password", func(o *AnnounceOptions) { o.Services, o.Pin = []string{"https://u:p@a"}, pin }, "--service:"},
		{"protocol", func(o *AnnounceOptions) { o.Protocol = "smtp" }, "--protocol:"},
		{"older without id", func(o *AnnounceOptions) { o.Protocol = "sidero" }, "--cluster-id: is missing"},
		{"id", func(o *AnnounceOptions) { o.ClusterID = "a\nb" }, "--cluster-id:"},
		{"state", func(o *AnnounceOptions) { o.StateHostPath = "mesh" }, "--state-host-path:"},
		{"class", func(o *AnnounceOptions) { o.StorageClass = "x" }, "--storage-class:"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, err := Announce(announceOptions(tc.change))
			checkProblem(t, out, err, tc.want)
		})
	}
}

// TestMeetConfigIsOne decodes the ConfigMaps' files as the program does.
func TestMeetConfigIsOne(t *testing.T) {
	for name, make := range cases() {
		if !strings.HasPrefix(name, "service-") && !strings.HasPrefix(name, "announce-") {
			continue
		}
		data, err := make()
		if err != nil {
			t.Fatal(err)
		}
		files := at(t, decode(t, data)["ConfigMap"], "data").(map[string]any)
		if text, ok := files["discovery.yaml"].(string); ok {
			var got v1alpha1.DiscoveryConfig
			if err := conf.Decode(name, []byte(text), &got).Err(); err != nil || got.Kind != v1alpha1.KindDiscoveryConfig || got.RunDir != RunDir || got.DrainTimeout.Duration != defaultDrain {
				t.Errorf("%v: %+v", err, got)
			}
			continue
		}
		text := files["mesh.yaml"].(string)
		if _, there := reflect.TypeFor[v1alpha1.MeshSources]().FieldByName("Kubernetes"); !there { // the kind has no such source yet
			text = withoutKubernetes(text)
		}
		var got v1alpha1.MeshConfig
		if err := conf.Decode(name, []byte(text), &got).Err(); err != nil || got.Kind != v1alpha1.KindMeshConfig || got.Node.StateDir != "/var/lib/tombolo/mesh" || len(got.Cluster.SecretFiles) == 0 {
			t.Errorf("%v: %+v", err, got)
		}
	}
}

func withoutKubernetes(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		if in := strings.TrimSpace(line); in != "kubernetes:" && in != "inCluster: true" && !strings.HasPrefix(in, "read: ") {
			out = append(out, line)
		}
	}
	return strings.Replace(strings.Join(out, ""), "sources:\nhealth", "sources: {}\nhealth", 1)
}

// TestAnnounceIsHeldToItsNode: the pod knows its node, and has what the members' role gives.
func TestAnnounceIsHeldToItsNode(t *testing.T) {
	for _, annotations := range []bool{false, true} {
		data, err := Announce(announceOptions(func(o *AnnounceOptions) { o.NodeAnnotations = annotations }))
		if err != nil {
			t.Fatal(err)
		}
		docs := decode(t, data)
		box := at(t, docs["DaemonSet"], "spec", "template", "spec", "containers", 0)
		if at(t, box, "env", 0, "name") != "NODE_NAME" || at(t, box, "env", 0, "valueFrom", "fieldRef", "fieldPath") != "spec.nodeName" {
			t.Errorf("the pod does not know its node: %v", box)
		}
		members, err := Members(MembersOptions{ServiceAccounts: []string{"tombolo-system/tombolo-announce"}, NodeAnnotations: annotations})
		if err != nil {
			t.Fatal(err)
		}
		rules, subjects := roles(t, data)
		wantRules, wantSubjects := roles(t, members)
		const name, member = "tombolo-system-tombolo-announce", "tombolo-member"
		if got, want := rules[name], wantRules[member]+" "+wantRules[member+"-pod"]; got != want || len(rules) != 1 { // nor does it take the place of the members' role
			t.Errorf("the roles are %s, that of members %s", rules, want)
		}
		if got, want := subjects[name], wantSubjects[member]; got != want {
			t.Errorf("it is bound to %s, not %s", got, want)
		}
		args := at(t, box, "args").([]any)
		if !slices.Contains(args, any("--leave")) {
			t.Errorf("a key that ends with its pod leaves a ghost: %v", args)
		}
	}
	data, err := Announce(announceOptions(func(o *AnnounceOptions) { o.StateHostPath = "/var/lib/tombolo/mesh" }))
	if err != nil || strings.Contains(string(data), "--leave") {
		t.Errorf("a restart would be a farewell: %v", err)
	}
}
