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
