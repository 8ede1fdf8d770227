// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/store"
)

// disk is the folder of a snapshot, as far as the memory store needs it. The
// tests have another one, which forgets what was not synced.
type disk interface {
	Open(name string) (io.ReadCloser, error)
	Create(name string) (diskFile, error)
	Rename(from, to string) error
	Remove(name string) error
	Sync() error // of the names
}

type diskFile interface {
	io.WriteCloser
	Sync() error
}

// folder is a disk in a folder of this machine.
type folder string

func (d folder) path(name string) string { return filepath.Join(string(d), name) }

// Open does not wait for a writer, as opening a pipe would.
func (d folder) Open(name string) (io.ReadCloser, error) {
	f, err := os.OpenFile(d.path(name), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &os.PathError{Op: "open", Path: d.path(name), Err: errors.New("it is no regular file")}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (d folder) Create(name string) (diskFile, error) {
	return os.OpenFile(d.path(name), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
}

func (d folder) Rename(from, to string) error { return os.Rename(d.path(from), d.path(to)) }

func (d folder) Remove(name string) error { return os.Remove(d.path(name)) }

func (d folder) Sync() error { return store.SyncNames(string(d)) }

// hold makes the folder and keeps other processes out of it until the file is closed.
func hold(dir string) (*os.File, error) {
	unusable := func(err error) error {
		return fault.New(fault.CodeStateAccess, "the state directory "+dir+" cannot be used").Because(err).
			Hint("create it for this user (uid %d), or choose another with --state-dir (stateDir)", os.Getuid())
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, unusable(err)
	}
	file, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, unusable(err)
	}
	switch err := store.Lock(file); {
	case errors.Is(err, syscall.EWOULDBLOCK):
		return nil, errors.Join(fault.New(fault.CodeStateBusy, "the state in "+dir+" is in use").
			Whyf("another discovery service holds it").
			Hint("stop that service, or give this one its own state directory"), file.Close())
	case err != nil:
		return nil, errors.Join(unusable(err), file.Close())
	}
	return file, nil
}
