// SPDX-License-Identifier: Apache-2.0

package frontend

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/private"
)

// SocketSpec is one unix socket as it shall be. It is comparable.
type SocketSpec struct {
	Path     string
	Mode     fs.FileMode
	UID, GID int    // -1: leave
	Egress   string // name of the egress selection that uses it
}

// Listener removes its path when closed, if the path still is its own.
type Listener struct {
	*net.UnixListener
	path string
	self fs.FileInfo
}

// ListenUnix makes a socket at spec.path. It is born under another name with
// its final owner and mode and then renamed, so that nobody ever meets it with
// wrong permissions, and a stale file is replaced in one step. A socket that a
// live process serves is left alone.
func ListenUnix(spec SocketSpec) (*Listener, error) {
	if n := len(spec.Path); n >= limit.SocketPath {
		return nil, fault.Newf(fault.CodeSocketPath, "the socket path %s has %d bytes", spec.Path, n).
			Whyf("the kernel takes at most %d", limit.SocketPath-1).Hint("choose a shorter --run-dir or an explicit path")
	}
	if err := openDirs(filepath.Dir(spec.Path)); err != nil {
		return nil, socketFault(spec.Path, err)
	}
	if err := checkStale(spec.Path); err != nil {
		return nil, err
	}
	// The directory is made private and the name short: sun_path bounds it too.
	staging, err := os.MkdirTemp(filepath.Dir(spec.Path), ".t")
	if err != nil {
		return nil, socketFault(spec.Path, err)
	}
	defer os.RemoveAll(staging)
	born, err := bindShort(filepath.Join(staging, "s"))
	if err != nil {
		return nil, socketFault(spec.Path, err)
	}
	at := filepath.Join(staging, "s")
	err = errors.Join(os.Chmod(at, spec.Mode), chown(at, spec))
	if err == nil {
		err = os.Rename(at, spec.Path)
	}
	if err != nil {
		return nil, errors.Join(socketFault(spec.Path, err), born.Close())
	}
	self, err := os.Lstat(spec.Path)
	if err != nil {
		return nil, errors.Join(socketFault(spec.Path, err), born.Close())
	}
	return &Listener{born, spec.Path, self}, nil
}

// bindShort binds through /proc/self/fd if the path is too long for sun_path,
// which the staging name may be although the final one is not.
func bindShort(path string) (*net.UnixListener, error) {
	name := path
	if len(path) >= limit.SocketPath {
		dir, err := os.Open(filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		defer dir.Close()
		name = filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())), filepath.Base(path))
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err == nil {
		l.SetUnlinkOnClose(false)
	}
	return l, err
}

// permit gives the socket at the spec's path its owner and mode, if it is still the one
// that we made: in a folder of another user a link may stand there by now, to a file that
// is none of theirs.
func permit(spec SocketSpec, self fs.FileInfo) error {
	fd, err := unix.Open(spec.Path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: spec.Path, Err: err}
	}
	f := os.NewFile(uintptr(fd), spec.Path)
	defer f.Close()
	if now, err := f.Stat(); err != nil || !os.SameFile(now, self) {
		return errors.Join(fault.New(fault.CodeSocketPath, "something else stands at "+spec.Path).
			Whyf("the socket that the hub has made there is gone").Hint("remove it, and restart the hub"), err)
	}
	at := filepath.Join("/proc/self/fd", strconv.Itoa(fd)) // of what is open: the path may lead elsewhere by now
	return errors.Join(chown(at, spec), os.Chmod(at, spec.Mode))
}

func chown(path string, spec SocketSpec) error {
	if spec.UID < 0 && spec.GID < 0 {
		return nil
	}
	return os.Chown(path, spec.UID, spec.GID)
}

// checkStale decides whether what stands at path may be replaced: nothing, or a
// socket that nobody serves.
func checkStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return socketFault(path, err)
	}
	if info.Mode()&fs.ModeSocket == 0 {
		return fault.Newf(fault.CodeSocketPath, "something that is no socket stands at %s", path).
			Whyf("its mode is %s", info.Mode()).Hint("move it away, or choose another path")
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		conn.Close()
	}
	if err == nil || errors.Is(err, syscall.EAGAIN) { // or its queue is full
		return fault.Newf(fault.CodeSocketBusy, "the socket %s is served by a live process", path).
			Hint("stop the other hub, or choose another --run-dir")
	}
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return socketFault(path, err)
}

func socketFault(path string, err error) error {
	var f *fault.Fault
	if errors.As(err, &f) {
		return err
	}
	hint := "give this user (uid %d) the directory, or choose another with --run-dir (runDir)"
	if errors.Is(err, fs.ErrPermission) {
		hint += "; only root may give a socket to another owner"
	}
	return fault.New(fault.CodeSocketPath, "the socket "+path+" cannot be made").Because(err).Hint(hint, os.Getuid())
}

// Close stops listening and removes the path, unless another socket has taken it.
func (l *Listener) Close() error {
	if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.self) {
		os.Remove(l.path)
	}
	return l.UnixListener.Close()
}

// openDirs makes the missing folders of a path so that others may pass through
// them, whatever the umask; those that exist are left as they are.
func openDirs(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := openDirs(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil
		}
		return err
	}
	return os.Chmod(dir, 0o755)
}

// PrivateDir makes the directory of the admin socket, which only its owner may enter.
func PrivateDir(dir string) error {
	if err := openDirs(filepath.Dir(dir)); err != nil {
		return socketFault(dir, err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return socketFault(dir, err)
	}
	if err := private.Narrow(dir); err != nil {
		return socketFault(dir, err)
	}
	return nil
}
