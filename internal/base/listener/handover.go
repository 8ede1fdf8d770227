// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/socket"
)

const (
	// mostPorts is how many descriptors the kernel takes in one message (SCM_MAX_FD).
	mostPorts = 253
	// portsMessage bounds the names and addresses that come with them.
	portsMessage = 64 << 10
)

// Port is an open TCP port that a process hands to the one that follows it.
type Port struct {
	Name     string       `json:"name"`
	Address  string       `json:"address"` // as it is configured
	Listener net.Listener `json:"-"`
}

// SendPorts hands ports over. The sender's listeners stay open: both processes accept from the same queues.
func SendPorts(conn *net.UnixConn, ports []Port) (err error) {
	text, err := json.Marshal(ports)
	switch {
	case err != nil:
		return err
	case len(ports) > mostPorts || len(text) >= portsMessage:
		return fmt.Errorf("%d ports in %d bytes do not fit into one message", len(ports), len(text))
	}
	var fds []int
	defer func() {
		for _, fd := range fds {
			err = errors.Join(err, unix.Close(fd))
		}
	}()
	for _, p := range ports {
		fd, err := descriptor(p.Listener)
		if err != nil {
			return err
		}
		fds = append(fds, fd)
	}
	_, _, err = conn.WriteMsgUnix(append(text, '\n'), unix.UnixRights(fds...), nil)
	return err
}

// descriptor duplicates that of a listener. TCPListener.File would make it, and thereby the original, blocking.
func descriptor(ln net.Listener) (fd int, err error) {
	c, ok := ln.(syscall.Conn)
	if !ok {
		return 0, fmt.Errorf("a %T has no descriptor", ln)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	failed := raw.Control(func(of uintptr) { fd, err = unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, errors.Join(failed, err)
}

// ReceivePorts takes ports over.
func ReceivePorts(conn *net.UnixConn) (ports []Port, err error) {
	text, rights := make([]byte, portsMessage), make([]byte, unix.CmsgSpace(4*mostPorts))
	n, withRights, _, _, err := conn.ReadMsgUnix(text, rights)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close() // a listener has its own descriptor
		}
		if err != nil {
			ClosePorts(ports)
			ports = nil
		}
	}()
	messages, err := unix.ParseSocketControlMessage(rights[:withRights])
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return nil, err
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "port"))
		}
	}
	for n > 0 && text[n-1] != '\n' && n < len(text) { // what follows the descriptors may come in parts
		more, err := conn.Read(text[n:])
		if err != nil {
			return nil, err
		}
		n += more
	}
	if err := json.Unmarshal(text[:n], &ports); err != nil {
		return nil, err
	}
	if len(ports) != len(files) {
		ports = nil
		return nil, fmt.Errorf("%d descriptors came for another number of ports", len(files))
	}
	for i, f := range files {
		ln, err := net.FileListener(f)
		if err != nil {
			return ports, err
		}
		ports[i].Listener = ln
		tcp, ok := ln.(*net.TCPListener)
		if !ok {
			return ports, fmt.Errorf("port %s is no TCP port", ports[i].Name)
		}
		ports[i].Listener = inherited{tcp}
	}
	return ports, nil
}

// ClosePorts closes those that are open.
func ClosePorts(ports []Port) {
	for _, p := range ports {
		if p.Listener != nil {
			p.Listener.Close()
		}
	}
}

// inherited accepts as the listeners of Listen do.
type inherited struct{ *net.TCPListener }

// Accept implements net.Listener.
func (l inherited) Accept() (net.Conn, error) {
	c, err := l.AcceptTCP()
	if err != nil {
		return nil, err // no typed nil
	}
	if err := c.SetKeepAliveConfig(socket.KeepAlive()); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Beside makes another socket in the directory of this one, under the same lock.
func (u *Unix) Beside(name string) (net.Listener, error) {
	return inPlace(filepath.Join(filepath.Dir(u.Addr().String()), name))
}
