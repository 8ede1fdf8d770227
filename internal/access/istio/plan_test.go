// SPDX-License-Identifier: Apache-2.0

package istio_test

import (
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/access/policy"
)

func TestPlanIsAsWritten(t *testing.T) {
	f := seed(shoot("a", list("203.0.113.0/24", "!203.0.113.7/32", "2001:db8::/32")), shoot("b", policy.SourceList{}))
	for _, enforcement := range istio.Enforcements() {
		t.Run(enforcement, func(t *testing.T) {
			got, problems := istio.Plan(f, gateway(enforcement))
			for _, p := range problems {
				t.Log(p)
			}
			golden(t, "plan-"+enforcement, got)
		})
	}
}
