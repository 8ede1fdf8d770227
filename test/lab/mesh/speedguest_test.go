// SPDX-License-Identifier: Apache-2.0

//go:build guest

package mesh

// slowness is that of a guest, which QEMU emulates beside whatever else its machine does.
const slowness = 4
