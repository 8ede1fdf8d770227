// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/base/store"
)

// Unix is an admin socket with the lock that excludes a second process.
type Unix struct {
	net.Listener
	lock *os.File
}

// Close implements net.Listener.
func (u *Unix) Close() error { return errors.Join(u.Listener.Close(), u.lock.Close()) }

// ListenUnix makes an admin socket in a directory that only its owner can enter, so that
// the socket never exists with wider permissions. The holder of the lock may remove a
// socket that a killed process left. setting is the name of the setting in faults.
func ListenUnix(setting, path string) (*Unix, error) {
	if n := len(path); n >= limit.SocketPath {
		return nil, fault.Newf(fault.CodeSocketPath, "the socket path %s has %d bytes", path, n).
			Whyf("the kernel takes at most %d", limit.SocketPath-1).Hint("choose a shorter %s", setting)
	}
	unmade := func(err error) error {
		return fault.New(fault.CodeSocketPath, "the socket "+path+" cannot be made").Because(err).
			Hint("give this user (uid %d) the directory, or choose another with %s", os.Getuid(), setting)
	}
	dir := filepath.Dir(path)
	if err := privateDir(dir); err != nil {
		return nil, unmade(err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, unmade(err)
	}
	err = store.Lock(lock)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		lock.Close()
		return nil, fault.Newf(fault.CodeSocketBusy, "the socket %s is served by a live process", path).
			Hint("stop the other process, or choose another directory with %s", setting)
	}
	var ln net.Listener
	if err == nil {
		ln, err = inPlace(path)
	}
	if err != nil {
		lock.Close()
		return nil, unmade(err)
	}
	return &Unix{ln, lock}, nil
}

func privateDir(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return private.Narrow(dir)
}

// inPlace listens in place of a socket that no process serves.
func inPlace(path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSocket == 0 {
		return nil, errors.New("the path exists and is not a socket")
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return net.Listen("unix", path)
}
