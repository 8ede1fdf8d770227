// SPDX-License-Identifier: Apache-2.0

package system

import (
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// TestAPasswordInADestinationIsNotLogged: callers put whole URLs where host:port belongs.
func TestAPasswordInADestinationIsNotLogged(t *testing.T) {
	const password = "S3CR3T-of-a-destination"
	plant(t, "a password in a destination", password)
	h, _ := pair(t, hubSpec{}, agentSpec{})
	for _, w := range h.ways("c1") {
		for _, asked := range []string{"user:" + password + "@10.0.0.1:80", password + "@10.0.0.1:80", "user:" + password + "@10.0.0.1"} {
			conn, err := w.dial(runtest.Within(t), asked)
			if err == nil {
				conn.Close()
				t.Fatalf("%s: it was dialled", w.name)
			}
		}
	}
	if len(h.log.records("dial failed")) == 0 {
		t.Error("the dials are not in the log at all")
	}
	if strings.Contains(h.log.String(), password) {
		t.Errorf("the log has the password:\n%s", h.log.String())
	}
}
