// SPDX-License-Identifier: Apache-2.0

package state

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/store"
)

// Restore puts a backup into dir as its state. It refuses while a hub holds the
// state, and over an existing state unless force is given; the old file is then
// kept beside the new one, under a name of its own. The backup is opened and checked before anything is replaced.
func Restore(from io.Reader, dir string, force bool) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return unwritable(dir, err)
	}
	target := filepath.Join(dir, fileName)
	if _, err := os.Stat(target); err == nil {
		if !force {
			return fault.New(fault.CodeStateBusy, "there is a state in "+dir+" already").
				Whyf("a restore would replace its CA, and every agent of it would have to join again").
				Hint("choose another --state-dir, or add --force; the old file is kept beside the new one")
		}
		held, err := Open(dir) // fails if a hub runs; keeps one from starting until we are done
		if fault.Has(err, fault.CodeStateBusy) {
			return err
		}
		if err == nil {
			defer held.Close()
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return unwritable(dir, err)
	}
	staging, err := os.MkdirTemp(dir, ".restore-")
	if err != nil {
		return unwritable(dir, err)
	}
	defer os.RemoveAll(staging)
	if err := copyFile(from, filepath.Join(staging, fileName)); err != nil {
		return unwritable(dir, err)
	}
	if err := verify(staging); err != nil {
		return badBackup(err)
	}
	if err := keepOld(target); err != nil {
		return unwritable(dir, err)
	}
	if err := os.Rename(filepath.Join(staging, fileName), target); err != nil {
		return unwritable(dir, err)
	}
	return store.SyncNames(dir)
}

// keepOld gives the present file a second name that was not taken before.
func keepOld(target string) error {
	for n := 0; ; n++ {
		old := target + ".old"
		if n > 0 {
			old = fmt.Sprintf("%s.%d", old, n)
		}
		switch err := os.Link(target, old); {
		case errors.Is(err, fs.ErrNotExist): // there is none
			return nil
		case !errors.Is(err, fs.ErrExist):
			return err
		}
	}
}

// badBackup speaks of the backup instead of the copy of it that was looked at.
func badBackup(err error) error {
	f := fault.From(err)
	out := fault.New(f.Code, "the backup cannot be used").Because(err)
	if f.Why != "" {
		out.Why = f.Why
	}
	return out.Hint("nothing was changed; choose another backup")
}

func verify(dir string) (err error) {
	s, err := Open(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	err = s.db.View(func(tx *bbolt.Tx) error {
		ca, err := storedAuthority(tx)
		if err == nil && ca == nil {
			err = fault.New(fault.CodeStateCorrupt, "this is no backup of a hub").Whyf("it holds no CA").
				Hint("make one with: tombolo hub backup --to FILE")
		}
		return err
	})
	return err
}

func copyFile(from io.Reader, path string) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := io.Copy(f, from); err != nil {
		return err
	}
	return f.Sync()
}
