// SPDX-License-Identifier: Apache-2.0

package policyfile

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/authz"
	"github.com/tombolo-io/tombolo/internal/base/admin"
)

// Options are what policies need.
type Options struct {
	Paths    func() []string // files and folders, as they are configured now
	Table    *authz.Table    // where the policy is put into force
	Log      *slog.Logger
	Now      func() time.Time
	Reloaded func(error) // counts a change, nil, or what was refused
}

// Files is what is known about the files of the policy.
type Files struct {
	Options

	mu      sync.Mutex                     // one reading at a time
	read    reader                         // of the file system
	seen    map[string]reading             // by file: of its last good content
	total   int                            // rules of all of them
	last    map[string]reading             // by file: of the last reading, good or not
	readFor map[string][]string            // the files that a path is read for: itself, lists, where links lead
	refused map[string]admin.PolicyRefusal // by file, until it is good again

	moved  chan struct{} // the paths have changed: the watcher shall look at them
	status atomic.Pointer[admin.PolicyStatus]
}

func New(o Options) *Files {
	return &Files{
		Options: o, read: readBounded, seen: map[string]reading{}, last: map[string]reading{},
		readFor: map[string][]string{}, refused: map[string]admin.PolicyRefusal{}, moved: make(chan struct{}, 1),
	}
}

func (p *Files) paths() []string { return p.Paths() }

// Moved says that the paths may have changed: Watch looks at them.
func (p *Files) Moved() {
	select {
	case p.moved <- struct{}{}:
	default: // it will
	}
}

// reading is what was read of one file.
type reading struct {
	stamps []fileStamp // of the file and of its lists
	rules  int
}

// fileStamp tells whether a file has changed. A file that is written within one tick of
// the file system's clock keeps its time; its size or number seldom stays then.
type fileStamp struct {
	path string
	size int64
	at   time.Time
	real string // where links lead: a ConfigMap is replaced by moving one
}

func stampOf(path string) fileStamp {
	s := fileStamp{path: path, size: -1, real: canonical(path)}
	if info, err := os.Stat(path); err == nil {
		s.size, s.at = info.Size(), info.ModTime()
		if real, err := filepath.EvalSymlinks(path); err == nil {
			s.real = real
		}
	}
	return s
}

// canonical is path in a folder without links, so that two spellings of it are one.
func canonical(path string) string {
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(dir, filepath.Base(path))
	}
	return path
}

func (f reading) fresh() bool {
	return len(f.stamps) > 0 && !slices.ContainsFunc(f.stamps, func(s fileStamp) bool { return stampOf(s.path) != s })
}

// paths are those by which a change of the file or of its lists shows.
func (f reading) paths() []string {
	out := make([]string, 0, 2*len(f.stamps))
	for _, s := range f.stamps {
		if out = append(out, s.path); s.real != s.path {
			out = append(out, s.real)
		}
	}
	return out
}

// look lists the files to read, and those that are gone.
func (p *Files) look(paths, named []string) (files, gone []string, err error) {
	if len(named) == 0 {
		if files, err = List(paths); err != nil {
			return nil, nil, err
		}
		for file := range p.last {
			if _, there := slices.BinarySearch(files, file); !there {
				gone = append(gone, file)
			}
		}
		return files, gone, nil
	}
	for _, file := range named {
		// Its folder, or the file itself if the configuration names it, has to be there.
		i := slices.IndexFunc(paths, func(p string) bool {
			return filepath.Clean(p) == file || filepath.Clean(p) == filepath.Dir(file)
		})
		if i < 0 {
			continue // it was of paths that another reading has left
		}
		if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
			files = append(files, file)
			continue
		}
		if _, err := os.Stat(paths[i]); err != nil { // listing it would cost what all its files cost
			return nil, nil, unreadable(paths[i], err)
		}
		gone = append(gone, file)
	}
	return files, gone, nil
}

// remember remembers what a reading of file looked at.
func (p *Files) remember(file string, f reading) {
	p.unlink(file)
	p.last[file] = f
	for _, path := range f.paths() {
		if !slices.Contains(p.readFor[path], file) {
			p.readFor[path] = append(p.readFor[path], file)
		}
	}
}

func (p *Files) unlink(file string) {
	for _, path := range p.last[file].paths() {
		p.readFor[path] = slices.DeleteFunc(p.readFor[path], func(f string) bool { return f == file })
		if len(p.readFor[path]) == 0 {
			delete(p.readFor, path)
		}
	}
}

// accept puts a good reading in the place of the one before.
func (p *Files) accept(file string, f reading) {
	p.total += f.rules - p.seen[file].rules
	p.seen[file] = f
	delete(p.refused, file)
}

func (p *Files) forget(file string) {
	p.unlink(file)
	p.total -= p.seen[file].rules
	delete(p.seen, file)
	delete(p.last, file)
	delete(p.refused, file)
}

// publish says for the metrics and the status what is in force.
func (p *Files) publish() {
	st := &admin.PolicyStatus{Files: len(p.seen), Rules: p.total}
	for _, r := range p.refused {
		if st.Refusal == nil || r.At.After(st.Refusal.At) || r.At.Equal(st.Refusal.At) && r.File < st.Refusal.File {
			st.Refusal = &r
		}
	}
	p.status.Store(st)
}

// Status is safe to call while files are read.
func (p *Files) Status() admin.PolicyStatus {
	if st := p.status.Load(); st != nil {
		return *st
	}
	return admin.PolicyStatus{}
}

// affected lists the policy files that an event at path may have changed. all says
// that only a look at every file tells.
//
// A plain file that is neither known nor could be a policy is somebody's temporary
// file; a link or a folder may be what known paths lead through, as a ConfigMap's
// ..data.
func (p *Files) affected(paths []string, path string) (files []string, all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	real := canonical(path)
	for _, same := range []string{path, real} {
		if files = slices.Clone(p.readFor[same]); len(files) > 0 {
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

// isRefused says whether the last reading of a file was refused.
func (p *Files) isRefused(file string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, bad := p.refused[file]
	return bad
}

// folders lists where something may change that paths and the files lead to, those
// of paths first, so that events have the names by which the files are known.
func (p *Files) folders(paths []string) (out []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, path := range paths {
		path = filepath.Clean(path)
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			out = append(out, path)
		}
		out = append(out, filepath.Dir(path))
	}
	known := map[string]bool{}
	for path := range p.readFor {
		if dir := filepath.Dir(path); !known[dir] {
			known[dir], out = true, append(out, dir)
		}
	}
	return out
}

// foldersOf is folders for some files alone.
func (p *Files) foldersOf(files []string) (out []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, file := range files {
		for _, path := range p.last[file].paths() {
			out = append(out, filepath.Dir(path))
		}
	}
	return out
}
