// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// schema is the definition's schema of the spec, its rules and its columns.
func schema(t *testing.T) (fields map[string]map[string]any, rules, columns []string) {
	t.Helper()
	var d struct {
		Spec struct {
			Versions []struct {
				Columns []map[string]any `yaml:"additionalPrinterColumns"`
				Schema  struct {
					Open struct {
						Properties struct {
							Spec struct {
								Rules []struct {
									Rule    string `yaml:"rule"`
									Message string `yaml:"message"`
								} `yaml:"x-kubernetes-validations"`
								Properties map[string]map[string]any `yaml:"properties"`
							} `yaml:"spec"`
						} `yaml:"properties"`
					} `yaml:"openAPIV3Schema"`
				} `yaml:"schema"`
			} `yaml:"versions"`
		} `yaml:"spec"`
	}
	if err := yaml.Unmarshal([]byte(membersDefinition), &d); err != nil || len(d.Spec.Versions) != 1 {
		t.Fatal(err, len(d.Spec.Versions))
	}
	v := d.Spec.Versions[0]
	for _, r := range v.Schema.Open.Properties.Spec.Rules {
		rules = append(rules, r.Rule+" / "+r.Message)
	}
	for _, c := range v.Columns {
		columns = append(columns, fmt.Sprint(c["name"], " ", c["type"], " ", c["jsonPath"]))
	}
	return v.Schema.Open.Properties.Spec.Properties, rules, columns
}

// TestTheKindIsTheType: the schema has the fields of the Go type, each with the bounds that stand beside it.
func TestTheKindIsTheType(t *testing.T) {
	fields, rules, columns := schema(t)
	var names []string
	kinds := map[reflect.Kind]string{reflect.String: "string", reflect.Slice: "array", reflect.Int: "integer"}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[v1alpha1.MemberObjectSpec]()) {
		if f.Anonymous {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
		kind := f.Type
		if kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		if got := fields[name]["type"]; got != kinds[kind.Kind()] {
			t.Errorf("%s is a %v in the schema, %v in Go", name, got, f.Type)
		}
	}
	slices.Sort(names)
	if got := slices.Sorted(maps.Keys(fields)); !slices.Equal(got, names) {
		t.Errorf("the schema has %v, the type %v", got, names)
	}

	source, err := os.ReadFile("../../api/v1alpha1/member.go")
	if err != nil {
		t.Fatal(err)
	}
	marker := regexp.MustCompile(`^// \+kubebuilder:(\S+?)[:=](.*)$`)
	tag := regexp.MustCompile("`json:\"([A-Za-z0-9]+)")
	pending := map[string]string{}
	bounds := 0
	for _, line := range strings.Split(string(source), "\n") {
		line = strings.TrimSpace(line)
		if m := tag.FindStringSubmatch(line); m != nil {
			for what, want := range pending {
				bounds++
				have := fields[m[1]]
				if rest, ok := strings.CutPrefix(what, "items:"); ok {
					have, _ = have["items"].(map[string]any)
					what = rest
				}
				what = strings.ToLower(what[:1]) + what[1:]
				got := fmt.Sprint(have[what])
				if list, ok := have[what].([]any); ok {
					got = strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", ";"), "[]")
				}
				if got != strings.Trim(want, "`") {
					t.Errorf("%s: %s is %s in the schema, %s beside the type", m[1], what, got, want)
				}
			}
			pending = map[string]string{}
			continue
		}
		rest, ok := strings.CutPrefix(line, "// +kubebuilder:validation:")
		switch m := marker.FindStringSubmatch(line); {
		case strings.HasPrefix(rest, "XValidation:"):
			x := regexp.MustCompile(`rule="(.*)",message="(.*)"`).FindStringSubmatch(rest)
			if i := slices.Index(rules, x[1]+" / "+x[2]); i >= 0 {
				rules = slices.Delete(rules, i, i+1)
			} else {
				t.Errorf("the schema lacks the rule %s", rest)
			}
		case ok:
			what, want, _ := strings.Cut(rest, "=")
			pending[what] = want
		case m != nil && m[1] == "printcolumn":
			x := regexp.MustCompile("name=\"(.*?)\",type=(.*?),JSONPath=`(.*?)`").FindStringSubmatch(m[2])
			if i := slices.Index(columns, x[1]+" "+x[2]+" "+x[3]); i >= 0 {
				columns = slices.Delete(columns, i, i+1)
			} else {
				t.Errorf("the schema lacks the column %s", m[2])
			}
		}
	}
	if bounds < 20 || len(rules) > 0 || len(columns) > 0 {
		t.Errorf("%d bounds were compared; beside the type are missing: %q %q", bounds, rules, columns)
	}
}

