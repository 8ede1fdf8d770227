// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"slices"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// TestTheMuxIsAgreedOn plays Hello and Welcome with peers of other releases.
func TestTheMuxIsAgreedOn(t *testing.T) {
	mux, choice := wire.CapabilityMux, wire.CapabilityChoice
	for name, c := range map[string]struct{ offered, taken []string }{
		"this release":            {wire.Offer(), []string{mux, choice}},
		"a later release":         {[]string{"mux/2", choice, mux}, []string{mux, choice}},
		"without choice":          {[]string{mux}, []string{mux}},
		"nothing":                 {nil, nil},
		"a release that is newer": {[]string{"mux/2", choice}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			taken, f := wire.Choose(c.offered)
			if !slices.Equal(taken, c.taken) || (f != nil) != (c.taken == nil) {
				t.Errorf("the hub takes %v, %v", taken, f)
			}
			if f != nil {
				explained(t, f)
			}
			f = wire.CheckTaken(taken)
			if (f != nil) != (c.taken == nil) {
				t.Errorf("the agent: %v", f)
			}
			if f != nil {
				explained(t, f)
			}
		})
	}
}

func explained(t *testing.T, f *fault.Fault) {
	t.Helper()
	if f.Code != fault.CodeVersion || f.Why == "" || f.Next == "" {
		t.Errorf("%s", f.Explain())
	}
}
