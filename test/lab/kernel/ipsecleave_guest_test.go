// SPDX-License-Identifier: Apache-2.0

//go:build guest

package kernel_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/ipsec"
	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// loneHost has what others have of IPsec, and returns that.
func loneHost(t *testing.T) (*lab.Host, []string) {
	t.Helper()
	h, err := labtest.New(t, "ipsec").Host("only")
	if err != nil {
		t.Fatal(err)
	}
	others, err := lab.OthersIPsec(h)
	if err != nil {
		t.Fatal(err)
	}
	return h, others
}

func requireIPsec(t *testing.T, h *lab.Host, want []string) {
	t.Helper()
	if have, err := lab.AllIPsec(h); err != nil || !slices.Equal(have, want) {
		t.Errorf("it has (%v)\n%s\nwant\n%s", err, strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
}

// filled makes a link with an id, a state and the policies of a peer.
func filled(link string, id uint32) (*ipsec.Device, error) {
	d, err := ipsec.Open(ipsec.Settings{Link: link, ID: id, MTU: 1400})
	if err != nil {
		return nil, err
	}
	from, to := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	return d, errors.Join(
		d.Add(ipsec.State{Name: ipsec.Name{To: to, SPI: id}, Peer: 1, From: from, Key: ipsec.NewKey([ipsec.KeyBytes]byte{})}),
		d.Apply([]ipsec.Peer{{ID: 1, Local: from, Remote: to, Ranges: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}}))
}

// TestATrialBesideOthers: without the right to make a network namespace the kernel is tried in the one of the machine,
// where nothing is left of it, also if something is missing, and nothing of what a killed trial had left.
func TestATrialBesideOthers(t *testing.T) {
	h, others := loneHost(t)
	if err := h.Do(func() (err error) {
		d, err := filled("tombolo7", 0x5555)
		if err != nil {
			return err
		}
		link, err := netlink.LinkByName("tombolo7")
		return errors.Join(err, netlink.LinkSetName(link, "~tombolo"), d.Close(true))
	}); err != nil {
		t.Fatal(err)
	}
	for _, beside := range []bool{false, true} {
		if err := h.Do(func() error {
			return without(unix.CAP_SYS_ADMIN, func() error {
				if err := unix.Unshare(unix.CLONE_NEWNET); !errors.Is(err, unix.EPERM) {
					t.Errorf("making a network namespace ends with %v", err)
				}
				switch f := ipsec.Able(t.Context(), beside); {
				case !beside && f != nil:
					t.Error(f, f.Next)
				case beside && (f == nil || !strings.Contains(f.Error(), "it lacks diverting packets")):
					t.Errorf("it says %v", f)
				}
				return nil
			})
		}); err != nil {
			t.Fatal(err)
		}
		requireIPsec(t, h, others)
	}
}

// TestATrialWithoutItsLink: another program has the name of the trial's link, which stays.
func TestATrialWithoutItsLink(t *testing.T) {
	h, _ := loneHost(t)
	other := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "~tombolo"}}
	if err := h.Do(func() error {
		if err := netlink.LinkAdd(other); err != nil {
			return err
		}
		return without(unix.CAP_SYS_ADMIN, func() error {
			if f := ipsec.Able(t.Context(), false); f == nil || f.Code != fault.CodeClash {
				t.Errorf("it says %v", f)
			}
			_, err := netlink.LinkByName("~tombolo")
			return err
		})
	}); err != nil {
		t.Fatal(err)
	}
}

// without has a function be called without a capability, which is the thread's.
func without(capability int, fn func() error) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var all, fewer [2]unix.CapUserData
	if err := unix.Capget(&header, &all[0]); err != nil {
		return err
	}
	fewer = all
	fewer[capability/32].Effective &^= 1 << (capability % 32)
	if err := unix.Capset(&header, &fewer[0]); err != nil {
		return err
	}
	return errors.Join(fn(), unix.Capset(&header, &all[0]))
}

// TestLeavingIPsec: all that bears the id of a link of ours goes, be the link there or not, and nothing else.
func TestLeavingIPsec(t *testing.T) {
	h, _ := loneHost(t)
	err := h.Do(func() error { // another mesh
		d, err := filled("tombolo8", ipsec.ID("tombolo8"))
		return errors.Join(err, d.Close(true))
	})
	before, errAll := lab.AllIPsec(h)
	if err = errors.Join(err, errAll); err != nil {
		t.Fatal(err)
	}
	for _, there := range []bool{true, false} {
		if err := h.Do(func() error {
			d, err := filled("tombolo7", ipsec.ID("tombolo7"))
			if err != nil {
				return err
			}
			if !there {
				link, err := netlink.LinkByName("tombolo7")
				if err = errors.Join(err, netlink.LinkDel(link)); err != nil {
					return err
				}
			}
			// Three of the range, and those that block.
			if left, err := ipsec.Leave("tombolo7"); err != nil || left != (ipsec.Left{Link: there, Policies: 9, States: 1}) {
				t.Errorf("with the link %v it has left %+v: %v", there, left, err)
			}
			if left, err := ipsec.Leave("tombolo7"); err != nil || left.Any() {
				t.Errorf("the second time it has left %+v: %v", left, err)
			}
			return d.Close(true)
		}); err != nil {
			t.Fatal(err)
		}
		requireIPsec(t, h, before)
	}
}
