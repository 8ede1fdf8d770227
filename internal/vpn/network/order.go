// SPDX-License-Identifier: Apache-2.0

package network

import "net/netip"

// Order is in which order a machine or cluster tries n endpoints, the first one first: by the last byte of its own
// address, so that all of them share the endpoints, and nobody has to be asked. Of two, an even byte prefers the first
// and an odd one the second (GEP-14). Of more, those with one first choice have different second ones: the rest shares
// what a lost one had. Without an address the order is as written.
func Order(self netip.Addr, n int) []int {
	out := make([]int, 0, max(n, 0))
	if n <= 0 {
		return out
	}
	last := 0
	if b := self.AsSlice(); len(b) > 0 {
		last = int(b[len(b)-1])
	}
	first := last % n
	out = append(out, first)
	for i := range n - 1 {
		out = append(out, (first+1+(last/n+i)%(n-1))%n)
	}
	return out
}
