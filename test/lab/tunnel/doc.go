// SPDX-License-Identifier: Apache-2.0

// Package tunnel tests the mesh's engine with TUN devices of the kernel, in network
// namespaces: TCP within, and what is seen of it outside. It has no product code.
package tunnel
