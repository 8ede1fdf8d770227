// SPDX-License-Identifier: Apache-2.0

// Package edge is the public front door of many clusters: it learns where a connection
// comes from and which cluster it wants, asks the policy, and copies bytes to that
// cluster's upstream. It ends no TLS, and knows no identity but the source address.
package edge
