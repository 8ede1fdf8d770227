// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// SA is a state of IPsec that a host's kernel has, with its key.
type SA struct {
	From, To netip.Addr
	SPI      uint32
	Link     int    // the id of the link whose it is; 0: of none
	Key      []byte // with its salt; empty: the cipher is not an authenticated one
}

// SAs are all states of a host.
func SAs(h *Host) (out []SA, err error) {
	var all []netlink.XfrmState
	err = h.Do(func() (err error) { // a Host's netlink has no socket of XFRM
		all, err = netlink.XfrmStateList(netlink.FAMILY_ALL)
		return err
	})
	for i := range all {
		s := &all[i]
		from, _ := netip.AddrFromSlice(s.Src)
		to, _ := netip.AddrFromSlice(s.Dst)
		sa := SA{From: from.Unmap(), To: to.Unmap(), SPI: uint32(s.Spi), Link: s.Ifid}
		if s.Aead != nil {
			sa.Key = s.Aead.Key
		}
		out = append(out, sa)
	}
	return out, err
}

// Wear is how much a state has done, as if it had.
type Wear struct {
	Packets uint64 // that count for its limits
	// Sent and Received are the sequence numbers of the last packets. Both are 0: they stay.
	Sent, Received uint64
	ESN            bool // they have 64 bits, and the window is that of a mesh's states
}

// Age has a state be as worn as that (XFRM_MSG_NEWAE).
func Age(h *Host, s SA, w Wear) error {
	return h.Do(func() error {
		id := nl.XfrmUsersaId{Spi: nl.Swap32(s.SPI), Family: unix.AF_INET, Proto: unix.IPPROTO_ESP}
		if s.To.Is6() {
			id.Family = unix.AF_INET6
		}
		copy(id.Daddr[:], s.To.AsSlice())
		req := nl.NewNetlinkRequest(nl.XFRM_MSG_NEWAE, unix.NLM_F_REPLACE|unix.NLM_F_ACK)
		const rest = 16 + 4 + 4 // source, flags, reqid: of who asks
		req.AddData(message(append(id.Serialize(), make([]byte, rest)...)))
		switch {
		case w.Sent == 0 && w.Received == 0:
		case w.ESN:
			const window = 1024
			esn := nl.XfrmReplayStateEsn{BmpLen: window / 32, ReplayWindow: window, OSeq: uint32(w.Sent),
				OSeqHi: uint32(w.Sent >> 32), Seq: uint32(w.Received), SeqHi: uint32(w.Received >> 32)}
			req.AddData(nl.NewRtAttr(nl.XFRMA_REPLAY_ESN_VAL, append(esn.Serialize(), make([]byte, window/8)...)))
		default:
			var old []byte // struct xfrm_replay_state
			for _, v := range []uint32{uint32(w.Sent), uint32(w.Received), 0} {
				old = binary.NativeEndian.AppendUint32(old, v)
			}
			req.AddData(nl.NewRtAttr(nl.XFRMA_REPLAY_VAL, old))
		}
		now := uint64(time.Now().Unix())
		var life []byte // struct xfrm_lifetime_cur: bytes, packets, when it was made and used
		for _, v := range []uint64{w.Packets, w.Packets, now, now} {
			life = binary.NativeEndian.AppendUint64(life, v)
		}
		req.AddData(nl.NewRtAttr(nl.XFRMA_LTIME_VAL, life))
		_, err := req.Execute(unix.NETLINK_XFRM, 0)
		return err
	})
}

// message is the part of a message of netlink before its attributes.
type message []byte

func (m message) Len() int          { return len(m) }
func (m message) Serialize() []byte { return m }
