// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
)

// schema is what the test reads of one.
type schema struct {
	Properties map[string]schema `yaml:"properties"`
	Items      *schema           `yaml:"items"`
}

// TestTheKindEdgeTenantHasTheFieldsOfAFile: an API server drops a field that the schema lacks.
func TestTheKindEdgeTenantHasTheFieldsOfAFile(t *testing.T) {
	data, err := os.ReadFile("kubernetes/edgetenants.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					Open schema `yaml:"openAPIV3Schema"`
				} `yaml:"schema"`
			} `yaml:"versions"`
		} `yaml:"spec"`
	}
	if err := yaml.NewDecoder(bytes.NewReader(data)).Decode(&crd); err != nil {
		t.Fatal(err)
	}
	spec := crd.Spec.Versions[0].Schema.Open.Properties["spec"]
	way := spec.Properties["ways"].Items
	for of, got := range map[reflect.Type]map[string]schema{
		reflect.TypeFor[v1alpha1.EdgeTenantSpec](): spec.Properties,
		reflect.TypeFor[v1alpha1.EdgeWay]():        way.Properties,
		reflect.TypeFor[v1alpha1.EdgeStream]():     way.Properties["hubs"].Items.Properties,
	} {
		var want []string
		for i := range of.NumField() {
			name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			want = append(want, name)
		}
		slices.Sort(want)
		if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, want) {
			t.Errorf("%s: the schema has %v, the type %v", of.Name(), names, want)
		}
	}
}
