// SPDX-License-Identifier: Apache-2.0

package reqmeta

// The bounds of this package alone.
const (
	// traceState bounds the tracestate that is passed on, and traceMembers its
	// members: what W3C Trace Context asks for (sections 3.3.1.1 and 3.3.1.5).
	traceState = 512
	// traceMembers bounds the members of a tracestate.
	traceMembers = 32
	// traceMember is the length of a member above which it gives way first.
	traceMember = 128
)
