// SPDX-License-Identifier: Apache-2.0

package ipsec

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/plan"
)

// Settings are those of a link.
type Settings struct {
	Link string
	// ID is what link, policies and states have in common (if_id); not 0, and of this link alone.
	ID  uint32
	MTU int
	// Mark and Mask are what the outer packets bear, so that they do not take the routes of the inner ones.
	Mark, Mask uint32
}

// Device is a link of kind xfrm with its policies and states, in the network namespace in which it was opened. It
// belongs to one goroutine.
type Device struct {
	s  Settings
	nl *netlink.Handle
	// socket is for what the library reads wrongly, or cannot say.
	socket *nl.SocketHandle
	made   bool
}

const (
	// window is how many packets may come out of order (RFC 4303 section 3.4.3).
	window = 1024
	// checkBits are those of a packet's check value.
	checkBits = 128
)

// Open makes the link, or takes over the one of ours that is there with its policies and states: they work on.
func Open(s Settings) (*Device, error) {
	d, err := open(s)
	if err != nil {
		return nil, err
	}
	if err := d.link(); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// open opens the sockets to the kernel. It changes nothing.
func open(s Settings) (*Device, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE, unix.NETLINK_XFRM)
	if err != nil {
		return nil, failed("opening netlink for IPsec", err)
	}
	socket, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_XFRM)
	if err != nil {
		handle.Close()
		return nil, failed("opening netlink for IPsec", err)
	}
	return &Device{s: s, nl: handle, socket: &nl.SocketHandle{Socket: socket}}, nil
}

func (d *Device) close() {
	d.nl.Close()
	d.socket.Close()
}

// link makes the link, under another name until it says whose it is.
func (d *Device) link() error {
	have, err := d.nl.LinkByName(d.s.Link)
	what := "making the link " + d.s.Link
	switch {
	case err == nil:
		x, ok := have.(*netlink.Xfrmi)
		if !ok || x.Alias != plan.Alias || x.Ifid != d.s.ID {
			return clash(d.s.Link)
		}
		return nil
	case !errors.As(err, new(netlink.LinkNotFoundError)):
		return failed("reading the link "+d.s.Link, err)
	}
	draft := d.s.Link[:min(len(d.s.Link), unix.IFNAMSIZ-2)] + "~"
	if left, err := d.nl.LinkByName(draft); err == nil && left.Type() == "xfrm" &&
		left.Attrs().RawFlags&unix.IFF_UP == 0 {
		if err := d.nl.LinkDel(left); err != nil {
			return failed("removing the link "+draft, err)
		}
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = draft, d.s.MTU
	link := &netlink.Xfrmi{LinkAttrs: attrs, Ifid: d.s.ID}
	if err := d.nl.LinkAdd(link); errors.Is(err, unix.EEXIST) {
		return fault.New(fault.CodeClash, what).Whyf("another link of kind xfrm has the id %d", d.s.ID).
			Hint("ip -d link show type xfrm lists them; choose another id for one of them")
	} else if err != nil {
		return failed(what, err)
	}
	err = d.nl.LinkSetAlias(link, plan.Alias)
	if err == nil {
		err = d.nl.LinkSetName(link, d.s.Link)
	}
	if err != nil {
		return errors.Join(failed(what, err), d.nl.LinkDel(link))
	}
	d.made = true
	return nil
}

// Apply makes the policies those of some peers, by what differs from what the kernel has.
func (d *Device) Apply(peers []Peer) error {
	have, err := d.policies()
	if err != nil {
		return err
	}
	for _, c := range changes(have, policies(peers)) {
		p := d.kernelPolicy(c.policy, c.meaning)
		if c.gone {
			if err := d.nl.XfrmPolicyDel(p); err != nil && !errors.Is(err, unix.ENOENT) {
				return failed("removing a policy for "+c.far.String(), err)
			}
		} else if err := d.nl.XfrmPolicyUpdate(p); err != nil {
			return failed("making a policy for "+c.far.String(), err)
		}
	}
	return nil
}

// Differs counts the policies that Apply would change.
func (d *Device) Differs(peers []Peer) (int, error) {
	have, err := d.policies()
	if err != nil {
		return 0, err
	}
	return len(changes(have, policies(peers))), nil
}

func (d *Device) kernelPolicy(p policy, m meaning) *netlink.XfrmPolicy {
	any := everything[0]
	if p.far.Addr().Is6() {
		any = everything[1]
	}
	k := &netlink.XfrmPolicy{Src: ipnet(any), Dst: ipnet(p.far), Dir: netlink.Dir(p.dir), Priority: int(m.priority),
		Ifid: int(d.s.ID)}
	if p.dir != out {
		k.Src, k.Dst = k.Dst, k.Src
	}
	switch {
	case m.peer == 0:
		k.Action = netlink.XFRM_POLICY_BLOCK
	case p.dir == out:
		k.Tmpls = []netlink.XfrmPolicyTmpl{template(m.local, m.remote, m.peer)}
	default:
		// One for each family of the outer packets, of which one has to be met: a packet of which no template is has
		// been decrypted for nobody, and is dropped (xfrm_policy_check).
		for _, a := range []netip.Addr{everything[0].Addr(), everything[1].Addr()} {
			t := template(a, a, m.peer)
			t.Optional = 1
			k.Tmpls = append(k.Tmpls, t)
		}
	}
	return k
}

func template(local, remote netip.Addr, peer uint32) netlink.XfrmPolicyTmpl {
	return netlink.XfrmPolicyTmpl{Src: local.AsSlice(), Dst: remote.AsSlice(), Proto: netlink.XFRM_PROTO_ESP,
		Mode: netlink.XFRM_MODE_TUNNEL, Reqid: int(peer)}
}

// Remove takes a state away; one that is gone is no error.
func (d *Device) Remove(n Name) error {
	err := d.nl.XfrmStateDel(&netlink.XfrmState{Dst: n.To.AsSlice(), Proto: netlink.XFRM_PROTO_ESP, Spi: int(n.SPI),
		Ifid: int(d.s.ID)})
	if err == nil || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return failed(fmt.Sprintf("removing the state %#x to %s", n.SPI, n.To), err)
}

// There reports whether the link is there.
func (d *Device) There() bool {
	_, err := d.nl.LinkByName(d.s.Link)
	return !errors.As(err, new(netlink.LinkNotFoundError))
}

// Made reports whether this process has made the link, else it was there before.
func (d *Device) Made() bool { return d.made }

func clash(link string) *fault.Fault {
	return fault.New(fault.CodeClash, "link "+link).Whyf("it is there, and the mesh has not made it").
		Hint("choose another mesh.link, or remove it with ip link delete %s", link)
}

// failed is the fault of what the kernel does not do.
func failed(what string, err error) error {
	switch {
	case errors.Is(err, os.ErrPermission):
		return fault.New(fault.CodeUnsupported, what).Because(err).Hint("run it as root, or give it CAP_NET_ADMIN")
	case errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS),
		errors.Is(err, unix.ENOENT):
		return fault.New(fault.CodeUnsupported, what).Because(err).
			Hint("load the modules that it needs: modprobe -a %s", needs)
	}
	return fault.New(fault.CodeInternal, what).Because(err)
}

// needs are the modules of the kernel, where they are not built in.
const needs = "xfrm_user xfrm_interface esp4 esp6 chacha20poly1305 " + crypto

func ipnet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func addr(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}
