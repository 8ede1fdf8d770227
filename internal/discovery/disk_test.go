// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"sync"
	"sync/atomic"
	"syscall"
)

// testDisk is a disk on which what was not synced may be lost. Its step counts
// operations; at the one called stop, and from then on, everything fails.
type testDisk struct {
	mu           sync.Mutex
	files, names map[string]*inode // as programs see them, and as a crash leaves the names
	step, stop   int
	full         atomic.Bool
}

type inode struct{ content, synced []byte }

var errStopped = errors.New("the machine is off")

func newDisk() *testDisk {
	return &testDisk{files: map[string]*inode{}, names: map[string]*inode{}, stop: -1}
}

func (d *testDisk) op() error {
	d.step++
	if d.stop >= 0 && d.step > d.stop {
		return errStopped
	}
	return nil
}

func (d *testDisk) Open(name string) (io.ReadCloser, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.files[name]
	if f == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return io.NopCloser(bytes.NewReader(f.content)), nil
}

func (d *testDisk) Create(name string) (diskFile, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.op(); err != nil {
		return nil, err
	}
	f := &inode{}
	d.files[name] = f
	return &openInode{d, f}, nil
}

func (d *testDisk) Rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.files[from] == nil {
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	}
	if err := d.op(); err != nil {
		return err
	}
	d.files[to] = d.files[from]
	delete(d.files, from)
	return nil
}

func (d *testDisk) Remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.files[name] == nil {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	if err := d.op(); err != nil {
		return err
	}
	delete(d.files, name)
	return nil
}

func (d *testDisk) Sync() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.op(); err != nil {
		return err
	}
	d.names = maps.Clone(d.files)
	return nil
}

// copied is a disk with the same files.
func (d *testDisk) copied() *testDisk {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := newDisk()
	out.files, out.names = maps.Clone(d.files), maps.Clone(d.files)
	return out
}

type openInode struct {
	d *testDisk
	f *inode
}

func (o *openInode) Write(p []byte) (int, error) {
	o.d.mu.Lock()
	defer o.d.mu.Unlock()
	if err := o.d.op(); err != nil {
		o.f.content = append(o.f.content, p[:len(p)/2]...)
		return len(p) / 2, err
	}
	if o.d.full.Load() {
		return 0, &fs.PathError{Op: "write", Path: newName, Err: syscall.ENOSPC}
	}
	o.f.content = append(o.f.content, p...)
	return len(p), nil
}

func (o *openInode) Sync() error {
	o.d.mu.Lock()
	defer o.d.mu.Unlock()
	if err := o.d.op(); err != nil {
		return err
	}
	o.f.synced = bytes.Clone(o.f.content)
	return nil
}

func (o *openInode) Close() error { return nil }

// after are the disks that a crash may leave: with the names that were synced or
// those that were not, and of each file what was synced, or all, or some more.
func (d *testDisk) after() (out []*testDisk) {
	for _, names := range []map[string]*inode{d.names, d.files} {
		for _, lost := range []func(f *inode) []byte{
			func(f *inode) []byte { return f.synced },
			func(f *inode) []byte { return f.content },
			func(f *inode) []byte { return f.content[:len(f.synced)+(len(f.content)-len(f.synced))/3] },
			func(f *inode) []byte { // the length is there, the content is not
				return append(bytes.Clone(f.synced), make([]byte, len(f.content)-len(f.synced))...)
			},
		} {
			next := newDisk()
			for name, f := range names {
				content := lost(f)
				next.files[name] = &inode{content, content}
			}
			next.names = maps.Clone(next.files)
			out = append(out, next)
		}
	}
	return out
}
