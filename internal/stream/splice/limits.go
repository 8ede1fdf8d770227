// SPDX-License-Identifier: Apache-2.0

package splice

// The bounds of this package alone.
const (
	// lastWords is what the end of a TLS connection takes, an alert in its record: a
	// caller of which no more waits to be read has nothing to say.
	lastWords = 64
)
