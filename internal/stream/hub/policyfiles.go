// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/admin"
)

// policies is what is known of the files of the policy.
type policies struct {
	mu      sync.Mutex                     // one reading at a time
	read    reader                         // of the file system
	seen    map[string]policyFile          // by file: of its last good content
	total   int                            // rules of all of them
	last    map[string]policyFile          // by file: of the last reading, good or not
	users   map[string][]string            // the files that a path is read for: itself, lists, where links lead
	refused map[string]admin.PolicyRefusal // by file, until it is good again

	moved  chan struct{} // the paths have changed: the watcher shall look at them
	status atomic.Pointer[admin.PolicyStatus]
}

func newPolicies() *policies {
	return &policies{
		read: readBounded, seen: map[string]policyFile{}, last: map[string]policyFile{},
		users: map[string][]string{}, refused: map[string]admin.PolicyRefusal{}, moved: make(chan struct{}, 1),
	}
}

// policyFile is what was read of one file.
type policyFile struct {
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

func (f policyFile) fresh() bool {
	return len(f.stamps) > 0 && !slices.ContainsFunc(f.stamps, func(s fileStamp) bool { return stampOf(s.path) != s })
}

// paths are those by which a change of the file or of its lists shows.
func (f policyFile) paths() []string {
	out := make([]string, 0, 2*len(f.stamps))
	for _, s := range f.stamps {
		if out = append(out, s.path); s.real != s.path {
			out = append(out, s.real)
		}
	}
	return out
}

// look lists the files to read, and those that are gone.
func (p *policies) look(paths, named []string) (files, gone []string, err error) {
	if len(named) == 0 {
		if files, err = PolicyFiles(paths); err != nil {
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
		i := slices.IndexFunc(paths, func(p string) bool { return filepath.Clean(p) == file || filepath.Clean(p) == filepath.Dir(file) })
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

// uses remembers what a reading of file looked at.
func (p *policies) uses(file string, f policyFile) {
	p.unuse(file)
	p.last[file] = f
	for _, path := range f.paths() {
		if !slices.Contains(p.users[path], file) {
			p.users[path] = append(p.users[path], file)
		}
	}
}

func (p *policies) unuse(file string) {
	for _, path := range p.last[file].paths() {
		if p.users[path] = slices.DeleteFunc(p.users[path], func(f string) bool { return f == file }); len(p.users[path]) == 0 {
			delete(p.users, path)
		}
	}
}

// take puts a good reading in the place of the one before.
func (p *policies) take(file string, f policyFile) {
	p.total += f.rules - p.seen[file].rules
	p.seen[file] = f
	delete(p.refused, file)
}

func (p *policies) forget(file string) {
	p.unuse(file)
	p.total -= p.seen[file].rules
	delete(p.seen, file)
	delete(p.last, file)
	delete(p.refused, file)
}

// count says for the metrics and the status what is in force.
func (p *policies) count() {
	st := &admin.PolicyStatus{Files: len(p.seen), Rules: p.total}
	for _, r := range p.refused {
		if st.Refusal == nil || r.At.After(st.Refusal.At) || r.At.Equal(st.Refusal.At) && r.File < st.Refusal.File {
			st.Refusal = &r
		}
	}
	p.status.Store(st)
}

// inForce is safe to call while files are read.
func (p *policies) inForce() admin.PolicyStatus {
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
func (p *policies) affected(paths []string, path string) (files []string, all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	real := canonical(path)
	for _, same := range []string{path, real} {
		if files = slices.Clone(p.users[same]); len(files) > 0 {
			return files, false
		}
	}
	for _, configured := range paths {
		configured = filepath.Clean(configured)
		if configured == path || canonical(configured) == real {
			return nil, true
		}
		if base := filepath.Base(path); isPolicyName(base) && canonical(filepath.Join(configured, base)) == real {
			return []string{filepath.Join(configured, base)}, false
		}
	}
	info, err := os.Lstat(path)
	return nil, err == nil && (info.IsDir() || info.Mode()&fs.ModeSymlink != 0)
}

// isRefused says whether the last reading of a file was refused.
func (p *policies) isRefused(file string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, bad := p.refused[file]
	return bad
}

// folders lists where something may change that paths and the files lead to, those
// of paths first, so that events have the names by which the files are known.
func (p *policies) folders(paths []string) (out []string) {
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
	for path := range p.users {
		if dir := filepath.Dir(path); !known[dir] {
			known[dir], out = true, append(out, dir)
		}
	}
	return out
}

// foldersOf is folders for some files alone.
func (p *policies) foldersOf(files []string) (out []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, file := range files {
		for _, path := range p.last[file].paths() {
			out = append(out, filepath.Dir(path))
		}
	}
	return out
}
