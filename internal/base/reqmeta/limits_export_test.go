// SPDX-License-Identifier: Apache-2.0

package reqmeta

// Bounds for the tests of the package.
const (
	TraceState   = traceState
	TraceMembers = traceMembers
)
