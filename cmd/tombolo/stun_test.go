// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/stunserver/stunservertest"
)

// TestAHubTellsWhereCallersComeFrom: by UDP at the number of its main port.
func TestAHubTellsWhereCallersComeFrom(t *testing.T) {
	w := startHub(t)
	stunservertest.Answers(t, w.listen)
	if text := must(t, "status"); !strings.Contains(text, "STUN: on "+w.listen+" (UDP)\n") {
		t.Errorf("the status does not say so:\n%s", text)
	}
}
