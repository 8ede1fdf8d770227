// SPDX-License-Identifier: Apache-2.0

// Package endpoint knows where this node can be reached: by the addresses of the machine,
// by what is configured, as STUN servers see its socket, and by a port that the router
// hands on. It notices when that changes. It does not announce anything and knows no
// peer: others ask it for its list.
package endpoint
