// SPDX-License-Identifier: Apache-2.0

package ipsec

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// Add installs a state. Its key is in the kernel then, and nowhere else. The library cannot say that a state is for
// inner packets of both families (XFRM_STATE_AF_UNSPEC), so the message is made here.
func (d *Device) Add(s State) error {
	key := s.Key.Get()
	if key == nil {
		return fault.New(fault.CodeInternal, "a state of IPsec").Whyf("it has no key")
	}
	req := nl.NewNetlinkRequest(nl.XFRM_MSG_NEWSA, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_XFRM: d.socket}
	info := &nl.XfrmUsersaInfo{Family: family(s.To), Mode: uint8(netlink.XFRM_MODE_TUNNEL), Reqid: s.Peer,
		Flags: nl.XFRM_STATE_AF_UNSPEC | nl.XFRM_STATE_ESN, Lft: limits(s.Limits)}
	info.Id.Daddr, info.Saddr = kernelAddress(s.To), kernelAddress(s.From)
	info.Id.Proto, info.Id.Spi = uint8(netlink.XFRM_PROTO_ESP), nl.Swap32(s.SPI)
	aead := nl.XfrmAlgoAEAD{AlgKeyLen: KeyBytes * 8, AlgICVLen: checkBits, AlgKey: key[:]}
	copy(aead.AlgName[:], s.Cipher.Kernel())
	replay := nl.XfrmReplayStateEsn{ReplayWindow: window, BmpLen: window / 32}
	req.AddData(info)
	add := func(kind int, data []byte) { req.AddData(nl.NewRtAttr(kind, data)) }
	add(nl.XFRMA_ALG_AEAD, aead.Serialize())
	add(nl.XFRMA_REPLAY_ESN_VAL, replay.Serialize())
	add(nl.XFRMA_IF_ID, nl.Uint32Attr(d.s.ID))
	if s.Sends && d.s.Mark != 0 {
		add(nl.XFRMA_SET_MARK, nl.Uint32Attr(d.s.Mark))
		add(nl.XFRMA_SET_MARK_MASK, nl.Uint32Attr(d.s.Mask))
	}
	if s.ToPort != 0 {
		encap := nl.XfrmEncapTmpl{EncapType: uint16(netlink.XFRM_ENCAP_ESPINUDP), EncapSport: nl.Swap16(s.FromPort),
			EncapDport: nl.Swap16(s.ToPort)}
		add(nl.XFRMA_ENCAP, encap.Serialize())
	}
	if _, err := req.Execute(unix.NETLINK_XFRM, 0); err != nil {
		return failed(fmt.Sprintf("adding the state %#x to %s", s.SPI, s.To), err)
	}
	return nil
}

func limits(l Limits) nl.XfrmLifetimeCfg {
	or := func(most uint64) uint64 {
		if most == 0 {
			return nl.XFRM_INF
		}
		return most
	}
	return nl.XfrmLifetimeCfg{SoftByteLimit: nl.XFRM_INF, HardByteLimit: or(l.Bytes), SoftPacketLimit: nl.XFRM_INF,
		HardPacketLimit: or(l.Packets), HardAddExpiresSeconds: uint64(l.Age / time.Second)}
}

func family(a netip.Addr) uint16 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func kernelAddress(a netip.Addr) (out nl.XfrmAddress) {
	copy(out[:], a.AsSlice())
	return out
}
