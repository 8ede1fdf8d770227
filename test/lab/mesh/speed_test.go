// SPDX-License-Identifier: Apache-2.0

//go:build lab && !guest

package mesh

// slowness is that of a machine as it is.
const slowness = 1
