// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// OthersIPsec gives a host what other programs have of IPsec: strongSwan a tunnel by a cipher that is not authenticated,
// a trap, a passthrough and its sockets' policies, Cilium a tunnel told apart by marks with a policy that lets everything
// pass, and a link of kind xfrm. It returns what AllIPsec finds then. The sockets are open as long as the network.
func OthersIPsec(h *Host) ([]string, error) {
	err := h.Do(func() error {
		return errors.Join(likeStrongSwan(), likeCilium(),
			netlink.LinkAdd(&netlink.Xfrmi{LinkAttrs: netlink.LinkAttrs{Name: "ipsec7"}, Ifid: 7}))
	})
	if err != nil {
		return nil, err
	}
	ike, err := h.ListenUDP("udp4", ":500")
	if err != nil {
		return nil, err
	}
	h.Network().Keep(ike)
	if err := bypass(ike); err != nil {
		return nil, err
	}
	return AllIPsec(h)
}

var (
	aRange      = net.IPNet{IP: net.IPv4(203, 0, 113, 0).To4(), Mask: net.CIDRMask(24, 32)}
	anotherOne  = net.IPNet{IP: net.IPv4(198, 18, 77, 0).To4(), Mask: net.CIDRMask(24, 32)}
	allRanges   = net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}
	aGateway    = net.IPv4(203, 0, 113, 1).To4()
	itsGateway  = net.IPv4(203, 0, 113, 2).To4()
	othersReqID = 336
)

func likeStrongSwan() error {
	tmpl := netlink.XfrmPolicyTmpl{Src: aGateway, Dst: itsGateway, Proto: netlink.XFRM_PROTO_ESP,
		Mode: netlink.XFRM_MODE_TUNNEL, Reqid: othersReqID}
	return errors.Join(
		netlink.XfrmStateAdd(&netlink.XfrmState{Src: aGateway, Dst: itsGateway, Proto: netlink.XFRM_PROTO_ESP,
			Mode: netlink.XFRM_MODE_TUNNEL, Spi: 0x777, Reqid: othersReqID,
			Auth:  &netlink.XfrmStateAlgo{Name: "hmac(sha256)", Key: make([]byte, 32)},
			Crypt: &netlink.XfrmStateAlgo{Name: "cbc(aes)", Key: make([]byte, 32)}}),
		netlink.XfrmPolicyAdd(&netlink.XfrmPolicy{Src: &aRange, Dst: &anotherOne, Dir: netlink.XFRM_DIR_OUT,
			Priority: 371327, Tmpls: []netlink.XfrmPolicyTmpl{tmpl}}),
		netlink.XfrmPolicyAdd(&netlink.XfrmPolicy{Src: &anotherOne, Dst: &aRange, Dir: netlink.XFRM_DIR_FWD,
			Priority: 371327, Tmpls: []netlink.XfrmPolicyTmpl{tmpl}}),
		netlink.XfrmPolicyAdd(&netlink.XfrmPolicy{Src: &anotherOne, Dst: &anotherOne, Dir: netlink.XFRM_DIR_IN,
			Priority: 371000}), // a passthrough: without a template
		netlink.XfrmPolicyAdd(&netlink.XfrmPolicy{Src: &aRange, Dst: &aRange, Dir: netlink.XFRM_DIR_OUT,
			Action: netlink.XFRM_POLICY_BLOCK}))
}

func likeCilium() error {
	mark := &netlink.XfrmMark{Value: 0x3e00, Mask: 0xff00}
	return errors.Join(
		netlink.XfrmStateAdd(&netlink.XfrmState{Src: itsGateway, Dst: aGateway, Proto: netlink.XFRM_PROTO_ESP,
			Mode: netlink.XFRM_MODE_TUNNEL, Spi: 3, Reqid: 1, Mark: mark, ReplayWindow: 0, ESN: false,
			Aead: &netlink.XfrmStateAlgo{Name: "rfc4106(gcm(aes))", Key: make([]byte, 20), ICVLen: 128}}),
		netlink.XfrmPolicyAdd(&netlink.XfrmPolicy{Src: &allRanges, Dst: &anotherOne, Dir: netlink.XFRM_DIR_OUT, Mark: mark,
			Tmpls: []netlink.XfrmPolicyTmpl{{Src: aGateway, Dst: itsGateway, Proto: netlink.XFRM_PROTO_ESP,
				Mode: netlink.XFRM_MODE_TUNNEL, Reqid: 1}}}),
		netlink.XfrmPolicyAdd(&netlink.XfrmPolicy{Src: &allRanges, Dst: &allRanges, Dir: netlink.XFRM_DIR_FWD, Priority: 2975,
			Tmpls: []netlink.XfrmPolicyTmpl{{Proto: netlink.XFRM_PROTO_ESP, Mode: netlink.XFRM_MODE_TUNNEL, Optional: 1}}}))
}

// bypass has a socket's packets meet no other policy, as daemons for IKE do.
func bypass(c *net.UDPConn) error {
	conn, err := c.SyscallConn()
	if err != nil {
		return err
	}
	for _, dir := range []netlink.Dir{netlink.XFRM_DIR_IN, netlink.XFRM_DIR_OUT} {
		p := nl.XfrmUserpolicyInfo{Dir: uint8(dir), Lft: nl.XfrmLifetimeCfg{SoftByteLimit: nl.XFRM_INF,
			HardByteLimit: nl.XFRM_INF, SoftPacketLimit: nl.XFRM_INF, HardPacketLimit: nl.XFRM_INF}}
		p.Sel.Family = unix.AF_INET
		if ctlErr := conn.Control(func(fd uintptr) {
			err = unix.SetsockoptString(int(fd), unix.SOL_IP, unix.IP_XFRM_POLICY, string(p.Serialize()))
		}); ctlErr != nil || err != nil {
			return errors.Join(ctlErr, err)
		}
	}
	return nil
}

// AllIPsec are the policies and states of a host, without keys, and its links of kind xfrm.
func AllIPsec(h *Host) (out []string, err error) {
	err = h.Do(func() error {
		policies, err := netlink.XfrmPolicyList(netlink.FAMILY_ALL)
		states, errStates := netlink.XfrmStateList(netlink.FAMILY_ALL)
		links, errLinks := netlink.LinkList()
		for _, p := range policies {
			out = append(out, fmt.Sprintf("policy %v %v %v %v %v of %d: %v", p.Src, p.Dst, p.Dir, p.Action, p.Mark, p.Ifid, p.Tmpls))
		}
		for i := range states {
			s := &states[i]
			out = append(out, fmt.Sprintf("state %v %v %#x %v of %d, request %d", s.Src, s.Dst, s.Spi, s.Mark, s.Ifid, s.Reqid))
		}
		for _, l := range links {
			if x, is := l.(*netlink.Xfrmi); is {
				out = append(out, fmt.Sprintf("link %s of %d", x.Name, x.Ifid))
			}
		}
		return errors.Join(err, errStates, errLinks)
	})
	slices.Sort(out)
	return out, err
}
