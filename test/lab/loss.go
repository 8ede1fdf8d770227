// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/demo/network"
)

// Lose drops one packet in so many that come in through the link, by chance. Its
// count is the packets dropped. One direction only: for both, let both ends
// lose. It drops what the kernel passes as one packet, so see SinglePackets.
func Lose(h *Host, link string, oneIn uint32) *Filter {
	return lose(h, "lose-"+link, link, oneIn, unix.NFT_NG_RANDOM)
}

// LoseEvery is Lose without chance: it drops the first packet in every so many.
func LoseEvery(h *Host, link string, oneIn uint32) *Filter {
	return lose(h, "lose-every-"+link, link, oneIn, unix.NFT_NG_INCREMENTAL)
}

func lose(h *Host, table, link string, oneIn, how uint32) *Filter {
	match := append(network.Through(expr.MetaKeyIIFNAME, link),
		&expr.Numgen{Register: 1, Modulus: oneIn, Type: how},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(0)},
	)
	return h.Filter(table, incoming(match))
}

// SinglePackets makes the link carry packets of its own size. A veth link
// otherwise passes what a sender has collected, up to 64 KiB, as one: a loss on
// it would take 40 packets at once, which no cable does.
func SinglePackets(h *Host, link string) error {
	return change(h, link, func(l netlink.Link) error { return h.Netlink().LinkSetGSOMaxSegs(l, 1) })
}
