// SPDX-License-Identifier: Apache-2.0

package confdir

import (
	"log/slog"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/private"
)

// Words are what faults and log lines call the files.
type Words struct {
	One     string // a file, such as policy
	Many    string // several of them
	All     string // what they are together
	Setting string // the key of the configuration that names them
	Check   string // the command that shows what is wrong
}

// Unreadable is the fault of a file.
func (w Words) Unreadable(file string, err error) error {
	return fault.Newf(fault.CodeConfig, "the %s %s cannot be read", w.One, file).Because(err).
		Hint("correct the file, or take it away")
}

// missing is the fault of a path of the configuration.
func (w Words) missing(path string, err error) error {
	return fault.Newf(fault.CodeConfig, "the %s %s cannot be read", w.One, path).Because(err).Hint("correct %s", w.Setting)
}

// none is the fault of paths without a file.
func (w Words) none(paths []string) error {
	return fault.Newf(fault.CodeConfig, "there is no %s in %s", w.One, strings.Join(paths, ", ")).
		Hint("write one, or take %s out of the configuration", w.Setting)
}

// Reader returns the content of a file of at most so many bytes.
type Reader func(path string, most int64) ([]byte, error)

// ReadDisk reads from the disk.
func ReadDisk(path string, most int64) ([]byte, error) { return private.ReadPublic(path, int(most)) }

// Options are what Files need.
type Options[T any] struct {
	Words Words
	Paths func() []string // files and folders, as they are configured now
	// Some says that without any file too much would be open. If no good one would be left, those that go stay in
	// force, and a first reading that finds none fails.
	Some bool

	// Read returns the content of one file. A change of any file that it reads has it called again.
	Read func(file string, read Reader) (T, error)
	// Apply puts a change into force. It is called after each look at the files, even if none has changed.
	Apply func(Change[T]) Outcome

	Disk     Reader // such as ReadDisk
	Log      *slog.Logger
	Now      func() time.Time
	Reloaded func(error) // counts a file that is refused
}

// Change is what a look at the files found.
type Change[T any] struct {
	Paths []string     // that were looked at
	Good  map[string]T // new content by file
	Gone  []string     // files that went, whether they were good or not
}

// Outcome is what became of a change.
type Outcome struct {
	Refused map[string]error // files of Change.Good that are not in force; all others are
	Again   []string         // refused files that may be good now: they are read once more
}
