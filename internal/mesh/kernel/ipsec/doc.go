// SPDX-License-Identifier: Apache-2.0

// Package ipsec keeps what the kernel has of a mesh's IPsec (RFC 4303, in tunnel mode): a link of kind xfrm into which
// the routes of other nodes lead, the policies of that link, which say which range is which peer's, and the states
// with their keys. It diverts packets of peers that another engine carries to that engine's link. What does not bear
// the link's id is somebody else's: it is neither read further nor touched.
// It does not agree on keys, and does not choose paths.
//
//	pod ──► route ──► link (if_id) ──► policy: out, range ──► state: reqid, SPI, key ──► ESP, or ESP in UDP
//	pod ◄── route ◄── link (if_id) ◄── policy: in, forward ◄── state ◄── ESP
//
// Nothing leaves the link in clear: what no policy names meets one that blocks, and what has no state is dropped.
package ipsec
