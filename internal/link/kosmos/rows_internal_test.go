// SPDX-License-Identifier: Apache-2.0

package kosmos

import (
	"encoding"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/tombolo-io/tombolo/api/objects/crds"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
)

// leaves lists the fields of a type that have no fields of their own.
func leaves(of reflect.Type, path string) (out []string) {
	if reflect.PointerTo(of).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return []string{path}
	}
	switch of.Kind() {
	case reflect.Pointer:
		return leaves(of.Elem(), path)
	case reflect.Slice:
		return leaves(of.Elem(), path+"[]")
	case reflect.Struct:
		for f := range of.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			out = append(out, leaves(f.Type, strings.TrimPrefix(path+"."+name, "."))...)
		}
		return out
	}
	return []string{path}
}

// covers reports whether a row is about a field, or about what it is in.
func covers(row, field string) bool {
	rest, is := strings.CutPrefix(field, row)
	return is && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// TestTheTableHasEveryField: each field of the types is in exactly one row, and each row is about one.
func TestTheTableHasEveryField(t *testing.T) {
	for kind, of := range map[string]reflect.Type{
		v1alpha1.KindCluster: reflect.TypeFor[cluster](), v1alpha1.KindClusterNode: reflect.TypeFor[clusterNode](),
		v1alpha1.KindNodeConfig: reflect.TypeFor[nodeConfig](),
	} {
		fields := append(leaves(of, ""), "metadata.name", "metadata.labels")
		for _, field := range fields {
			var rows []string
			for _, r := range Rows() {
				if r.Kind == kind && covers(r.Field, field) {
					rows = append(rows, r.Field)
				}
			}
			if len(rows) != 1 && field != "metadata.name" {
				t.Errorf("%s %s is in the rows %v", kind, field, rows)
			}
		}
		for _, r := range Rows() {
			if r.Kind == kind && !slices.ContainsFunc(fields, func(f string) bool { return covers(r.Field, f) }) {
				t.Errorf("%s has no field %s", kind, r.Field)
			}
		}
	}
}

// schema is that of a kind of ours.
type schema struct {
	Type          string            `yaml:"type"`
	Properties    map[string]schema `yaml:"properties"`
	Items         *schema           `yaml:"items"`
	More          *schema           `yaml:"additionalProperties"`
	MaxItems      int               `yaml:"maxItems"`
	MaxProperties int               `yaml:"maxProperties"`
}

func (s schema) at(path string) (schema, bool) {
	for name := range strings.SplitSeq(path, ".") {
		name, list := strings.CutSuffix(name, "[]")
		next, there := s.Properties[name]
		if !there || list && next.Items == nil {
			return s, false
		}
		if s = next; list {
			s = *next.Items
		}
	}
	return s, true
}

func schemas(t *testing.T) map[string]schema {
	t.Helper()
	out := map[string]schema{}
	for _, text := range []string{crds.Clusters(), crds.ClusterNodes(), crds.NodeConfigs()} {
		var crd struct {
			Spec struct {
				Names    struct{ Kind string }
				Versions []struct {
					Schema struct {
						Open schema `yaml:"openAPIV3Schema"`
					}
				}
			}
		}
		if err := yaml.Unmarshal([]byte(text), &crd); err != nil {
			t.Fatal(err)
		}
		out[crd.Spec.Names.Kind] = crd.Spec.Versions[0].Schema.Open
	}
	return out
}

// TestRowsLeadToFieldsOfOurs: a field that is mapped is mapped to one that there is; any other has a reason.
func TestRowsLeadToFieldsOfOurs(t *testing.T) {
	kinds := schemas(t)
	for _, r := range Rows() {
		_, there := kinds[r.Kind].at(r.To)
		switch {
		case r.To == "metadata.name":
		case (r.Outcome == Mapped || r.Outcome == Renewed) && !there:
			t.Errorf("%s %s leads to %s, which there is not", r.Kind, r.Field, r.To)
		case r.Outcome == Renewed && !strings.HasPrefix(r.To, "status."):
			t.Errorf("%s %s is found out again as %s", r.Kind, r.Field, r.To)
		case (r.Outcome == Gone || r.Outcome == Withheld) && (r.To != "" || r.Why == ""):
			t.Errorf("%s %s has no reason", r.Kind, r.Field)
		}
	}
}

// TestBoundsAreThoseOfOurKinds: nothing is made that an API server refuses for its length.
func TestBoundsAreThoseOfOurKinds(t *testing.T) {
	kinds := schemas(t)
	for _, c := range []struct {
		kind, path string
		most       int
	}{
		{v1alpha1.KindCluster, "spec.nodeElasticIPMap", mostElastic}, {v1alpha1.KindCluster, "spec.clusterPodCIDRs", mostPodCIDRs},
		{v1alpha1.KindCluster, "spec.globalCIDRsMap", mostMapped}, {v1alpha1.KindCluster, "spec.nics", mostNICs},
		{v1alpha1.KindCluster, "spec.nics[].nodes", mostNodes}, {v1alpha1.KindClusterNode, "spec.podCIDRs", mostNodeCIDRs},
		{v1alpha1.KindNodeConfig, "spec.routes", mostRoutes}, {v1alpha1.KindNodeConfig, "spec.xfrmPolicies", mostPolicies},
		{v1alpha1.KindNodeConfig, "spec.xfrmStates", mostStates}, {v1alpha1.KindNodeConfig, "spec.ipsetsAvoidMasq", mostSets},
	} {
		s, there := kinds[c.kind].at(c.path)
		if got := max(s.MaxItems, s.MaxProperties); !there || got != c.most {
			t.Errorf("%s %s has %d at most, and %d here", c.kind, c.path, got, c.most)
		}
	}
}
