// SPDX-License-Identifier: Apache-2.0

// Package store keeps state on disk: a file is locked by one process, and replaced
// atomically. It does not know the content of files, and returns the kernel's errors:
// callers know what to do about them.
package store

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Lock locks a file against other processes until it is closed. It waits a second for a
// process that is just exiting; then it returns EWOULDBLOCK.
func Lock(file *os.File) (err error) {
	for range 20 {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}
		<-time.After(50 * time.Millisecond) // flock(2) has no timeout
	}
	return err
}

// Write replaces a file, with mode 0600, atomically and durably, or changes nothing. It
// creates the folder, with mode 0700.
func Write(path string, data []byte) error { return WriteBy(path, data, func(string) {}) }

// WriteBy is Write, and calls at before each step, where a test can stop it.
func WriteBy(path string, data []byte, at func(step string)) (err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	at("create")
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	at("write")
	_, err = f.Write(data)
	at("sync")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	at("rename")
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	at("sync the directory")
	return SyncNames(dir)
}

// SyncNames makes the names in a folder survive a crash of the machine.
func SyncNames(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
