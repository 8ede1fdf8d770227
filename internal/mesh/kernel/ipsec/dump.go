// SPDX-License-Identifier: Apache-2.0

package ipsec

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// policies are those of the link, as they are in the kernel. The library takes fd00:1::/64 for a range of IPv4, since
// all behind the first four bytes is zero: so this reads the answer itself.
func (d *Device) policies() (map[policy]meaning, error) {
	have := map[policy]meaning{}
	var all [][]byte
	if err := whole(func() (err error) {
		req := nl.NewNetlinkRequest(nl.XFRM_MSG_GETPOLICY, unix.NLM_F_DUMP)
		req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_XFRM: d.socket}
		req.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
		all, err = req.Execute(unix.NETLINK_XFRM, nl.XFRM_MSG_NEWPOLICY)
		return err
	}); err != nil {
		return nil, failed("reading the policies of IPsec", err)
	}
	for _, b := range all {
		if len(b) < nl.SizeofXfrmUserpolicyInfo {
			continue
		}
		info := nl.DeserializeXfrmUserpolicyInfo(b)
		attrs, err := nl.ParseRouteAttr(b[info.Len():])
		if err != nil {
			return nil, failed("reading the policies of IPsec", err)
		}
		var id uint32
		var templates []*nl.XfrmUserTmpl
		for _, a := range attrs {
			switch {
			case a.Attr.Type == nl.XFRMA_IF_ID && len(a.Value) >= 4:
				id = binary.NativeEndian.Uint32(a.Value)
			case a.Attr.Type == nl.XFRMA_TMPL:
				for v := a.Value; len(v) >= nl.SizeofXfrmUserTmpl; v = v[nl.SizeofXfrmUserTmpl:] {
					templates = append(templates, nl.DeserializeXfrmUserTmpl(v[:nl.SizeofXfrmUserTmpl]))
				}
			}
		}
		if id == d.s.ID {
			p, m := read(info, templates)
			have[p] = m
		}
	}
	return have, nil
}

// read is what a policy of the kernel says. One that is not like ours has a meaning that none of ours has.
func read(k *nl.XfrmUserpolicyInfo, templates []*nl.XfrmUserTmpl) (policy, meaning) {
	p := policy{dir: direction(k.Dir)}
	far, bits := k.Sel.Saddr, k.Sel.PrefixlenS
	most := 2
	if p.dir == out {
		far, bits = k.Sel.Daddr, k.Sel.PrefixlenD
		most = 1
	}
	p.far = netip.PrefixFrom(address(far, k.Sel.Family), int(bits))
	m := meaning{priority: k.Priority}
	switch {
	case netlink.PolicyAction(k.Action) == netlink.XFRM_POLICY_BLOCK:
	case len(templates) != most:
		m.priority = 0
	default:
		m.peer = templates[0].Reqid
		if p.dir == out {
			t := templates[0]
			m.local, m.remote = address(t.Saddr, t.Family), address(t.XfrmId.Daddr, t.Family)
		}
	}
	return p, m
}

func address(a nl.XfrmAddress, family uint16) netip.Addr {
	if family == unix.AF_INET6 {
		return netip.AddrFrom16(a)
	}
	return netip.AddrFrom4([4]byte(a[:4]))
}

// States are those of the link.
func (d *Device) States() (out []Seen, err error) {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		var all []netlink.XfrmState
		if err := whole(func() (err error) { all, err = d.nl.XfrmStateList(family); return err }); err != nil {
			return nil, failed("reading the states of IPsec", err)
		}
		for i := range all { // they have the keys: nothing of them is printed
			k := &all[i]
			if k.Ifid != int(d.s.ID) || k.Spi == 0 {
				continue
			}
			s := Seen{Name: Name{addr(k.Dst), uint32(k.Spi)}, Peer: uint32(k.Reqid), From: addr(k.Src), UDP: k.Encap != nil,
				Sends: d.s.Mark != 0 && k.OutputMark != nil && k.OutputMark.Value == d.s.Mark,
				Bytes: k.Statistics.Bytes, Packets: k.Statistics.Packets, Replayed: k.Statistics.Replay,
				Late: k.Statistics.ReplayWindow, Forged: k.Statistics.Failed, Made: time.Unix(int64(k.Statistics.AddTime), 0)}
			if k.Statistics.UseTime != 0 {
				s.Used = time.Unix(int64(k.Statistics.UseTime), 0)
			}
			out = append(out, s)
		}
	}
	return out, nil
}

// whole reads again what others have changed meanwhile.
func whole(read func() error) (err error) {
	for range reads {
		if err = read(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return err
		}
	}
	return err
}
