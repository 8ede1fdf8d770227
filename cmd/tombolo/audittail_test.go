// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

// TestAuditTailIsBounded: a number of lines that memory cannot hold is refused.
func TestAuditTailIsBounded(t *testing.T) {
	file := auditFile(t, nil, "")
	for _, n := range []string{"5000000000000000000", "1000001", "-1"} {
		wantExit(t, tombolo(t, "audit", "tail", "-n", n, file), 2, "--lines is "+n, "0 to 1000000 are accepted")
	}
	must(t, "audit", "tail", "-n", "1000000", file)
}
