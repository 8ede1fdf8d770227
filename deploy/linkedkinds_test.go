// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/tombolo-io/tombolo/api/objects/crds"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
)

// TestLinkedKindsAreBounded: what an object may hold has an end in each list and map, and no field holds a key.
func TestLinkedKindsAreBounded(t *testing.T) {
	for _, text := range []string{crds.Clusters(), crds.ClusterNodes(), crds.NodeConfigs()} {
		var crd struct {
			Metadata struct{ Name string }
			Spec     struct {
				Versions []struct {
					Schema struct {
						Open map[string]any `yaml:"openAPIV3Schema"`
					}
				}
			}
		}
		if err := yaml.Unmarshal([]byte(text), &crd); err != nil {
			t.Fatal(err)
		}
		seen := 0
		bounded(t, crd.Metadata.Name, crd.Spec.Versions[0].Schema.Open, &seen)
		if seen < 4 {
			t.Errorf("%s: only %d lists and maps are found", crd.Metadata.Name, seen)
		}
	}
}

func bounded(t *testing.T, path string, s map[string]any, seen *int) {
	t.Helper()
	if s["type"] == "array" {
		*seen++
		if s["maxItems"] == nil {
			t.Errorf("%s has no maxItems", path)
		}
		bounded(t, path+"[]", s["items"].(map[string]any), seen)
	}
	if more, is := s["additionalProperties"].(map[string]any); is {
		*seen++
		if s["maxProperties"] == nil {
			t.Errorf("%s has no maxProperties", path)
		}
		bounded(t, path+"{}", more, seen)
	}
	fields, _ := s["properties"].(map[string]any)
	for name, field := range fields {
		lower := strings.ToLower(name)
		if strings.Contains(lower, "key") && name != "publicKey" || lower == "psk" || strings.Contains(lower, "kubeconfig") {
			t.Errorf("%s.%s has the name of a secret", path, name)
		}
		bounded(t, path+"."+name, field.(map[string]any), seen)
	}
}

// TestClusterNodesSayWhatMembersSay: what both kinds have for a tunnel has the same name and the same bounds.
func TestClusterNodesSayWhatMembersSay(t *testing.T) {
	member := reflect.TypeFor[v1alpha1.MemberSpec]()
	for field := range reflect.TypeFor[v1alpha1.ClusterNodeTunnel]().Fields() {
		other, there := member.FieldByName(field.Name)
		if !there || other.Type != field.Type || other.Tag != field.Tag {
			t.Errorf("%s is %v %s of a ClusterNode, and %v %s of a Member", field.Name, field.Type, field.Tag, other.Type,
				other.Tag)
		}
	}
}

// TestThePageHasTheFieldsOfLinkedKinds: each field of a spec and a status is in the table of its kind.
func TestThePageHasTheFieldsOfLinkedKinds(t *testing.T) {
	page, err := os.ReadFile("../docs/reference/linked-clusters.md")
	if err != nil {
		t.Fatal(err)
	}
	for kind, text := range map[string]string{
		"Cluster": crds.Clusters(), "ClusterNode": crds.ClusterNodes(), "NodeConfig": crds.NodeConfigs(),
	} {
		_, section, there := strings.Cut(string(page), "\n## "+kind+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		var crd struct {
			Spec struct {
				Versions []struct {
					Schema struct {
						Open schema `yaml:"openAPIV3Schema"`
					}
				}
			}
		}
		if err := yaml.Unmarshal([]byte(text), &crd); err != nil || !there {
			t.Fatal(kind, err, there)
		}
		known := map[string]bool{}
		for _, part := range []string{"spec", "status"} {
			for name, field := range crd.Spec.Versions[0].Schema.Open.Properties[part].Properties {
				known[part+"."+name] = true
				if !strings.Contains(section, "`"+part+"."+name+"`") {
					t.Errorf("%s has no %s.%s", kind, part, name)
				}
				if field.Items == nil || name == "conditions" {
					continue
				}
				for below := range field.Items.Properties {
					if !strings.Contains(section, "`"+below+"`") {
						t.Errorf("%s has no %s of %s.%s", kind, below, part, name)
					}
				}
			}
		}
		for _, m := range regexp.MustCompile("`((?:spec|status)\\.\\w+)`").FindAllStringSubmatch(section, -1) {
			if !known[m[1]] {
				t.Errorf("%s has %s, which there is not", kind, m[1])
			}
		}
	}
}
