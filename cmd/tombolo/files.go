// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// output is stdout. It remembers the first write that failed, so that no verb
// can end well whose answer has arrived nowhere.
type output struct {
	to     io.Writer
	mu     sync.Mutex
	failed error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.to.Write(p)
	o.note(err)
	return n, err
}

// Close ends stdout, for a pipe behind it.
func (o *output) Close() error {
	c, ok := o.to.(io.Closer)
	if !ok {
		return nil
	}
	err := c.Close()
	o.note(err)
	return err
}

func (o *output) note(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed == nil {
		o.failed = err
	}
}

// verdict is the error of a verb that ended with err. A verb's own fault stands,
// unless it says no more than that stdout failed.
func (o *output) verdict(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	var f *fault.Fault
	if o.failed == nil || errors.As(err, &f) && (f.Code == fault.CodeOutput || !errors.Is(err, o.failed)) {
		return err
	}
	return fault.New(fault.CodeOutput, "stdout cannot be written").Because(o.failed).
		Hint("look where it leads: to a full disk, or to a reader that has gone")
}

// fileOf gives the file behind stdout, or nil.
func fileOf(w io.Writer) *os.File {
	if o, ok := w.(*output); ok {
		w = o.to
	}
	f, _ := w.(*os.File)
	return f
}

// newFile is a file to be made.
type newFile struct {
	path string
	mode fs.FileMode
}

// newFiles are open and empty files that did not exist before. They are made
// before what they shall hold is asked for, which may not be had twice.
type newFiles struct {
	flag string // that named them, for hints
	open []*os.File
	kept bool
}

// createFiles makes all files or none.
func createFiles(flag string, files ...newFile) (*newFiles, error) {
	n := &newFiles{flag: flag}
	for _, file := range files {
		f, err := os.OpenFile(file.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, file.mode)
		if err != nil {
			n.discard()
			return nil, cannotWrite(file.path, flag, err)
		}
		n.open = append(n.open, f)
	}
	return n, nil
}

// fill writes the files in the order in which they were made.
func (n *newFiles) fill(contents ...[]byte) error {
	for i, f := range n.open {
		_, err := f.Write(contents[i])
		if err == nil {
			err = f.Sync()
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return cannotWrite(f.Name(), n.flag, err)
		}
	}
	return nil
}

// keep makes discard do nothing.
func (n *newFiles) keep() { n.kept = true }

// discard removes the files, unless they are to be kept.
func (n *newFiles) discard() {
	if n.kept {
		return
	}
	for _, f := range n.open {
		f.Close() // closed already if it was filled
		os.Remove(f.Name())
	}
}

// cannotWrite tells a path that is wrong from a place that takes nothing.
func cannotWrite(path, flag string, err error) error {
	switch {
	case errors.Is(err, fs.ErrExist):
		return fault.Newf(fault.CodeUsage, "%s exists already", path).Hint("move it away, or choose another %s", flag)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR),
		errors.Is(err, syscall.ENAMETOOLONG):
		return fault.New(fault.CodeUsage, path+" cannot be written").Because(err).
			Hint("choose a path in a folder that exists with %s", flag)
	}
	return fault.New(fault.CodeOutput, path+" cannot be written").Because(err).
		Hint("see to the rights and the free space there, or choose another place with %s", flag)
}
