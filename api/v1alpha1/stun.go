// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// STUNConfig says where nodes of a mesh are told under which address and port the
// world sees them.
type STUNConfig struct {
	// Listen is a UDP port; none for no answers. Default: the number of the main port, if it is free.
	Listen string `json:"listen,omitempty"`
	// Second is another one, by which nodes learn how their NAT filters; none for none.
	// Default: 3478 of a discovery service, if it is free; none of a hub.
	Second string `json:"second,omitempty"`
}
