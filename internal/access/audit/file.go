// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

// file is a sink that rotates by size and age. The current file has the configured
// path; a full one is renamed to path.N, where N only grows, so that nothing else
// has to be renamed and names sort by age.
//
// It is synced when it is rotated and closed, not for each record: a crash of the
// process loses nothing that was written, a crash of the machine loses what the
// kernel had not flushed yet.
type file struct {
	cfg     Config
	log     *slog.Logger
	open    opener
	f       target
	self    fs.FileInfo // of f
	size    int64
	begun   time.Time // of the first record
	torn    bool      // the file ends within a line
	retry   time.Time // no rotation before this time, after one failed
	rotated chan struct{}
	moved   string // the rotated file that is written since stepAside
}

// target is the part of an open file that a file sink uses.
type target interface {
	io.WriteCloser
	Stat() (fs.FileInfo, error)
	Sync() error
	Truncate(size int64) error
}

// opener opens the path for appending, and creates it with mode 0600 if necessary.
type opener func(path string) (target, error)

func osOpen(path string) (target, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file, its mode is %s", path, info.Mode())
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	// Two processes would tear each other's lines and rotate the file under each
	// other. The kernel releases the lock however the process ends.
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errShared
		}
		return nil, errors.Join(err, f.Close())
	}
	if err := f.Chmod(0o600); err != nil { // it may have existed with another mode
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// errShared is the error of a file that another process writes.
var errShared = errors.New("another process writes it")

func openFile(cfg Config, log *slog.Logger) (*file, error) {
	f := &file{cfg: cfg, log: log, open: osOpen, rotated: make(chan struct{}, 1)}
	if err := f.begin(); err != nil {
		if errors.Is(err, errShared) {
			return nil, fault.Newf(fault.CodeAudit, "the audit file %s cannot be written", cfg.Path).Because(err).
				Hint("give each hub and each agent an audit.path of its own")
		}
		return nil, fault.Newf(fault.CodeAudit, "the audit file %s cannot be written", cfg.Path).Because(err).
			Hint("correct audit.path, or give its folder to the user of this process (uid %d)", os.Getuid())
	}
	f.wake() // for files of an earlier run
	return f, nil
}

// begin opens the path, and appends to what is there.
func (f *file) begin() error {
	to, err := f.open(f.path())
	if err != nil {
		return err
	}
	self, err := to.Stat()
	if err != nil {
		return errors.Join(err, to.Close())
	}
	f.f, f.self, f.size, f.begun, f.torn = to, self, self.Size(), time.Time{}, false
	if f.size > 0 {
		f.begun, f.torn = look(f.path(), self)
	}
	return nil
}

// look reads the time of a file's first record, and whether its last line is torn:
// the process that wrote it was killed within a write.
func look(path string, info fs.FileInfo) (begun time.Time, torn bool) {
	begun = info.ModTime()
	in, err := os.Open(path)
	if err != nil {
		return begun, true // an extra empty line is harmless
	}
	defer in.Close()
	if line, err := bufio.NewReaderSize(in, auditLine).ReadSlice('\n'); err == nil {
		if r, err := decode(line); err == nil {
			begun = r.Time
		}
	}
	var last [1]byte
	_, err = in.ReadAt(last[:], info.Size()-1)
	return begun, err != nil || last[0] != '\n'
}

// Write appends lines; it opens the path again if it has been removed or renamed.
func (f *file) Write(b []byte) (int, error) {
	if err := f.present(); err != nil {
		return 0, err
	}
	if f.size > 0 && f.size+int64(len(b)) > f.cfg.MaxSize {
		f.Rotate()
		if err := f.present(); err != nil {
			return 0, err
		}
	}
	if f.torn {
		n, err := f.f.Write([]byte("\n"))
		if f.size += int64(n); err != nil {
			return 0, err
		}
		f.torn = false
	}
	if f.size == 0 {
		f.begun = time.Now()
	}
	n, err := f.f.Write(b)
	if err == nil {
		f.size += int64(n)
		return n, nil
	}
	if n > 0 && f.f.Truncate(f.size) == nil { // readers must not see half a line
		return 0, err
	}
	f.size += int64(n)
	return n, err
}

// present makes sure that the path still names the open file.
func (f *file) present() error {
	if f.f != nil {
		now, err := os.Stat(f.path())
		if err == nil && os.SameFile(now, f.self) {
			return nil
		}
		f.log.Warn("the audit file was removed or renamed; a new one is created", "path", f.path())
		f.shut()
	}
	return f.begin()
}

// shut closes the open file. A failure cannot be repaired: the kernel has the
// records and reports that it could not store them.
func (f *file) shut() {
	if err := errors.Join(f.f.Sync(), f.f.Close()); err != nil {
		f.log.Error("the audit file could not be closed cleanly", "path", f.path(), telemetry.AttrReason, err)
	}
	f.f = nil
}

// Due is the time at which the first record reaches the greatest age.
func (f *file) Due() time.Time {
	if f.f == nil || f.size == 0 || f.begun.IsZero() || f.moved != "" {
		return time.Time{}
	}
	at := f.begun.Add(f.cfg.MaxAge)
	if at.Before(f.retry) {
		return f.retry
	}
	return at
}

// Rotate renames the file and lets the next write begin a new one. If that fails
// the file keeps growing, and no record is lost.
func (f *file) Rotate() {
	if f.moved != "" || time.Now().Before(f.retry) || f.present() != nil || f.size == 0 {
		return
	}
	next, err := nextName(f.cfg.Path)
	if err == nil {
		err = os.Rename(f.cfg.Path, next)
	}
	if err != nil {
		f.retry = time.Now().Add(limit.AuditTold)
		f.log.Error("the audit file cannot be rotated; it keeps growing", "path", f.cfg.Path, telemetry.AttrReason, err)
		return
	}
	f.shut()
	if err := f.begin(); err != nil {
		f.log.Error("no new audit file can be opened", "path", f.cfg.Path, telemetry.AttrReason, err)
	}
	f.wake()
}

// Close syncs and closes the file.
func (f *file) Close() error {
	if f.f == nil {
		return nil
	}
	return errors.Join(f.f.Sync(), f.f.Close())
}

// wake makes Tidy run once.
func (f *file) wake() {
	select {
	case f.rotated <- struct{}{}:
	default:
	}
}

// Tidy removes and compresses rotated files each time that it is woken, until ctx ends.
func (f *file) Tidy(ctx context.Context) {
	for {
		select {
		case <-f.rotated:
		case <-ctx.Done():
			return
		}
		if err := tidy(ctx, f.cfg); err != nil && ctx.Err() == nil {
			f.log.Error("old audit files could not be compressed or removed", "folder", filepath.Dir(f.cfg.Path),
				telemetry.AttrReason, err)
		}
	}
}
