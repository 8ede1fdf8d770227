// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// CopyPackets has the link carry copies. Otherwise a veth link passes pages of the sender's memory on, in which a later
// host may decrypt (esp_input): a Capture in between, which has been slower, would see what was never on a wire.
func CopyPackets(h *Host, link string) error {
	return h.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		value := struct{ command, data uint32 }{unix.ETHTOOL_SSG, 0} // no scatter and gather: the kernel makes it one piece
		request := struct {
			name [unix.IFNAMSIZ]byte
			data unsafe.Pointer
			_    [16]byte
		}{data: unsafe.Pointer(&value)}
		copy(request.name[:unix.IFNAMSIZ-1], link)
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
		if errno != 0 {
			return fmt.Errorf("turning off scatter and gather of %s in %s: %w", link, h.Name(), errno)
		}
		return nil
	})
}
