// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"testing"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// TestTheMuxIsChosenByBoth plays Hello and Welcome for every pair of settings,
// those of releases that know no capability included.
func TestTheMuxIsChosenByBoth(t *testing.T) {
	const older = "an older release"
	const auto, mux, yamux = v1alpha1.CarrierAuto, v1alpha1.CarrierMux, v1alpha1.CarrierYamux
	for _, c := range []struct {
		agent, hub string
		mux        bool
		refuses    string // hub or agent; empty: nobody
	}{
		{auto, auto, true, ""}, {auto, mux, true, ""}, {mux, auto, true, ""}, {mux, mux, true, ""},
		{auto, yamux, false, ""}, {yamux, auto, false, ""}, {yamux, yamux, false, ""},
		{yamux, mux, false, "hub"}, {mux, yamux, false, "agent"},
		{older, auto, false, ""}, {older, yamux, false, ""}, {older, mux, false, "hub"},
		{auto, older, false, ""}, {yamux, older, false, ""}, {mux, older, false, "agent"},
	} {
		t.Run(c.agent+" with "+c.hub, func(t *testing.T) {
			var offered, taken []string
			if c.agent != older {
				offered = append(wire.Offer(c.agent), "of a later release")
			}
			if c.hub != older {
				var f *fault.Fault
				if taken, f = wire.Choose(c.hub, offered); (f != nil) != (c.refuses == "hub") {
					t.Fatalf("the hub: %v, %v", taken, f)
				} else if f != nil {
					explained(t, f)
					return
				}
			}
			if c.agent == older {
				if len(taken) > 0 {
					t.Errorf("an older agent is told %v", taken)
				}
				return
			}
			got, f := wire.Taken(c.agent, taken)
			if (f != nil) != (c.refuses == "agent") || got != c.mux {
				t.Errorf("the agent: %v, %v", got, f)
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

func TestAMuxThatWasNotOffered(t *testing.T) {
	if mux, f := wire.Taken(v1alpha1.CarrierYamux, []string{wire.CapabilityMux}); mux || f == nil || f.Code != fault.CodeFrameInvalid {
		t.Errorf("%v, %v", mux, f)
	}
}
