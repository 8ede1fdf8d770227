// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/policy"
)

// TestProblemsBeyondTheListAreCounted: what is not listed is told of.
func TestProblemsBeyondTheListAreCounted(t *testing.T) {
	for what, rules := range map[string]string{
		"of the form":       strings.Repeat("- {name: a, callers: [~], allow: [\"*\"]}\n", 1),
		"of the form, many": strings.Repeat("- {callers: ~}\n", 150),
		"of the meaning":    "- {name: a, allow: [" + strings.Repeat("10.0.0.1/8, ", 1500) + "]}\n",
	} {
		_, findings := policy.Read("p.yaml", []byte("apiVersion: tombolo.dev/v1alpha1\nkind: AccessPolicy\nrules:\n"+rules), nil)
		said := false
		for _, f := range findings {
			said = said || strings.HasPrefix(f.Message, "and ") && strings.HasSuffix(f.Message, " more")
		}
		if said != (len(findings) > 100) {
			t.Errorf("%s: %d findings, says how many more: %v", what, len(findings), said)
		}
	}
}

func TestAFileMayHaveTheNameOfAnObject(t *testing.T) {
	const text = "apiVersion: tombolo.dev/v1alpha1\nkind: AccessPolicy\nmetadata: {name: office}\n" +
		"rules: [{name: a, allow: ['*']}]\n"
	if p, findings := policy.Read("p.yaml", []byte(text), nil); p == nil || len(p.Rules()) != 1 {
		t.Errorf("%v", findings)
	}
	if p, _ := policy.Read("p.yaml", []byte(strings.Replace(text, "name: office", "labels: {a: b}", 1)), nil); p != nil {
		t.Error("an unknown key is accepted")
	}
}
