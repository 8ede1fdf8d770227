// SPDX-License-Identifier: Apache-2.0

package answer_test

import (
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/route/answer"
)

func TestOf(t *testing.T) {
	for code, want := range map[fault.Code]answer.Answer{
		fault.CodeDialRefused:     answer.Reset,
		fault.CodeStreamReset:     answer.Reset,
		fault.CodeDialUnreachable: answer.NoHost,
		fault.CodeDialDNS:         answer.NoHost,
		fault.CodeDialTimeout:     answer.Silence,
		fault.CodeDialCanceled:    answer.Silence,
		fault.CodeLimit:           answer.Silence,
		fault.CodePolicyDenied:    answer.Prohibited,
		fault.CodeUnauthorized:    answer.Prohibited,
		fault.CodeCertRevoked:     answer.Prohibited,
		fault.CodeCertExpired:     answer.Prohibited,
		fault.CodeNoAgent:         answer.NoNetwork,
		fault.CodeHubAway:         answer.NoNetwork,
		fault.CodeDraining:        answer.NoNetwork,
		fault.CodeSessionLost:     answer.NoNetwork,
		fault.CodeClusterUnknown:  answer.NoNetwork,
		fault.CodeInternal:        answer.NoNetwork,
		"of a later release":      answer.NoNetwork,
	} {
		if got := answer.Of(code); got != want {
			t.Errorf("%s: %s, want %s", code, got, want)
		}
	}
	seen := map[string]bool{}
	for a := answer.Silence; a <= answer.Prohibited; a++ {
		if a.String() == "" || seen[a.String()] {
			t.Errorf("%d is called %q", a, a)
		}
		seen[a.String()] = true
	}
}
