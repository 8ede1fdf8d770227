// SPDX-License-Identifier: Apache-2.0

package istio_test

import (
	"fmt"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/istio"
)

// BenchmarkPlan is one plan for 500 clusters with 60 ranges each; Coverage is that of one of them.
func BenchmarkPlan(b *testing.B) {
	f := manyShoots(500)
	for _, enforcement := range istio.Enforcements() {
		w := gateway(enforcement)
		written, _ := istio.Plan(f, w)
		g := f.With(written)
		b.Run(enforcement, func(b *testing.B) {
			for b.Loop() {
				istio.Plan(f, w)
			}
		})
		b.Run("coverage-"+enforcement, func(b *testing.B) {
			for b.Loop() {
				istio.Coverage(g, w, "shoot--p--s007")
			}
		})
	}
}

// manyShoots are shoots with 60 ranges each.
func manyShoots(n int) istio.Facts {
	var shoots []istio.Cluster
	for i := range n {
		var ranges []string
		for j := range 60 {
			ranges = append(ranges, fmt.Sprintf("10.%d.%d.0/24", i%256, j))
		}
		shoots = append(shoots, shoot(fmt.Sprintf("s%03d", i), list(ranges...)))
	}
	return seed(shoots...)
}
