// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
)

// The section EdgeConfig of the reference has the settings of an edge, those of another kind are not in it, and none of
// its own is in another kind's.
func TestSettingsAreInTheirSection(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []struct {
		kind   string
		config any
	}{
		{"EdgeConfig", v1alpha1.EdgeConfig{}}, {"HubConfig", v1alpha1.HubConfig{}},
	} {
		_, section, found := strings.Cut(string(page), "\n## "+of.kind+"\n")
		if !found {
			t.Fatalf("there is no section %s", of.kind)
		}
		section, _, _ = strings.Cut(section, "\n## ")
		section, _, _ = strings.Cut(section, "\n### ")
		known, rows := settings(reflect.TypeOf(of.config)), map[string]bool{}
		for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*) \\|").FindAllStringSubmatch(section, -1) {
			for _, s := range regexp.MustCompile("`([A-Za-z]+)").FindAllStringSubmatch(row[1], -1) {
				rows[s[1]] = true
				if !known[s[1]] && strings.HasPrefix(row[1], "`"+s[1]) {
					t.Errorf("%s has no setting %s, which its section lists", of.kind, s[1])
				}
			}
		}
		for s := range known {
			if !rows[s] {
				t.Errorf("the section %s lacks %s", of.kind, s)
			}
		}
	}
}

// settings are the first words of all settings of a kind.
func settings(t reflect.Type) map[string]bool {
	out := map[string]bool{}
	for i := range t.NumField() {
		f := t.Field(i)
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			out[name] = true
		} else if f.Anonymous {
			for s := range settings(f.Type) {
				out[s] = true
			}
		}
	}
	return out
}
