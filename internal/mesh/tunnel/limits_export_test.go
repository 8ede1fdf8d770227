// SPDX-License-Identifier: Apache-2.0

package tunnel

// Bounds for the tests of the package.
const (
	TunnelProbe  = tunnelProbe
	TunnelPacket = tunnelPacket
)
