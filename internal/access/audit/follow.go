// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// Listener receives what Follow finds. An error of Take or Broken ends Follow.
type Listener struct {
	Take   func(Record) error
	Broken func(*Broken) error
	// CaughtUp is called once, after the records that existed at the start.
	CaughtUp func() error
}

// Follow reports the records in the file at path, and those appended later, until
// ctx ends, across rotations, however fast they come. It waits for a file that does
// not exist yet. older are the rotated files (from Older) that were read already;
// files rotated since then are read as well.
func Follow(ctx context.Context, path string, older []string, to Listener) error {
	tick := time.NewTicker(auditPoll)
	defer tick.Stop()
	f := &follower{path: filepath.Clean(path), to: to}
	for _, file := range older {
		if o, ok := rotatedName(f.path, filepath.Base(file)); ok {
			f.done = max(f.done, o.number)
		}
	}
	defer f.close()
	if err := errors.Join(f.look(), to.CaughtUp()); err != nil {
		return err
	}
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if err := f.look(); err != nil {
			return err
		}
	}
}

// follower reads the file at path, and before it the files rotated since its last
// look:
//
//	path ──► open ──► those rotated since done, up to the open one ──► the open one, as it grows
//	          ▲                                                          │ path leads elsewhere
//	          └────────── done is the number that it was rotated to ◄────┘
//
// All files that were rotated before the open file was created are in the folder by
// then.
type follower struct {
	path  string
	to    Listener
	done  int  // the number of the newest rotated file that was read
	loose bool // one more was read, whose number is unknown
	file  *os.File
	reading
}

// reading is how far a file has been read.
type reading struct {
	name  string // for messages
	in    *bufio.Reader
	begun []byte // an incomplete line
	read  int64
	line  int
}

func readFrom(name string, in io.Reader) reading {
	return reading{name: name, in: bufio.NewReaderSize(in, auditBatch)}
}

// look reads what is new. When the path names another file, the old one is read to
// its end first: it is no longer written.
func (f *follower) look() error {
	for {
		now, err := os.Stat(f.path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return cannotRead(f.path, err)
		}
		if f.file != nil {
			if e := f.drain(); e != nil {
				return e
			}
			if self, e := f.file.Stat(); err != nil || e == nil && os.SameFile(self, now) && self.Size() >= f.read {
				return nil // the same file, or no new one yet
			}
			if e := f.end(); e != nil {
				return e
			}
		}
		if err != nil {
			return nil
		}
		if err := f.open(); err != nil {
			return err
		}
	}
}

// open opens the file at the path, after reading those rotated before it.
func (f *follower) open() error {
	file, err := os.Open(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return cannotRead(f.path, err)
	}
	f.file = file
	all, err := rotated(f.path)
	if err != nil {
		return cannotRead(f.path, err)
	}
	at, there := f.place(all)
	if there { // it was rotated a moment ago, and is read later
		all = all[:at]
	}
	for _, o := range all {
		if o.number <= f.done {
			continue
		}
		if err := f.between(o); err != nil {
			return err
		}
	}
	f.reading = readFrom(f.path, file)
	return nil
}

// between reads a rotated file that was never seen under the path itself, and
// reports those that are gone already.
func (f *follower) between(o old) error {
	gone := o.number - f.done - 1
	if f.loose && gone > 0 {
		gone--
	}
	f.done, f.loose = o.number, false
	if gone > 0 {
		if err := f.to.Broken(&Broken{f.path, 0, false,
			fmt.Sprintf("%d rotated files were removed before they were read", gone)}); err != nil {
			return err
		}
	}
	in, err := Open(o.path)
	if errors.Is(err, os.ErrNotExist) {
		return f.to.Broken(&Broken{o.path, 0, false, "it was removed before it was read"})
	}
	if err != nil {
		return err
	}
	defer in.Close()
	f.reading = readFrom(o.path, in)
	return errors.Join(f.drain(), f.rest())
}

// place finds the index of the open file among the rotated ones.
func (f *follower) place(all []old) (at int, there bool) {
	self, err := f.file.Stat()
	if err != nil {
		return 0, false
	}
	for i, o := range slices.Backward(all) {
		if now, err := os.Stat(o.path); err == nil && os.SameFile(self, now) {
			return i, true
		}
		if o.number > f.done && f.packedAs(o) {
			return i, true
		}
	}
	return 0, false
}

// packedAs reports whether a compressed rotated file is the open one: their first
// records are equal, and no two records are.
func (f *follower) packedAs(o old) bool {
	if _, err := os.Stat(o.path); err == nil && !o.packed {
		return false
	}
	in, err := Open(o.path)
	if err != nil {
		return false
	}
	defer in.Close()
	var theirs, ours [limit.AuditText]byte
	n, _ := io.ReadFull(in, theirs[:])
	m, _ := f.file.ReadAt(ours[:n], 0)
	return n > 0 && bytes.Equal(theirs[:n], ours[:m])
}

// drain takes the complete lines that are available.
func (f *follower) drain() error {
	for {
		piece, err := f.in.ReadSlice('\n')
		f.read += int64(len(piece))
		if len(f.begun)+len(piece) <= auditLine { // a longer line is no record, and is reported at its end
			f.begun = append(f.begun, piece...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF), cutShort(err):
			return nil
		case err != nil:
			return cannotRead(f.name, err)
		}
		if err := f.whole(false); err != nil {
			return err
		}
	}
}

// whole takes the line that has been put together.
func (f *follower) whole(torn bool) error {
	line := f.begun
	f.begun = f.begun[:0]
	f.line++
	if len(line) <= 1 {
		return nil
	}
	r, err := decode(line)
	switch {
	case err == nil:
		return f.to.Take(r)
	case torn:
		return f.to.Broken(&Broken{f.name, f.line, true, "the last line has no end: it was cut off"})
	}
	return f.to.Broken(&Broken{f.name, f.line, false, "this is no record: " + clip(err.Error(), limit.AuditText)})
}

// end leaves a rotated file, after the rest of its last line.
func (f *follower) end() error {
	defer f.close()
	if err := f.rest(); err != nil {
		return err
	}
	all, err := rotated(f.path)
	if err != nil {
		return cannotRead(f.path, err)
	}
	at, there := f.place(all)
	switch {
	case there:
		f.done, f.loose = all[at].number, false
	case len(all) > 0 && all[len(all)-1].number > f.done:
		f.loose = true // it was rotated and is gone already, or was removed
	case len(all) == 0 || all[len(all)-1].number < f.done:
		f.done = 0 // the folder was cleared: numbers start again
		if len(all) > 0 {
			f.done = all[len(all)-1].number
		}
	}
	return nil
}

// rest takes what is left of the last line.
func (f *follower) rest() error {
	if len(f.begun) == 0 {
		return nil
	}
	return f.whole(true)
}

func (f *follower) close() {
	if f.file != nil {
		f.file.Close()
		f.file = nil
	}
}
