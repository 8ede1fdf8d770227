// SPDX-License-Identifier: Apache-2.0

// Package private reads files that others must not read or write: secrets, keys and
// passwords, mounted by hand, by Kubernetes or by systemd, and the files of a state
// directory. It decides by the mode and the owner of the open file, so that the target of
// a symbolic link counts (docs/decisions/0016-who-may-read-a-secret.md).
package private

import (
	"crypto/tls"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// Read reads a file of at most most bytes that an operator provided. Errors of the file
// system are returned unchanged; a file that is not private is a fault secret_invalid.
func Read(path string, most int) ([]byte, error) { return read(path, most, false) }

// ReadState is Read for a file that we have written, in our own state directory.
func ReadState(path string, most int) ([]byte, error) { return read(path, most, true) }

// CheckState makes the checks of ReadState for a file that is read by other means. A
// missing file is not an error: the reader reports it.
func CheckState(path string) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil
	}
	f, err := open(path, true)
	if err != nil {
		return err
	}
	return f.Close()
}

// ReadPublic reads a file of at most most bytes that may be public. It must be a regular
// file: a pipe would block until it has a writer, and a device has no end.
func ReadPublic(path string, most int) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", path)
	}
	if err != nil {
		return nil, err
	}
	return all(f, path, most)
}

// Pair reads a certificate, which is public, and its private key.
func Pair(certFile, keyFile string) (tls.Certificate, error) {
	cert, err := ReadPublic(certFile, limit.PrivateFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := Read(keyFile, limit.PrivateFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key)
}

func read(path string, most int, ours bool) ([]byte, error) {
	f, err := open(path, ours)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return all(f, path, most)
}

func all(f io.Reader, path string, most int) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err == nil && len(data) > most {
		err = fmt.Errorf("%s has more than %d bytes", path, most)
	}
	if err != nil {
		return nil, err
	}
	return data, nil
}

// open does not block, as opening a pipe would.
func open(path string, ours bool) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	file := found{mode: info.Mode(), uid: -1, gid: -1}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		file.uid, file.gid = int(s.Uid), int(s.Gid)
	}
	why, next := exposed(file, os.Getegid(), ours)
	if why == "" {
		return f, nil
	}
	f.Close()
	return nil, fault.Newf(fault.CodeSecret, "the file %s is not used", path).
		Whyf("its mode is %04o, its owner uid %d and gid %d: %s", file.mode.Perm(), file.uid, file.gid, why).Hint(next, path)
}

// found has the attributes of a file.
type found struct {
	mode     fs.FileMode
	uid, gid int
}

// exposed returns why a file is not private, and what to do about it; empty if it is. gid
// is the group of this process, and ours is set for a file of the state directory.
//
//	others                    none of their bits
//	group, file of root       may read: the operator, kubelet (fsGroup) or systemd chose the group
//	group, state of our own   our own group: kubelet opens all of a volume to its fsGroup
//	group otherwise           none of its bits
func exposed(f found, gid int, ours bool) (why, next string) {
	switch group := f.mode.Perm() & 0o070; {
	case !f.mode.IsRegular():
		return "it is no regular file", "name the file itself, not %s"
	case f.mode.Perm()&0o007 != 0:
		return "everybody may use it", "chmod 600 %s, in Kubernetes defaultMode: 0440 and an fsGroup; " +
			"if others may have read it, make a new one"
	case group == 0, f.uid == 0 && group == 0o040, ours && f.gid == gid:
		return "", ""
	case f.uid == 0:
		return "its group may write it", "chmod 640 %s, or 600; if others may have written it, make a new one"
	}
	return "its group may use it", "chmod 600 %s, or have it belong to root with mode 640; " +
		"if others may have read it, make a new one"
}
