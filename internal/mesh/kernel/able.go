// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"io/fs"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// device is where programs get a TUN.
const device = "/dev/net/tun"

// Able says what this process lacks to change the network at all: the right, and the
// device of which a TUN is made, if one is needed. It changes nothing.
func Able(tun bool) []*fault.Fault {
	var out []*fault.Fault
	if may, err := permitted(); err != nil || !may {
		out = append(out, fault.New(fault.CodeUnsupported, "the permission to change the network").Because(
			errors.Join(err, errors.New("this process lacks CAP_NET_ADMIN"))).
			Hint(needsRights))
	}
	if f := opens(device); tun && f != nil {
		out = append(out, f)
	}
	return out
}

func permitted() (bool, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false, err
	}
	return data[0].Effective&(1<<unix.CAP_NET_ADMIN) != 0, nil
}

// opens says why the device cannot be opened.
func opens(path string) *fault.Fault {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err == nil {
		file.Close()
		return nil
	}
	f := fault.New(fault.CodeUnsupported, "TUN device").Because(err)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return f.Hint("load the kernel's module tun; in a container, give it %s", path)
	}
	return f.Hint("run as root, or grant CAP_NET_ADMIN and %s", path)
}

// MakeTun makes a TUN device that stays without a program. One that is there stays as it is.
func MakeTun(name string) error {
	route, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return unsupported("opening netlink", err)
	}
	defer route.Close()
	if _, err := route.LinkByName(name); err == nil {
		return nil
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	err = route.LinkAdd(&netlink.Tuntap{LinkAttrs: attrs, Mode: netlink.TUNTAP_MODE_TUN, Flags: netlink.TUNTAP_NO_PI})
	if err != nil {
		return refused("making the TUN device "+name, err)
	}
	return nil
}
