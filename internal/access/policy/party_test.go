// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/policy"
)

// TestAPartyIsMeantByItsName: rules between peers name a node by its name alone, or by its
// whole identity.
func TestAPartyIsMeantByItsName(t *testing.T) {
	parties := []policy.Party{{Caller: "spiffe://td/cluster/c1/node/web-1", Ranges: []netip.Prefix{netip.MustParsePrefix("10.0.2.0/24")}}}
	for caller, want := range map[string]bool{
		"web-1": true, "web-*": true, "spiffe://td/cluster/c1/node/web-1": true, "*": true,
		"web": false, "eb-1": false, "node/web-1": false, "web-12": false, "spiffe://td/cluster/c1/node/web": false,
	} {
		text := fmt.Sprintf("apiVersion: tombolo.dev/v1alpha1\nkind: AccessPolicy\nrules:\n- name: r\n  callers: [%q]\n  allow: [\"10.0.1.0/24:80\"]\n", caller)
		p, findings := policy.ReadBetweenPeers("c1", "p.yaml", []byte(text), nil)
		if p == nil {
			t.Fatalf("%s: %v", caller, findings)
		}
		low, problems := policy.Lower("c1", parties, p)
		if len(problems) > 0 {
			t.Fatalf("%s: %v", caller, problems)
		}
		found := false
		for _, s := range low.Sets {
			for _, r := range s.Ranges {
				found = found || r.From == netip.MustParseAddr("10.0.2.0")
			}
		}
		if found != want {
			t.Errorf("%q means web-1: %v, want %v (%+v)", caller, found, want, low)
		}
	}
}
