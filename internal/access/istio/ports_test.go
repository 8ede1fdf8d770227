// SPDX-License-Identifier: Apache-2.0

package istio_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/istio"
)

// Behind the PROXY protocol Envoy sees the port of the Service: rules name both, unless that port leads elsewhere too.
func TestRulesNameThePortOfTheService(t *testing.T) {
	for name, c := range map[string]struct {
		port    uint32 // of the Service, for 8132
		want    string
		problem bool
	}{
		"the same":               {8132, "8132 8443", false},
		"another":                {1194, "1194 8132 8443", false},
		"two lead there":         {443, "8132 8443", true},
		"somebody listens there": {8443, "8132 8443", true},
	} {
		for _, complete := range []bool{false, true} {
			f := seed(shoot("a", list("203.0.113.0/24")))
			f.Services[0].Spec.Ports[1] = istio.ServicePort{Port: c.port, TargetPort: json.RawMessage("8132")}
			w := gateway(istio.Auto)
			w.Complete = complete
			p, problems := istio.Plan(f, w)
			for _, r := range p.AuthorizationPolicies[0].Spec.Rules {
				if got := strings.Join(r.To[0].Operation.Ports, " "); got != c.want {
					t.Errorf("%s: ports %s", name, got)
				}
			}
			if got := slices.ContainsFunc(problems, func(p istio.Problem) bool { return strings.Contains(p.What, "PROXY") }); got != c.problem {
				t.Errorf("%s: %v", name, problems)
			}
		}
	}
}
