// SPDX-License-Identifier: Apache-2.0

package ipsec

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/plan"
)

// meshes is the bit that ids of meshes have.
const meshes = 1 << 31

// ID is the id of what is a link's in XFRM: that of another mesh on this machine has another one.
func ID(link string) uint32 { return crc32.ChecksumIEEE([]byte(link)) | meshes }

// Left is how much an earlier run had left, and what of it is removed.
type Left struct {
	Link             bool
	Policies, States int
}

// Any reports whether there was something.
func (l Left) Any() bool { return l != Left{} }

// Leave removes what bears the id of a mesh's link: the link, if it is ours, its policies and its states with their
// keys, whether the link is there or not. What leads into the link is dropped then.
func Leave(link string) (Left, error) {
	if !loaded() {
		return Left{}, nil
	}
	d, err := open(Settings{Link: link, ID: ID(link)})
	if err != nil {
		return Left{}, err
	}
	defer d.close()
	return d.clear()
}

// loaded reports whether the kernel has XFRM's netlink: where nobody has used that, nothing is left, and to ask would
// have the kernel load it.
func loaded() bool {
	text, err := os.ReadFile("/proc/thread-self/net/netlink") // the network namespace is the thread's
	return err != nil || speaks(text, unix.NETLINK_XFRM)
}

// speaks reports whether the kernel has a socket of its own for a protocol of netlink, by the text of
// /proc/net/netlink.
func speaks(text []byte, protocol int) bool {
	for line := range bytes.Lines(text) {
		// sk Eth Pid ...
		if f := bytes.Fields(line); len(f) > 2 && string(f[1]) == strconv.Itoa(protocol) && string(f[2]) == "0" {
			return true
		}
	}
	return false
}

// clear removes states first, then the link, then the policies: in each moment what leads into the link is dropped.
func (d *Device) clear() (left Left, err error) {
	var errs []error
	states, err := d.States()
	errs = append(errs, err)
	for _, s := range states {
		if err := d.Remove(s.Name); err != nil {
			errs = append(errs, err)
			continue
		}
		left.States++
	}
	if left.Link, err = d.removeLink(); err != nil {
		errs = append(errs, err)
	}
	have, err := d.policies()
	errs = append(errs, err)
	for _, c := range changes(have, nil) {
		if err := d.nl.XfrmPolicyDel(d.kernelPolicy(c.policy, c.meaning)); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, failed("removing a policy for "+c.far.String(), err))
			continue
		}
		left.Policies++
	}
	return left, errors.Join(errs...)
}

// removeLink removes the link if it is ours, and reports whether it did. To say whose another one is, is not for who
// removes.
func (d *Device) removeLink() (bool, error) {
	have, err := d.nl.LinkByName(d.s.Link)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return false, nil
	} else if err != nil {
		return false, failed("reading the link "+d.s.Link, err)
	}
	x, is := have.(*netlink.Xfrmi)
	if !is || x.Ifid != d.s.ID || x.Alias != plan.Alias && d.s.Link != trialLink {
		return false, nil
	}
	if err := d.nl.LinkDel(have); err != nil && !errors.Is(err, unix.ENODEV) {
		return false, failed("removing the link "+d.s.Link, err)
	}
	return true, nil
}

// Close ends the work with the link, which goes with all that is its unless all is to stay.
func (d *Device) Close(keep bool) error {
	defer d.close()
	if keep {
		return nil
	}
	_, err := d.clear()
	return err
}

func (l Left) String() string {
	return fmt.Sprintf("%d policies and %d states of IPsec", l.Policies, l.States)
}
