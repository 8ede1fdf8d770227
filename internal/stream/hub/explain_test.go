// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/authz"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/admin"
)

// TestExplainKnowsAgentsThatAreTooOldForNames: it says what a dial would meet.
func TestExplainKnowsAgentsThatAreTooOldForNames(t *testing.T) {
	name := policy.Request{Cluster: "c1", Flow: policy.FlowDial, Name: "db.example", Port: 443}
	addr := policy.Request{Cluster: "c1", Flow: policy.FlowDial, Addr: netip.MustParseAddr("10.0.0.1"), Port: 443}
	for what, c := range map[string]struct {
		set, chooses bool
		q            policy.Request
		denied       bool
	}{
		"an old agent and a name":     {true, false, name, true},
		"an old agent and an address": {true, false, addr, false},
		"a new agent and a name":      {true, true, name, false},
		"a hub without a policy":      {false, false, name, false},
	} {
		p := &parts{access: authz.NewTable(), own: authz.NewOwnListeners()}
		h := &api{parts: p, dials: &dialer{parts: p}}
		h.access.Replace(c.set, nil)
		s := &session{chooses: c.chooses, ranges: []string{"db.example", "10.0.0.0/8"}}
		hop := h.hopThrough(s, c.q)
		if denied := hop.Verdict == admin.VerdictDenied; denied != c.denied || denied != strings.Contains(hop.Why, "too old for names") {
			t.Errorf("%s: %+v", what, hop)
		}
	}
}
