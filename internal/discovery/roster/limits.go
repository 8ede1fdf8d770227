// SPDX-License-Identifier: Apache-2.0

package roster

// The bounds of this package alone.
const (
	// rosterFacts bounds each list that a source states of a member.
	rosterFacts = 1024
	// rosterAnnotation bounds an annotation: all of an object have 256 KiB.
	rosterAnnotation = 64 << 10
)
