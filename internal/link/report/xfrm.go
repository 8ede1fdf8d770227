// SPDX-License-Identifier: Apache-2.0

package report

import (
	"net/netip"
	"slices"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
)

// policies are those about a peer: what it is sent goes by the tunnel that sends, and is taken from any of its own.
func policies(p Peer) (out []v1alpha1.XfrmPolicy) {
	i := slices.IndexFunc(p.SAs, func(s SA) bool { return s.Sends })
	if i < 0 {
		return nil
	}
	s := p.SAs[i]
	here, there := v1alpha1.Address(s.Local.String()), v1alpha1.Address(s.Remote.String())
	for _, r := range p.Allowed {
		all := v1alpha1.Range(netip.PrefixFrom(netip.IPv4Unspecified(), 0).String())
		if r.Addr().Is6() {
			all = v1alpha1.Range(netip.PrefixFrom(netip.IPv6Unspecified(), 0).String())
		}
		far := v1alpha1.Range(r.String())
		out = append(out, v1alpha1.XfrmPolicy{LeftIP: here, LeftNet: all, RightIP: there, RightNet: far,
			ReqID: int64(s.Number), Dir: v1alpha1.XfrmOut})
		for _, dir := range []string{v1alpha1.XfrmIn, v1alpha1.XfrmFwd} {
			out = append(out, v1alpha1.XfrmPolicy{LeftIP: there, LeftNet: far, RightIP: here, RightNet: all,
				ReqID: int64(s.Number), Dir: dir})
		}
	}
	return out
}

// states are the directions of a peer's tunnels.
func states(p Peer) (out []v1alpha1.XfrmState) {
	for _, s := range p.SAs {
		here, there := v1alpha1.Address(s.Local.String()), v1alpha1.Address(s.Remote.String())
		out = append(out, v1alpha1.XfrmState{LeftIP: there, RightIP: here, ReqID: int64(s.Number), SPI: int64(s.In),
			Algorithm: s.Algorithm})
		if s.Out != 0 {
			out = append(out, v1alpha1.XfrmState{LeftIP: here, RightIP: there, ReqID: int64(s.Number), SPI: int64(s.Out),
				Algorithm: s.Algorithm})
		}
	}
	return out
}
