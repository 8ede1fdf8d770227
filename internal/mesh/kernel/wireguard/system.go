// SPDX-License-Identifier: Apache-2.0

package wireguard

import (
	"errors"
	"net"
	"os"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/plan"
)

// Able reports whether the kernel has WireGuard, which it loads for that if it can. It changes
// nothing else.
func Able() *fault.Fault {
	_, err := netlink.GenlFamilyGet(unix.WG_GENL_NAME)
	if err == nil {
		return nil
	}
	return fault.New(fault.CodeUnsupported, "WireGuard in the kernel").Because(err).
		Hint("load the module wireguard (Linux 5.6 or newer), or set mesh.engine: userspace: " +
			"identity and peers stay the same")
}

// Dial opens the control socket of WireGuard.
func Dial() (Control, error) {
	c, err := wgctrl.New()
	if err != nil {
		return nil, fault.New(fault.CodeUnsupported, "WireGuard in the kernel").Because(err)
	}
	return c, nil
}

// System is the kernel's links.
type System struct{}

// Kind is that of Links.
func (System) Kind(name string) (Kind, error) {
	_, kind, err := find(name)
	return kind, err
}

func find(name string) (netlink.Link, Kind, error) {
	link, err := netlink.LinkByName(name)
	switch {
	case errors.As(err, new(netlink.LinkNotFoundError)):
		return nil, None, nil
	case err != nil:
		return nil, None, fault.New(fault.CodeInternal, "reading the link "+name).Because(err)
	case link.Type() == "wireguard" && link.Attrs().Alias == plan.Alias:
		return link, Ours, nil
	}
	return link, Foreign, nil
}

// Make is that of Links. Whose a link is cannot be said in the moment in which it is made: so
// it gets its name when it says it. One that a run has left before that is in nobody's way.
func (System) Make(name string, mtu int) error {
	draft := name[:min(len(name), unix.IFNAMSIZ-2)] + "~"
	if left, err := netlink.LinkByName(draft); err == nil && left.Type() == "wireguard" &&
		left.Attrs().RawFlags&unix.IFF_UP == 0 {
		if err := netlink.LinkDel(left); err != nil {
			return fault.New(fault.CodeInternal, "removing the link "+draft).Because(err)
		}
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = draft, mtu
	link := &netlink.Wireguard{LinkAttrs: attrs}
	err := netlink.LinkAdd(link)
	if err == nil {
		if err = netlink.LinkSetAlias(link, plan.Alias); err == nil {
			err = netlink.LinkSetName(link, name)
		}
		if err != nil {
			err = errors.Join(err, netlink.LinkDel(link))
		}
	}
	what := "making the link " + name
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EEXIST):
		return clash(name)
	case errors.Is(err, os.ErrPermission):
		return fault.New(fault.CodeUnsupported, what).Because(err).Hint("run it as root, or give it CAP_NET_ADMIN")
	case errors.Is(err, unix.EOPNOTSUPP):
		return fault.New(fault.CodeUnsupported, what).Because(err).
			Hint("load the module wireguard (Linux 5.6 or newer), or set mesh.engine: userspace")
	}
	return fault.New(fault.CodeInternal, what).Because(err)
}

// Remove is that of Links: what is not ours stays.
func (System) Remove(name string) error {
	link, kind, err := find(name)
	if err != nil || kind != Ours {
		return err
	}
	err = netlink.LinkDel(link)
	if err == nil || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return fault.New(fault.CodeInternal, "removing the link "+name).Because(err)
}

// Free is that of Links: the kernel would say it only when the link is set up.
func (s System) Free(port uint16) (uint16, error) {
	var err error
	for range wireGuardPorts {
		var free uint16
		if free, err = s.take(port); err == nil || port != 0 {
			return free, err
		}
	}
	return 0, err
}

func (s System) take(port uint16) (uint16, error) {
	networks := []string{"udp4", "udp6"}
	if !s.IPv6() {
		networks = networks[:1]
	}
	for _, network := range networks {
		conn, err := net.ListenPacket(network, ":"+strconv.Itoa(int(port)))
		if err != nil {
			return 0, busy(port, err)
		}
		defer conn.Close()
		port = uint16(conn.LocalAddr().(*net.UDPAddr).Port)
	}
	return port, nil
}

// IPv6 is that of Links.
func (System) IPv6() bool {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	return unix.Close(fd) == nil
}

// Leave removes a link of ours that an ended run of this engine has left, so that another
// engine can have its name and port. What stands in its way to the peers meanwhile keeps
// their traffic from leaving in clear.
func Leave(links Links, name string) (was bool, err error) {
	kind, err := links.Kind(name)
	if err != nil || kind != Ours {
		return false, err
	}
	return true, links.Remove(name)
}

// Holds reports whether a link of ours has a port: the one of a name, or any with an empty name. What cannot be read
// has none.
func Holds(name string, port uint16) bool {
	links, _ := netlink.LinkList()
	links = slices.DeleteFunc(links, func(l netlink.Link) bool {
		return l.Type() != "wireguard" || l.Attrs().Alias != plan.Alias || name != "" && l.Attrs().Name != name
	})
	if len(links) == 0 || port == 0 { // to ask would have the kernel load WireGuard
		return false
	}
	control, err := wgctrl.New()
	if err != nil {
		return false
	}
	defer control.Close()
	return slices.ContainsFunc(links, func(l netlink.Link) bool {
		d, err := control.Device(l.Attrs().Name)
		return err == nil && d.ListenPort == int(port)
	})
}
