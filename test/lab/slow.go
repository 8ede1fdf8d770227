// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/demo/network"
)

// slowQueue is how many packets may be on their way in one direction of a slow
// link; what comes then is lost, as in a router.
const slowQueue = 4096

// maxPacket is the largest that a TUN device gives.
const maxPacket = 65535

// Delay is how long a slow link takes, each way.
type Delay struct {
	each atomic.Int64 // nanoseconds
	ends [2]*os.File
}

// SlowLink is Link with a delay, the same each way. It is made of two TUN devices
// and a copy between them in this process, since not every kernel can delay
// packets: for a few thousand packets a second, not for throughput.
func SlowLink(l *Lab, a, b End, each time.Duration) (*Delay, error) {
	var err error
	d := &Delay{}
	d.Set(each)
	for i, end := range []End{a, b} {
		if d.ends[i], err = tun(end.Host, end.Name); err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	l.Keep(d)
	if err := network.Bear(a, b); err != nil {
		return nil, err
	}
	go d.carry(d.ends[0], d.ends[1])
	go d.carry(d.ends[1], d.ends[0])
	return d, nil
}

// Set changes the delay for packets that come from now on. They keep their order.
func (d *Delay) Set(each time.Duration) { d.each.Store(int64(each)) }

// Close takes the link away.
func (d *Delay) Close() error {
	var errs []error
	for _, end := range d.ends {
		if end != nil {
			errs = append(errs, end.Close())
		}
	}
	return errors.Join(errs...)
}

type delayed struct {
	due    time.Time
	packet []byte
}

// carry moves packets one way until the link is closed.
func (d *Delay) carry(from, to *os.File) {
	queue := make(chan delayed, slowQueue)
	go func() {
		for p := range queue {
			time.Sleep(time.Until(p.due))
			_, _ = to.Write(p.packet) // a link that is down takes none
		}
	}()
	defer close(queue)
	buffer := make([]byte, maxPacket)
	for {
		n, err := from.Read(buffer)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(time.Millisecond) // the link is down
			continue
		}
		packet := delayed{time.Now().Add(time.Duration(d.each.Load())), append([]byte(nil), buffer[:n]...)}
		select {
		case queue <- packet:
		default:
		}
	}
}

// tun makes a TUN device in the host.
func tun(h *Host, name string) (*os.File, error) {
	if h.Netlink() == nil {
		return nil, fmt.Errorf("slow link %q of %s: it needs a namespace of its own", name, h.Name())
	}
	request, err := unix.NewIfreq(name)
	if err != nil {
		return nil, err
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	var file *os.File
	err = h.Do(func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return fmt.Errorf("opening /dev/net/tun: %w", err)
		}
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
			return errors.Join(fmt.Errorf("making the device: %w", err), unix.Close(fd))
		}
		file = os.NewFile(uintptr(fd), "tun "+name)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("slow link %s of %s: %w", name, h.Name(), err)
	}
	return file, nil
}
