// SPDX-License-Identifier: Apache-2.0

package confdir

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Files is what is known about the files.
type Files[T any] struct {
	Options[T]

	mu      sync.Mutex          // one reading at a time
	files   map[string]entry    // that were read
	good    int                 // of them with good content
	leads   map[string][]string // from other paths that a file was read at: lists, where links lead
	refused map[string]Refusal  // by file, until it is good again
	altered bool                // refused differs from what is published
	owed    bool                // files went and are in force: the next reading is of all
	changed time.Time           // of what is in force

	moved  chan struct{} // the paths have changed: the watcher compares them
	status atomic.Pointer[Status]
}

// entry is one file.
type entry struct {
	good reading // of its last good content; nil: it has none
	last reading // the last one, good or not
}

// New makes Files that have read nothing yet.
func New[T any](o Options[T]) *Files[T] {
	return &Files[T]{
		Options: o, files: map[string]entry{}, leads: map[string][]string{},
		refused: map[string]Refusal{}, moved: make(chan struct{}, 1),
	}
}

// Moved says that the paths may have changed: Watch looks at them.
func (p *Files[T]) Moved() {
	select {
	case p.moved <- struct{}{}:
	default: // it will
	}
}

// remember stores what a reading of file looked at.
func (p *Files[T]) remember(file string, r reading) {
	p.unlink(file)
	p.files[file] = entry{p.files[file].good, r}
	for _, path := range r.paths() {
		if path != file && !slices.Contains(p.leads[path], file) {
			p.leads[path] = append(p.leads[path], file)
		}
	}
}

func (p *Files[T]) unlink(file string) {
	for _, path := range p.files[file].last.paths() {
		p.leads[path] = slices.DeleteFunc(p.leads[path], func(f string) bool { return f == file })
		if len(p.leads[path]) == 0 {
			delete(p.leads, path)
		}
	}
}

// accept puts the last reading in the place of the last good one.
func (p *Files[T]) accept(file string) {
	e := p.files[file]
	if e.good == nil {
		p.good++
	}
	p.files[file], p.changed = entry{e.last, e.last}, p.Now()
	p.unrefuse(file)
}

func (p *Files[T]) refuse(file string, err error) refusal {
	known := p.files[file].good != nil
	reason := oneLine(err)
	before, bad := p.refused[file]
	p.refused[file] = Refusal{File: file, Reason: reason, At: p.Now().UTC(), New: !known}
	p.altered = true
	p.Reloaded(err)
	return refusal{err, known, bad && before.Reason == reason}
}

func (p *Files[T]) unrefuse(file string) {
	if _, bad := p.refused[file]; bad {
		delete(p.refused, file)
		p.altered = true
	}
}

func (p *Files[T]) forget(file string) {
	p.unlink(file)
	if p.files[file].good != nil {
		p.good--
		p.changed = p.Now()
	}
	delete(p.files, file)
	p.unrefuse(file)
}

// publish makes the status anew, with a look at the refusals only if they are others.
func (p *Files[T]) publish() {
	st := &Status{Files: p.good, Refused: len(p.refused), Refusals: p.Status().Refusals, Changed: p.changed}
	if p.altered {
		st.Refusals, p.altered = newest(p.refused), false
	}
	p.status.Store(st)
}

// Status may be called while files are read. Nobody may change its list.
func (p *Files[T]) Status() Status {
	if st := p.status.Load(); st != nil {
		return *st
	}
	return Status{}
}

// affected lists the files that an event at path may have changed. all says that only a look at
// every file shows them.
//
// A plain file that is neither known nor has such a name is another program's temporary file; a
// link or a folder may be what known paths lead through, such as ..data of a ConfigMap.
func (p *Files[T]) affected(paths []string, path string) (files []string, all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	real := canonical(path)
	for _, same := range []string{path, real} {
		files = slices.Clone(p.leads[same])
		if _, known := p.files[same]; known {
			files = append(files, same)
		}
		if len(files) > 0 {
			return files, false
		}
	}
	for _, configured := range paths {
		configured = filepath.Clean(configured)
		if configured == path || canonical(configured) == real {
			return nil, true
		}
		if base := filepath.Base(path); isName(base) && canonical(filepath.Join(configured, base)) == real {
			return []string{filepath.Join(configured, base)}, false
		}
	}
	info, err := os.Lstat(path)
	return nil, err == nil && (info.IsDir() || info.Mode()&fs.ModeSymlink != 0)
}

// isRefused reports whether the last reading of a file was refused.
func (p *Files[T]) isRefused(file string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.isRefusedLocked(file)
}

func (p *Files[T]) isRefusedLocked(file string) bool {
	_, bad := p.refused[file]
	return bad
}

// folders lists where a change of paths and files may show, those of paths first, so that events
// have the names by which the files are known.
func (p *Files[T]) folders(paths []string) (out []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := map[string]bool{}
	add := func(dir string) {
		if !known[dir] {
			known[dir], out = true, append(out, dir)
		}
	}
	for _, path := range paths {
		path = filepath.Clean(path)
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			add(path)
		}
		add(filepath.Dir(path))
	}
	for path := range p.files {
		add(filepath.Dir(path))
	}
	for path := range p.leads {
		add(filepath.Dir(path))
	}
	return out
}

// foldersOf is folders of some files alone.
func (p *Files[T]) foldersOf(files []string) (out []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, file := range files {
		for _, path := range p.files[file].last.paths() {
			out = append(out, filepath.Dir(path))
		}
	}
	return out
}
