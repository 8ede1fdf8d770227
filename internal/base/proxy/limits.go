// SPDX-License-Identifier: Apache-2.0

package proxy

// Bounds and timings of this package.
const (
	// proxyHead bounds a proxy's answer to CONNECT.
	proxyHead = 16 << 10
)
