// SPDX-License-Identifier: Apache-2.0

package stunserver

// The bounds of this package alone.
const (
	// stunServerRate and stunServerBurst bound the answers of a STUN server to one address (one /64
	// of IPv6): a node asks three times a minute, and a provider's NAT hides a thousand.
	stunServerRate, stunServerBurst = 50, 200
	// stunServerTotal and stunServerTotalBurst bound all its answers in a second: 20,000 of them are 2 MB,
	// which is all that a flood with forged sources can make it send.
	stunServerTotal, stunServerTotalBurst = 20_000, 5_000
	// stunServerSources bounds the addresses whose rate is counted; the least recent one
	// is dropped.
	stunServerSources = 16_384
)