// TestTheKindHasOurBounds: what a member may say over discovery services, it may here.
func TestTheKindHasOurBounds(t *testing.T) {
	fields, _, _ := schema(t)
	for path, want := range map[string]int{
		"endpoints maxItems": limit.DiscoveryEndpoints, "ranges maxItems": limit.DiscoveryFacts, "excluded maxItems": limit.DiscoveryFacts,
		"addresses maxItems": limit.DiscoveryFacts, "hostname maxLength": limit.RosterText, "node maxLength": limit.RosterText, "clusters maxItems": limit.ClusterSecrets, "nodename maxLength": limit.RosterText,
		"operatingSystem maxLength": limit.RosterText, "relays maxItems": limit.MeshRelays, "leaseSeconds maximum": int(limit.DiscoveryTTL.Seconds()),
	} {
		field, what, _ := strings.Cut(path, " ")
		if got := fmt.Sprint(fields[field][what]); got != strconv.Itoa(want) {
			t.Errorf("%s is %s, not %d", path, got, want)
		}
	}
}

// roles are what each role gives, and to whom, by name.
func roles(t *testing.T, data []byte) (rules, subjects map[string]string) {
	t.Helper()
	rules, subjects = map[string]string{}, map[string]string{}
	for docs := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var d struct {
			Kind     string
			Metadata struct{ Name string }
			Rules    []any
			Subjects []any
		}
		err := docs.Decode(&d)
		if errors.Is(err, io.EOF) {
			return rules, subjects
		}
		if err != nil {
			t.Fatal(err)
		}
		switch d.Kind {
		case "ClusterRole":
			rules[d.Metadata.Name] = fmt.Sprint(d.Rules...)
		case "ClusterRoleBinding":
			subjects[d.Metadata.Name] = fmt.Sprint(d.Subjects...)
		}
	}
}

// TestMembersNeedNoMore: a role that had update would not be held to a name, nobody is let in twice
// over, and a kubelet, which may get its own Node, gets no other one.
func TestMembersNeedNoMore(t *testing.T) {
	const (
		members = "map[apiGroups:[tombolo.dev] resources:[members] verbs:[get list watch create patch delete]] " +
			"map[apiGroups:[tombolo.dev] resources:[clusters clusternodes] verbs:[get list watch]] " +
			"map[apiGroups:[tombolo.dev] resources:[nodeconfigs] verbs:[create patch delete]] " +
			"map[apiGroups:[tombolo.dev] resources:[nodeconfigs/status] verbs:[patch]] map[apiGroups:[admissionregistration.k8s.io] " +
			"resourceNames:[members.tombolo.dev] resources:[validatingadmissionpolicies validatingadmissionpolicybindings] verbs:[get]]"
		list     = " map[apiGroups:[] resources:[nodes] verbs:[list watch]]"
		get      = "map[apiGroups:[] resources:[nodes] verbs:[get]]"
		kubelets = "map[apiGroup:rbac.authorization.k8s.io kind:Group name:system:nodes]"
		account  = "map[kind:ServiceAccount name:mesh namespace:kube-system]"
	)
	for _, o := range []MembersOptions{
		{Kubelets: true}, {Kubelets: true, NodeAnnotations: true}, {ServiceAccounts: []string{"kube-system/mesh"}},
		{Kubelets: true, NodeAnnotations: true, ServiceAccounts: []string{"kube-system/mesh"}},
	} {
		data, err := Members(o)
		if err != nil {
			t.Fatal(err)
		}
		wantRules, wantSubjects := map[string]string{"tombolo-member": members}, map[string]string{}
		if o.NodeAnnotations {
			wantRules["tombolo-member"] += list
		}
		if o.Kubelets {
			wantSubjects["tombolo-member"] = kubelets
		}
		if len(o.ServiceAccounts) > 0 {
			wantRules["tombolo-member-pod"], wantSubjects["tombolo-member-pod"] = get, account
			wantSubjects["tombolo-member"] = strings.TrimSpace(wantSubjects["tombolo-member"] + " " + account)
		}
		if rules, subjects := roles(t, data); !maps.Equal(rules, wantRules) || !maps.Equal(subjects, wantSubjects) {
			t.Errorf("%+v: the roles are\n%v of\n%v, not\n%v of\n%v", o, rules, subjects, wantRules, wantSubjects)
		}
	}
}

func TestMembersProblems(t *testing.T) {
	for name, o := range map[string]MembersOptions{
		"nobody":            {},
		"no namespace":      {ServiceAccounts: []string{"mesh"}},
		"a name of no one":  {ServiceAccounts: []string{"kube-system/"}},
		"a path":            {ServiceAccounts: []string{"a/b/c"}},
		"a line break":      {ServiceAccounts: []string{"a/b\nkind: Secret"}},
		"one of two":        {Kubelets: true, ServiceAccounts: []string{"a/b", "A/b"}},
		"an empty argument": {Kubelets: true, ServiceAccounts: []string{""}},
	} {
		if out, err := Members(o); !fault.Has(err, fault.CodeUsage) || len(out) > 0 || !strings.Contains(err.Error(), "service-account") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
