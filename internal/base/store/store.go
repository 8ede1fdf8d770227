// SPDX-License-Identifier: Apache-2.0

// Package store keeps state on disk: a file is held by one process, and replaced as
// a whole or not at all. It does not know what a file says, and its errors are the
// kernel's: who calls it knows what to do about them.
package store

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Lock keeps other processes out of a file until it is closed. It waits a second for
// one that was killed just now and is not quite gone; then it gives EWOULDBLOCK.
func Lock(file *os.File) (err error) {
	for range 20 {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}
		<-time.After(50 * time.Millisecond) // flock(2) knows no bounded wait
	}
	return err
}

// Write puts a file of mode 0600 into the place of the old one, at once and for
// good, or leaves all as it was. It makes the folder, mode 0700.
func Write(path string, data []byte) error { return WriteBy(path, data, func(string) {}) }

// WriteBy is Write, and reports each step before it is done: a test ends there.
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

// SyncNames makes sure that the names in a folder outlive a crash of the machine.
func SyncNames(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
