// SPDX-License-Identifier: Apache-2.0

package confdir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// List lists the files that paths name: files themselves, and in folders what ends in .yaml or .yml
// and is not hidden, without subfolders.
func List(paths []string, words Words) ([]string, error) {
	var out []string
	var errs []error
	for _, p := range paths {
		info, err := os.Stat(p)
		if err == nil && !info.IsDir() {
			out = append(out, filepath.Clean(p))
			continue
		}
		var entries []fs.DirEntry
		if err == nil {
			entries, err = os.ReadDir(p)
		}
		if err != nil {
			errs = append(errs, words.missing(p, err))
			continue
		}
		for _, e := range entries {
			if isName(e.Name()) {
				out = append(out, filepath.Join(p, e.Name()))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out), errors.Join(errs...)
}

// isName reports whether an entry of a folder with this name is one of the files.
func isName(name string) bool {
	ext := filepath.Ext(name)
	return !strings.HasPrefix(name, ".") && (ext == ".yaml" || ext == ".yml")
}

// stamp shows whether a file has changed. A file that is written within one tick of the file
// system's clock keeps its time; its size or number seldom stays then.
type stamp struct {
	path string
	size int64
	at   time.Time
	real string // where links lead: a ConfigMap is replaced by moving one
}

func stampOf(path string) stamp {
	s := stamp{path: path, size: -1}
	info, err := os.Stat(path)
	if err == nil {
		s.size, s.at = info.Size(), info.ModTime()
		s.real, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		s.real = canonical(path)
	}
	if s.real == path {
		s.real = path // one string in memory
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

// reading is what one reading of a file looked at: the file, and those that it names.
type reading []stamp

func (r reading) fresh() bool {
	return len(r) > 0 && !slices.ContainsFunc(r, func(s stamp) bool { return stampOf(s.path) != s })
}

// paths are those at which a change of these files shows.
func (r reading) paths() []string {
	out := make([]string, 0, 2*len(r))
	for _, s := range r {
		if out = append(out, s.path); s.real != s.path {
			out = append(out, s.real)
		}
	}
	return out
}
