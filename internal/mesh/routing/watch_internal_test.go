// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// What fails for other reasons and on other steps each time, or works in between, fills no log.
func TestFailuresInTurnAreToldOnce(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		r.begun(input(3))
		fail := func(n int) error {
			if n%4 == 3 {
				return nil
			}
			return fault.Newf([]fault.Code{fault.CodeKernel, fault.CodeClash}[n%2], "step %d", n)
		}
		for n := range 100 {
			r.kernel.Fail, r.kernel.Left = fail(n), 0
			r.Set(input(3 + n%2))
			r.wait(limit.RoutingQuiet / 100)
		}
		if n := r.logged("does not take the mesh's state"); n != 2 {
			t.Errorf("%d errors are logged:\n%s", n, r.log)
		}
		if n := r.logged("takes the mesh's state again"); n > 2 {
			t.Errorf("%d times it is told that it works:\n%s", n, r.log)
		}
	})
}
