// SPDX-License-Identifier: Apache-2.0

package loopback

import (
	"net/netip"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

const (
	// places bounds the peers that have one, well below what there are.
	places = 1 << 15
	// packetBytes is the longest packet that is read: a hub passes on no longer one.
	packetBytes = limit.RelayDatagram
	// buffer is what the kernel keeps of packets that are on their way.
	buffer = 1 << 20
)

// lowest and highest bound the places of peers. All of 127.0.0.0/8 is this machine's.
func lowest() netip.Addr  { return netip.AddrFrom4([4]byte{127, 84, 0, 1}) }
func highest() netip.Addr { return netip.AddrFrom4([4]byte{127, 84, 255, 254}) }

// local4 is where the kernel's port is on the loopback link.
func local4() netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, 1}) }
