// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/store"
)

// outFlag is --out FILE of a command that prints to stdout without it. The shell
// empties the file behind > before the command runs; --out leaves it as it was
// until the new content is complete.
type outFlag struct {
	path  string
	mode  fs.FileMode // of a file that does not exist yet
	fresh bool        // the file must not exist
}

// outReplaces is what --out does where the file may exist.
const outReplaces = "write to `FILE` instead of stdout; it is replaced only by what is complete"

func (o *outFlag) register(cmd *cobra.Command, what string) {
	cmd.Flags().StringVar(&o.path, "out", "", what)
}

// write gives what fill writes to stdout or to the file, all of it or nothing.
func (o *outFlag) write(cmd *cobra.Command, fill func(io.Writer) error) error {
	if o.path == "" || o.path == "-" {
		return fill(cmd.OutOrStdout())
	}
	f, err := beginFile(*o, "--out")
	if err != nil {
		return err
	}
	defer f.discard()
	if err := fill(f); err != nil {
		return cmp.Or(f.failed, err) // an encoder may have wrapped it in words of its own
	}
	if err := f.commit(); err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s is written\n", o.path)
	return nil
}

// outFile is a file that appears, or takes the place of another one, when it is complete.
type outFile struct {
	outFlag
	flag   string // that named it, for hints
	part   *os.File
	failed error // of Write
}

// beginFile makes the file beside its place, so that what cannot be written is known first.
func beginFile(o outFlag, flag string) (*outFile, error) {
	f := &outFile{outFlag: o, flag: flag}
	info, err := os.Lstat(f.path)
	if err == nil && f.fresh {
		return nil, f.bad(os.ErrExist)
	}
	if err == nil && info.Mode()&fs.ModeSymlink != 0 { // the link stays
		var real string
		if real, err = filepath.EvalSymlinks(f.path); err == nil {
			f.path = real
			info, err = os.Stat(real)
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && info == nil:
	case err != nil:
		return nil, f.bad(err)
	case !info.Mode().IsRegular():
		return nil, fault.Newf(fault.CodeUsage, "%s is no regular file", o.path).
			Hint("choose another %s, or leave it out and redirect stdout", flag)
	default:
		f.mode = info.Mode().Perm()
	}
	if f.part, err = os.CreateTemp(filepath.Dir(f.path), "."+filepath.Base(f.path)+"-*"); err != nil {
		return nil, f.bad(err)
	}
	err = f.part.Chmod(f.mode)
	if info != nil && err == nil {
		if of, ok := info.Sys().(*syscall.Stat_t); ok && int(of.Uid) != os.Geteuid() {
			err = f.part.Chown(int(of.Uid), int(of.Gid))
		}
	}
	if err != nil {
		f.discard()
		return nil, f.bad(err)
	}
	return f, nil
}

func (f *outFile) bad(err error) error { return cannotWrite(f.path, f.flag, err) }

// Write implements io.Writer. Its failures are the file's.
func (f *outFile) Write(p []byte) (int, error) {
	n, err := f.part.Write(p)
	if err != nil {
		f.failed = f.bad(err)
		return n, f.failed
	}
	return n, nil
}

// commit puts the file into its place.
func (f *outFile) commit() error {
	if err := errors.Join(f.part.Sync(), f.part.Close()); err != nil {
		return f.bad(err)
	}
	put := os.Rename
	if f.fresh { // never over another file; discard takes the first name away
		put = os.Link
	}
	if err := put(f.part.Name(), f.path); err != nil {
		return f.bad(err)
	}
	if err := store.SyncNames(filepath.Dir(f.path)); err != nil {
		return f.bad(err)
	}
	return nil
}

// discard takes away what commit has not moved.
func (f *outFile) discard() {
	f.part.Close()
	os.Remove(f.part.Name())
}
