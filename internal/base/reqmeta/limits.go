// SPDX-License-Identifier: Apache-2.0

package reqmeta

// The bounds of this package alone.
const (
	// traceState bounds the tracestate that is propagated, in bytes, as W3C Trace Context
	// requires (sections 3.3.1.1 and 3.3.1.5).
	traceState = 512
	// traceMembers bounds the members of a tracestate.
	traceMembers = 32
	// traceMember is the length above which a member is dropped first.
	traceMember = 128
)
