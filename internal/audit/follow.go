// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/tombolo-io/tombolo/internal/limit"
)

// Listener takes what Follow finds. An error of Take or Broken ends it.
type Listener struct {
	Take   func(Record) error
	Broken func(*Broken) error
	// CaughtUp is called once, when what was there at first has been given.
	CaughtUp func() error
}

// Follow gives what the file at path holds and what is added to it, until ctx
// ends, also to those that follow it when it is rotated. A path that leads nowhere
// is waited for.
func Follow(ctx context.Context, path string, to Listener) error {
	tick := time.NewTicker(limit.AuditPoll)
	defer tick.Stop()
	f := &follower{path: path, to: to}
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

type follower struct {
	path  string
	to    Listener
	file  *os.File
	in    *bufio.Reader
	begun []byte // a line that has no end yet
	read  int64
	line  int
}

// look reads what is new. When the path leads to another file, the old one is read
// to its end first.
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
			if self, e := f.file.Stat(); err != nil || e == nil && os.SameFile(self, now) && now.Size() >= f.read {
				return nil // the same, or nothing yet in its place
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

func (f *follower) open() error {
	file, err := os.Open(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return cannotRead(f.path, err)
	}
	f.file, f.in = file, bufio.NewReaderSize(file, limit.AuditBatch)
	f.read, f.line, f.begun = 0, 0, nil
	return nil
}

// drain gives the whole lines that are there.
func (f *follower) drain() error {
	for {
		piece, err := f.in.ReadSlice('\n')
		f.read += int64(len(piece))
		if len(f.begun)+len(piece) <= limit.AuditLine { // what is longer is no record, and is told of at its end
			f.begun = append(f.begun, piece...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return cannotRead(f.path, err)
		}
		if err := f.whole(false); err != nil {
			return err
		}
	}
}

// whole gives the line that has been put together.
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
		return f.to.Broken(&Broken{f.path, f.line, true, "the last line has no end: it was cut off"})
	}
	return f.to.Broken(&Broken{f.path, f.line, false, "this is no record: " + clip(err.Error(), limit.AuditText)})
}

// end leaves a file that has been rotated, with what is left of its last line.
func (f *follower) end() error {
	defer f.close()
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
