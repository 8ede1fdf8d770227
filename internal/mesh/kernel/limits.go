// SPDX-License-Identifier: Apache-2.0

package kernel

// The bounds of this package alone.
const (
	// planLine bounds the text of a rule of nftables, which the kernel keeps beside it
	// in at most 256 bytes.
	planLine = 240
	// kernelBuffer is what sockets to nftables hold: a transaction is one message, and
	// each of its parts is answered. Thousands of rules have a megabyte.
	kernelBuffer = 8 << 20
	// kernelRanges is from how many ranges on a transaction ends: 100 KiB, which fit
	// into the buffer that the kernel gives to a process that it allows no larger one.
	kernelRanges = 1536
	// kernelTold is how many kinds of errors of one transaction are reported, each with how often it came.
	kernelTold = 4
	// kernelReads is how often what changes while it is read is read again.
	kernelReads = 8
)
