// SPDX-License-Identifier: Apache-2.0

//go:build lab

package kernel_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/wireguard"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/wireguard/wireguardtest"
	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// TestTheKernelsWireGuardKeepsTheContract, where the kernel has one. Where it has none the
// refusal says so, and a link that cannot be made leaves nothing.
func TestTheKernelsWireGuardKeepsTheContract(t *testing.T) {
	if f := wireguard.Able(); f != nil {
		t.Logf("this kernel has no WireGuard: that it is refused is all that is shown here (%v)", f)
		h := host(t)
		w := &wireguardOf{host: h}
		if err := w.Make("tombolo0", 1420); f.Code != fault.CodeUnsupported || f.Next == "" || err == nil {
			t.Errorf("refused with %v (%s), and the link is made with %v", f, f.Next, err)
		}
		links, err := lab.Links(h)
		if err != nil || slices.ContainsFunc(links, func(l string) bool { return strings.HasPrefix(l, "tombolo") }) {
			t.Errorf("left are %v, %v", links, err)
		}
		return
	}
	wireguardtest.Contract(t, func(t *testing.T) wireguardtest.Subject {
		s := &wireguardOf{host: host(t)}
		s.do(t, func() (err error) { s.control, err = wireguard.Dial(); return err })
		t.Cleanup(func() { s.control.Close() })
		return s
	})
}

// wireguardOf is the kernel's WireGuard in a host's namespace.
type wireguardOf struct {
	host    *lab.Host
	control wireguard.Control
	system  wireguard.System
}

func (w *wireguardOf) do(t *testing.T, fn func() error) {
	t.Helper()
	if err := w.host.Do(fn); err != nil {
		t.Fatal(err)
	}
}

func (w *wireguardOf) Kind(name string) (k wireguard.Kind, err error) {
	err = w.host.Do(func() (err error) { k, err = w.system.Kind(name); return err })
	return k, err
}

func (w *wireguardOf) Make(name string, mtu int) error {
	return w.host.Do(func() error { return w.system.Make(name, mtu) })
}

func (w *wireguardOf) Remove(name string) error {
	return w.host.Do(func() error { return w.system.Remove(name) })
}

func (w *wireguardOf) Free(port uint16) (free uint16, err error) {
	err = w.host.Do(func() (err error) { free, err = w.system.Free(port); return err })
	return free, err
}

func (w *wireguardOf) IPv6() bool { return w.system.IPv6() }

func (w *wireguardOf) Device(name string) (*wgtypes.Device, error) { return w.control.Device(name) }

func (w *wireguardOf) ConfigureDevice(name string, cfg wgtypes.Config) error {
	return w.control.ConfigureDevice(name, cfg)
}

// Close leaves the control to the cleanup: a part goes on with it.
func (w *wireguardOf) Close() error { return nil }

func (w *wireguardOf) Up(name string) error {
	return w.host.Do(func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(link)
	})
}

func host(t *testing.T) *lab.Host {
	t.Helper()
	h, err := labtest.New(t, "wireguard").Host("node")
	if err != nil {
		t.Fatal(err)
	}
	return h
}
