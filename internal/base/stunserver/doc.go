// SPDX-License-Identifier: Apache-2.0

// Package stunserver is a STUN server (RFC 8489): it tells callers from where they come,
// and nothing else. It keeps nothing of them but how much they ask, and answers no
// question that is not a binding request.
package stunserver
