// SPDX-License-Identifier: Apache-2.0

// Package konnectivity has tests of tombolo konnectivity-server and konnectivity-agent against the programs that they
// replace, which the module below it builds, and the real client of kube-apiserver. It holds no code of the product.
package konnectivity
