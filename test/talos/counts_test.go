// SPDX-License-Identifier: Apache-2.0

//go:build counts

package talos

import (
	"testing"
	"time"
)

// TestFiveHundredNodesBehindOneAddress, with the limits of a service as it comes.
func TestFiveHundredNodesBehindOneAddress(t *testing.T) {
	s := newSite(t, newService(t, "").at, 500)
	t.Logf("all pairs after %v", s.meets(time.Minute))
	if failed := s.failed(); len(failed) > 0 {
		t.Errorf("%d updates failed: %v", len(failed), failed[0])
	}
}
