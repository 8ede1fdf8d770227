// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"slices"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// CapabilityMux names our own mux in Hello and Welcome; with no capability for
// a mux in Welcome, yamux follows, as between all older releases.
const CapabilityMux = "mux/1"

// CapabilityChoice says that an agent lets the hub choose among the addresses of
// a name before it dials (DialRequest.ask).
const CapabilityChoice = "choice/1"

// CheckCarrier judges the settings carrier and connections, which hub and agent
// share, and gives the number of connections that counts: the most if none is said.
func CheckCarrier(carrier string, connections *int, add func(path, format string, args ...any)) int {
	switch carrier {
	case v1alpha1.CarrierAuto, v1alpha1.CarrierMux, v1alpha1.CarrierYamux:
	default:
		add("carrier", "%q is none of auto, mux, yamux", carrier)
	}
	if connections == nil {
		return limit.Connections
	}
	if *connections < 1 || *connections > limit.Connections { // 0 may have been meant as none, or as no bound
		add("connections", "%d is not 1 to %d; leave it out for %d", *connections, limit.Connections, limit.Connections)
	}
	return *connections
}

// Offer is what an agent with this setting of carrier names in Hello.
func Offer(carrier string) []string {
	if carrier == v1alpha1.CarrierYamux {
		return []string{CapabilityChoice}
	}
	return []string{CapabilityMux, CapabilityChoice}
}

// Choose is what a hub with this setting takes of what an agent offers.
func Choose(carrier string, offered []string) (taken []string, f *fault.Fault) {
	if slices.Contains(offered, CapabilityChoice) {
		taken = []string{CapabilityChoice}
	}
	both := slices.Contains(offered, CapabilityMux)
	switch {
	case carrier == v1alpha1.CarrierYamux:
		return taken, nil
	case both:
		return append(taken, CapabilityMux), nil
	case carrier == v1alpha1.CarrierMux:
		return nil, fault.New(fault.CodeVersion, "the agent does not offer the mux that this hub demands").
			Whyf("the hub's configuration says carrier: mux; the agent offers yamux alone").
			Hint("bring the agent to this release, remove its own carrier: yamux, or set carrier: auto on the hub")
	}
	return taken, nil
}

// Taken says whether the mux follows, as an agent with this setting reads a
// hub's answer to its offer.
func Taken(carrier string, taken []string) (mux bool, f *fault.Fault) {
	mux = slices.Contains(taken, CapabilityMux)
	switch {
	case mux && carrier == v1alpha1.CarrierYamux:
		return false, fault.New(fault.CodeFrameInvalid, "the hub chose a mux that was not offered")
	case !mux && carrier == v1alpha1.CarrierMux:
		return false, fault.New(fault.CodeVersion, "the hub does not take the mux that this agent demands").
			Whyf("the agent's configuration says carrier: mux; the hub chose yamux").
			Hint("bring the hub to this release, remove its own carrier: yamux, or set carrier: auto on the agent")
	}
	return mux, nil
}
