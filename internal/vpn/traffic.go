// SPDX-License-Identifier: Apache-2.0

package vpn

import (
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/vpn/openvpn"
)

// count adds what OpenVPN counted since in and out, which become what it counted. A new connection counts from 0.
func count(m *telemetry.VPN, peer string, in, out *uint64, t openvpn.Traffic) {
	for _, one := range []struct {
		direction string
		was       *uint64
		is        uint64
	}{{"in", in, t.In}, {"out", out, t.Out}} {
		more := one.is
		if one.is >= *one.was {
			more -= *one.was
		}
		m.Bytes.WithLabelValues(peer, one.direction).Add(float64(more))
		*one.was = one.is
	}
}
