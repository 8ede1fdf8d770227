// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Lose drops one packet in so many that come in through the link, by chance. Its
// count is the packets dropped. One direction only: for both, let both ends
// lose. It drops what the kernel passes as one packet, so see SinglePackets.
func (h *Host) Lose(link string, oneIn uint32) *Filter {
	return h.lose("lose-"+link, link, oneIn, unix.NFT_NG_RANDOM)
}

// LoseEvery is Lose without chance: it drops the first packet in every so many.
func (h *Host) LoseEvery(link string, oneIn uint32) *Filter {
	return h.lose("lose-every-"+link, link, oneIn, unix.NFT_NG_INCREMENTAL)
}

func (h *Host) lose(table, link string, oneIn, how uint32) *Filter {
	match := append(through(expr.MetaKeyIIFNAME, link),
		&expr.Numgen{Register: 1, Modulus: oneIn, Type: how},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(0)},
	)
	return &Filter{host: h, table: table, chains: []chain{{
		name: "in", kind: nftables.ChainTypeFilter,
		hook: nftables.ChainHookPrerouting, priority: nftables.ChainPriorityRaw,
		rules: [][]expr.Any{rule(match, drop())},
	}}}
}

// SinglePackets makes the link carry packets of its own size. A veth link
// otherwise passes what a sender has collected, up to 64 KiB, as one: a loss on
// it would take 40 packets at once, which no cable does.
func (h *Host) SinglePackets(link string) error {
	l, err := h.link.LinkByName(link)
	if err != nil {
		return fmt.Errorf("finding %s of %s: %w", link, h.name, err)
	}
	if err := h.link.LinkSetGSOMaxSegs(l, 1); err != nil {
		return fmt.Errorf("making %s of %s carry single packets: %w", link, h.name, err)
	}
	return nil
}
