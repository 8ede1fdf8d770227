// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// Broken is a line that is not a record, with its position. Reading continues after it.
type Broken struct {
	File string
	Line int
	Torn bool // the last line is incomplete: its writer was killed, or is writing now
	Why  string
}

func (b *Broken) Error() string { return fmt.Sprintf("%s:%d: %s", b.File, b.Line, b.Why) }

// Reader reads records.
type Reader struct {
	name string
	in   *bufio.Reader
	line int
}

// NewReader reads records from in; name is used in error positions.
func NewReader(name string, in io.Reader) *Reader {
	return &Reader{name: name, in: bufio.NewReaderSize(in, auditLine)}
}

// Next returns the next record, a *Broken error for a line that is not a record, and
// io.EOF at the end. It can be called again after *Broken.
func (r *Reader) Next() (Record, error) {
	for {
		line, err := r.in.ReadSlice('\n')
		if len(line) == 0 && err != nil {
			return Record{}, r.failed(err)
		}
		r.line++
		if errors.Is(err, bufio.ErrBufferFull) {
			return Record{}, r.skip()
		}
		if err != nil && !errors.Is(err, io.EOF) && !cutShort(err) {
			return Record{}, r.failed(err)
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		rec, bad := decode(line)
		switch {
		case bad == nil:
			return rec, nil
		case err != nil:
			return Record{}, &Broken{r.name, r.line, true, "the last line has no end: it was cut off, or is being written"}
		}
		return Record{}, &Broken{r.name, r.line, false, "this is no record: " + clip(bad.Error(), limit.AuditText)}
	}
}

// skip skips a line that is too long to be a record.
func (r *Reader) skip() error {
	for {
		_, err := r.in.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err == nil, errors.Is(err, io.EOF):
			return &Broken{r.name, r.line, err != nil, fmt.Sprintf("the line is longer than %d bytes", auditLine)}
		}
		return r.failed(err)
	}
}

// cutShort reports whether a compressed file ends too early, as one on a full disk does.
func cutShort(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }

// failed is io.EOF, or err with its position.
func (r *Reader) failed(err error) error {
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	return fmt.Errorf("%s, after line %d: %w", r.name, r.line, err)
}

// Files lists the files of the given paths: for a configured path its rotated files,
// oldest first, and then the file itself; for a rotated file that file alone. No file
// is listed twice.
func Files(paths ...string) ([]string, error) {
	var out []string
	seen := map[string]bool{}
	add := func(path string) {
		if !seen[path] {
			seen[path] = true
			out = append(out, path)
		}
	}
	for _, path := range paths {
		path = filepath.Clean(path)
		all, err := Older(path)
		if err != nil {
			return nil, err
		}
		for _, o := range all {
			add(o)
		}
		if _, err := os.Stat(path); err == nil || len(all) == 0 {
			add(path)
		}
	}
	return out, nil
}

// Older lists the rotated files of a path, oldest first.
func Older(path string) (out []string, err error) {
	all, err := rotated(filepath.Clean(path))
	if err != nil {
		return nil, cannotRead(path, err)
	}
	for _, o := range all {
		out = append(out, o.path)
	}
	return out, nil
}

// Open opens a file of records, compressed or not. One that was compressed since it
// was listed is found under its new name.
func Open(path string) (io.ReadCloser, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) && !strings.HasSuffix(path, packed) {
		if again, failed := os.Open(path + packed); failed == nil {
			f, err, path = again, nil, path+packed
		}
	}
	if err != nil {
		return nil, cannotRead(path, err)
	}
	if !strings.HasSuffix(path, packed) {
		return f, nil
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, errors.Join(cannotRead(path, err), f.Close())
	}
	return unpacked{z, f}, nil
}

type unpacked struct {
	*gzip.Reader
	file *os.File
}

func (u unpacked) Close() error { return errors.Join(u.Reader.Close(), u.file.Close()) }

func cannotRead(path string, err error) error {
	return fault.New(fault.CodeUsage, path+" cannot be read").Because(err).
		Hint("name the file of audit.path, or one of its rotated files")
}
