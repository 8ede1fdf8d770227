// SPDX-License-Identifier: Apache-2.0

// Package rawesp sends and hears what nodes say to each other by IP's protocol 50, beside the ESP of the kernel, so
// that they find out whether packets of it pass. It is told from ESP by the SPI, which no state has. It does not take
// anything away from the kernel, which drops it and counts that as XfrmInNoStates, and no packet of ESP comes up from
// the kernel. It does not judge what it hands over: whatever is in there proves itself.
//
//	protocol 50 ──┬──► the kernel's ESP
//	              └──► a filter in the kernel: SPI ──► Run
package rawesp
