// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// STUNConfig configures a STUN server, from which nodes of a mesh learn their mapped
// address and port.
type STUNConfig struct {
	// Listen is a UDP listen address; none disables the server. Default: the number of the main
	// port, if it is free.
	Listen string `json:"listen,omitempty"`
	// Second is another one, by which nodes learn how their NAT filters; none disables it.
	// Default: 3478 for a discovery service, if it is free; none for a hub.
	Second string `json:"second,omitempty"`
}
