// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"net/netip"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/policy"
)

// BenchmarkDecide asks a usual agent's rules about a pod, the last of them.
func BenchmarkDecide(b *testing.B) {
	p, problems := policy.CompileAllow([]string{"192.168.7.0/24:10250", "*.svc.cluster.local:443", "10.96.0.0/12", "10.244.0.0/16"})
	if len(problems) > 0 {
		b.Fatal(problems)
	}
	q := policy.Request{Addr: netip.MustParseAddr("10.244.3.7"), Port: 8443}
	b.ReportAllocs()
	for b.Loop() {
		if !policy.Decide(q, p).Allow {
			b.Fatal("refused")
		}
	}
}
