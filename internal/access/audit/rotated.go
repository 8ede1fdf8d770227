// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	packed = ".gz"
	part   = ".gz.part" // an incomplete compressed file
)

// old is a rotated file.
type old struct {
	path   string
	number int
	packed bool
}

// rotatedName parses the name of a rotated file: the path and a number.
func rotatedName(path, name string) (o old, ok bool) {
	digits, ok := strings.CutPrefix(name, filepath.Base(path)+".")
	if !ok {
		return old{}, false
	}
	digits, o.packed = strings.CutSuffix(digits, packed)
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || digits != number(n) {
		return old{}, false
	}
	o.path, o.number = filepath.Join(filepath.Dir(path), name), n
	return o, true
}

// number formats the number of a rotated file so that a shell lists the files in
// order.
func number(n int) string { return fmt.Sprintf("%06d", n) }

// rotated lists the rotated files of a path, oldest first. A file that exists twice,
// because it was being compressed, is listed uncompressed.
//
// The folder is listed twice: a long one is read in pieces, and one list misses a file
// that gets its packed name between two of them.
func rotated(path string) ([]old, error) {
	before, err := listed(path)
	if err != nil {
		return nil, err
	}
	out, err := listed(path)
	if err != nil {
		return nil, err
	}
	out = append(out, before...)
	slices.SortStableFunc(out, func(a, b old) int { return cmp.Compare(a.number, b.number) })
	return slices.CompactFunc(out, func(a, b old) bool { return a.number == b.number }), nil
}

// listed reads the folder of a path once. Its order is by number, uncompressed first.
func listed(path string) ([]old, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	var out []old
	for _, e := range entries {
		if o, ok := rotatedName(path, e.Name()); ok && !e.IsDir() {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b old) int {
		if a.packed != b.packed && a.number == b.number {
			if a.packed {
				return 1
			}
			return -1
		}
		return cmp.Compare(a.number, b.number)
	})
	return out, nil
}

// nextName is the name to which the file at path is rotated.
func nextName(path string) (string, error) {
	all, err := rotated(path)
	if err != nil {
		return "", err
	}
	n := 1
	if len(all) > 0 {
		n = all[len(all)-1].number + 1
	}
	return path + "." + number(n), nil
}

// tidy removes rotated files beyond cfg.Keep, and compresses the rest.
func tidy(ctx context.Context, cfg Config) error {
	all, err := rotated(cfg.Path)
	if err != nil {
		return err
	}
	var errs []error
	if extra := len(all) - cfg.Keep; extra > 0 {
		for _, o := range all[:extra] {
			errs = append(errs, os.Remove(o.path))
			for _, half := range []string{packed, part} { // of an interrupted compression
				if err := os.Remove(o.path + half); !o.packed && !errors.Is(err, fs.ErrNotExist) {
					errs = append(errs, err)
				}
			}
		}
		all = all[extra:]
	}
	for _, o := range all {
		if cfg.Compress && !o.packed && ctx.Err() == nil {
			errs = append(errs, pack(ctx, o.path))
		}
	}
	return errors.Join(errs...)
}

// pack replaces a file by its compressed form, which appears when it is complete.
func pack(ctx context.Context, path string) (err error) {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := unix.Flock(int(in.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil // the process that stepped aside still writes it, or another one packs it: next time
	}
	out, err := os.OpenFile(path+part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(path + part)
		}
	}()
	z := gzip.NewWriter(out)
	_, err = io.Copy(z, untilDone{ctx, in})
	if err = errors.Join(err, z.Close(), out.Sync(), out.Close()); err != nil {
		return err
	}
	if err = os.Rename(path+part, path+packed); err != nil {
		return err
	}
	return os.Remove(path)
}

// untilDone reads until ctx ends.
type untilDone struct {
	ctx context.Context
	io.Reader
}

func (r untilDone) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(b)
}
