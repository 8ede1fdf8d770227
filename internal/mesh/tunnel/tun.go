// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/tun"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
)

// Tun is the link of the mesh: wireguard-go's TUN device with switches for its
// offloads. Whether the link is up or down says nothing to WireGuard here: the socket
// is read in any case, because it carries probes too.
type Tun struct {
	tun.Device
	offloads *offloads
	gro      atomic.Bool
	events   chan tun.Event
	group    *run.Group

	// Lost counts packets of writes that the kernel did not take whole: the link was down, or
	// it refused packets that were joined.
	Lost atomic.Uint64
}

// OpenTun makes the link. Its addresses, routes and state are not set.
func OpenTun(ctx context.Context, name string, mtu int, want Offloads) (*Tun, error) {
	if mtu < tunnelMTU {
		return nil, fault.Newf(fault.CodeConfig, "MTU %d of link %s", mtu, name).
			Whyf("less than %d, which IPv6 needs", tunnelMTU)
	}
	file, err := openTunFile(name, want.TunTSO || want.TunGRO)
	if err != nil {
		return nil, err
	}
	native, err := tun.CreateTUNFromFile(file, mtu)
	if err != nil {
		return nil, fault.Newf(fault.CodeUnsupported, "TUN device %s", name).Because(errors.Join(err, file.Close()))
	}
	t := newTun(ctx, native)
	if want.TunGRO {
		t.gro.Store(true)
	} else {
		t.offloads.off(tunGRO, notWanted)
	}
	if !want.TunTSO {
		t.offloads.off(tunTSO, notWanted)
		if err := setTunOffload(file, 0); err != nil && want.TunGRO {
			return nil, errors.Join(err, t.Close())
		}
	}
	return t, nil
}

// newTun goes around any device: tests have one without a kernel.
func newTun(ctx context.Context, native tun.Device) *Tun {
	t := &Tun{Device: native, offloads: &offloads{}, events: make(chan tun.Event, 1), group: run.NewGroup(ctx)}
	t.group.Do(func(context.Context) { t.follow() })
	return t
}

func openTunFile(name string, header bool) (*os.File, error) {
	what := fmt.Sprintf("TUN device %s", name)
	const at = "/dev/net/tun"
	fd, err := unix.Open(at, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fault.New(fault.CodeUnsupported, what).Because(err).
			Hint("load the kernel's module tun; in a container, give it %s", at)
	case err != nil:
		return nil, fault.New(fault.CodeUnsupported, what).Because(err).Hint("run as root, or grant CAP_NET_ADMIN and %s", at)
	}
	flags := uint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if header {
		flags |= unix.IFF_VNET_HDR
	}
	ifr, err := unix.NewIfreq(name)
	if err == nil {
		ifr.SetUint16(flags)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr)
	}
	if err == nil {
		return os.NewFile(uintptr(fd), at), nil
	}
	err = errors.Join(err, unix.Close(fd))
	switch {
	case errors.Is(err, unix.EPERM):
		return nil, fault.New(fault.CodeUnsupported, what).Because(err).Hint("run as root, or grant CAP_NET_ADMIN")
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EINVAL):
		return nil, fault.New(fault.CodeClash, what).Because(err).
			Hint("another program has a link of that name: choose another one")
	}
	return nil, fault.New(fault.CodeUnsupported, what).Because(err)
}

// setTunOffload says what the kernel may give us unfinished (TUN_F_*).
func setTunOffload(file *os.File, what int) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var bad error
	if err := raw.Control(func(fd uintptr) { bad = unix.IoctlSetInt(int(fd), unix.TUNSETOFFLOAD, what) }); err != nil {
		return err
	}
	return bad
}

// follow takes the device's events until it is closed: it would wait for ever with one
// that nobody took. Only a change of the MTU concerns WireGuard.
func (t *Tun) follow() {
	for e := range t.Device.Events() {
		if e&tun.EventMTUUpdate == 0 {
			continue
		}
		select {
		case t.events <- tun.EventMTUUpdate:
		default: // one waits, and WireGuard asks for the MTU of its moment
		}
	}
	close(t.events)
}

// Events are those that WireGuard receives.
func (t *Tun) Events() <-chan tun.Event { return t.events }

// Offloads are the states of those of the TUN.
func (t *Tun) Offloads() []Offload {
	return []Offload{t.offloads.state(tunTSO), t.offloads.state(tunGRO)}
}

// Write gives packets to the kernel.
func (t *Tun) Write(bufs [][]byte, offset int) (int, error) {
	if len(bufs) == 0 {
		return 0, nil
	}
	if t.gro.Load() {
		n, err := t.Device.Write(bufs, offset)
		if errors.Is(err, unix.EINVAL) && len(bufs) > 1 {
			// Some kernels refuse joined packets, 6.6.44 is one. They cannot be taken
			// apart any more, and TCP sends them again.
			t.gro.Store(false)
			t.offloads.off(tunGRO, "the kernel refused joined packets: "+err.Error())
		}
		return t.wrote(n, len(bufs), err)
	}
	total := 0
	for i := range bufs { // one at a time there is nothing to join
		n, err := t.Device.Write(bufs[i:i+1], offset)
		if n, err = t.wrote(n, 1, err); err != nil {
			return total, err
		}
		total += n
	}
	return total, nil
}

// wrote keeps refusals from WireGuard, which would log each one.
func (t *Tun) wrote(n int, packets int, err error) (int, error) {
	if err == nil || errors.Is(err, os.ErrClosed) {
		return n, err
	}
	t.Lost.Add(uint64(packets))
	return n, nil
}

// Close removes the link.
func (t *Tun) Close() error {
	err := t.Device.Close()
	return errors.Join(err, t.group.Wait())
}
