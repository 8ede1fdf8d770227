// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// TestReviewOfAToken reads what API servers answer.
func TestReviewOfAToken(t *testing.T) {
	const user = `"user":{"username":"system:serviceaccount:ns:a",
		"extra":{"authentication.kubernetes.io/node-name":["n1"]}}`
	good := Review{User: "system:serviceaccount:ns:a", Node: "n1"}
	for answer, want := range map[string]struct {
		Review
		why string // of a refusal
	}{
		`{"authenticated":true,"audiences":["konnectivity"],` + user + `}`:            {good, ""},
		`{"authenticated":true,"audiences":["other","konnectivity"],` + user + `}`:    {good, ""},
		`{"authenticated":true,"audiences":["konnectivity"],"user":{"username":"x"}}`: {Review{User: "x"}, ""},
		`{"authenticated":true,"audiences":["konnectivity"],"user":{"username":"x",
			"extra":{"authentication.kubernetes.io/node-name":["n1","n2"]}}}`: {Review{User: "x"}, ""},
		`{"authenticated":true,"audiences":["https://kubernetes"],` + user + `}`: {Review{}, `names ["https://kubernetes"]`},
		`{"authenticated":true,"audiences":["Konnectivity"],` + user + `}`:       {Review{}, `names ["Konnectivity"]`},
		`{"authenticated":true,"audiences":[],` + user + `}`:                     {Review{}, "names []"},
		`{"authenticated":true,` + user + `}`:                                    {Review{}, "names []"},
		`{"authenticated":false,"audiences":["konnectivity"],` + user + `}`:      {Review{}, "not valid"},
		`{"authenticated":false,"error":"it has expired"}`:                       {Review{}, "says: it has expired"},
		`{}`: {Review{}, "not valid"},
	} {
		var r tokenReview
		if err := json.Unmarshal([]byte(`{"status":`+answer+`}`), &r); err != nil {
			t.Fatal(err)
		}
		got, err := r.judge("konnectivity")
		if got != want.Review || (err != nil) != (want.why != "") {
			t.Errorf("%s: %+v, %v", answer, got, err)
		}
		if err != nil && (!fault.Has(err, fault.CodeUnauthorized) || !strings.Contains(err.Error(), want.why)) {
			t.Errorf("%s: %v", answer, err)
		}
	}
}
