// SPDX-License-Identifier: Apache-2.0

package otlp

// Bounds for the tests of the package.
const (
	SpanQueue = spanQueue
	SpanBatch = spanBatch
)
