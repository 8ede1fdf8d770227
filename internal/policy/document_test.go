// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/policy"
)

// TestProblemsBeyondTheListAreCounted: what is not listed is told of.
func TestProblemsBeyondTheListAreCounted(t *testing.T) {
	text := "apiVersion: tombolo.dev/v1alpha1\nkind: AccessPolicy\nrules:\n" + strings.Repeat("- {nmae: x}\n", 150)
	_, findings := policy.Read("p.yaml", []byte(text), nil)
	said := 0
	for _, f := range findings {
		if strings.HasPrefix(f.Message, "and ") && strings.HasSuffix(f.Message, " more") {
			said++
		}
	}
	if said != 1 {
		t.Errorf("%d findings, %d say how many more there are", len(findings), said)
	}
}
