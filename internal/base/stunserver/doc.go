// SPDX-License-Identifier: Apache-2.0

// Package stunserver is a STUN server (RFC 8489): it answers binding requests with the
// caller's address and port, those from a port of ESP in UDP (nat.Marker) too. It keeps only
// request rates, and does not answer any other message.
package stunserver
