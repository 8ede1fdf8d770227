// SPDX-License-Identifier: Apache-2.0

package network

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// maxPacket is the largest of IP.
	maxPacket = 65535
	// captureMost bounds what a capture keeps, in bytes; it counts on.
	captureMost = 256 << 20
	// captureBuffer is the kernel's, so that a burst is not missed.
	captureBuffer = 16 << 20
)

// Capture sees every packet that goes over a link, in both directions, as a
// listener on the wire does.
type Capture struct {
	file *os.File
	conn syscall.RawConn // of file

	mu      sync.Mutex
	buffer  []byte
	packets [][]byte
	kept    int
	count   int
	missed  uint32
}

// Capture begins to listen on a link of the host. It ends with the network.
func (h *Host) Capture(link string) (*Capture, error) {
	l, err := h.link.LinkByName(link)
	if err != nil {
		return nil, fmt.Errorf("finding %s of %s: %w", link, h.name, err)
	}
	const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // in network order
	c := &Capture{buffer: make([]byte, maxPacket+14)}        // and the Ethernet header
	err = h.Do(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, captureBuffer),
			unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: l.Attrs().Index}))
		if err != nil {
			return errors.Join(err, unix.Close(fd))
		}
		c.file = os.NewFile(uintptr(fd), "capture of "+link)
		c.conn, err = c.file.SyscallConn()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listening on %s of %s: %w", link, h.name, err)
	}
	h.net.Keep(c)
	h.net.start(c.read)
	return c, nil
}

// read takes packets as they come, until the capture is closed.
func (c *Capture) read() {
	_ = c.conn.Read(func(fd uintptr) bool { // ends with an error when the capture is closed
		c.mu.Lock()
		defer c.mu.Unlock()
		c.takeLocked(fd)
		return false // wait for more
	})
}

// takeLocked takes what the kernel has for the capture now.
func (c *Capture) takeLocked(fd uintptr) {
	for {
		n, err := unix.Read(int(fd), c.buffer)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENETDOWN): // the latter is reported once
			continue
		case err != nil: // EAGAIN: there is no more
			return
		}
		c.count++
		if c.kept+n <= captureMost {
			c.kept += n
			c.packets = append(c.packets, bytes.Clone(c.buffer[:n]))
		} else {
			c.missed++
		}
	}
}

// Packets returns how many were read so far: what has arrived on the other side is among them a moment later.
func (c *Capture) Packets() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}

// With returns how many packets hold the word; see Count.
func (c *Capture) With(word []byte) (int, error) {
	return c.Count(func(packet []byte) bool { return bytes.Contains(packet, word) })
}

// Count returns how many packets, from the Ethernet header on, are such as is said; what has arrived on the other side
// is among them. It is an error when some were missed: nothing can be said then of what is not there.
func (c *Capture) Count(such func(packet []byte) bool) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var statErr error
	if err := c.conn.Control(func(fd uintptr) {
		c.takeLocked(fd)
		var stats *unix.TpacketStats
		if stats, statErr = unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS); statErr == nil {
			c.missed += stats.Drops // reading sets it back
		}
	}); err != nil || statErr != nil {
		return 0, errors.Join(err, statErr)
	}
	if c.missed > 0 {
		return 0, fmt.Errorf("the capture missed %d packets", c.missed)
	}
	count := 0
	for _, packet := range c.packets {
		if such(packet) {
			count++
		}
	}
	return count, nil
}

// Close ends the capture; With and Count are to be asked before.
func (c *Capture) Close() error { return c.file.Close() }
