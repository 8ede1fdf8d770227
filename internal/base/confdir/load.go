// SPDX-License-Identifier: Apache-2.0

package confdir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Judge reports what is wrong with files that other paths than those in force lead to. They have no
// last good content that could stay, and what they deny must not be open meanwhile. A known file is
// judged when it is read again.
func (p *Files[T]) Judge(paths []string) error {
	if slices.Equal(paths, p.Paths()) {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	files, err := List(paths, p.Words)
	errs := []error{err}
	for _, file := range files {
		if _, known := p.files[file]; !known {
			_, err := p.Read(file, p.Disk)
			errs = append(errs, err)
		}
	}
	if p.Some && len(paths) > 0 && len(files) == 0 && err == nil {
		errs = append(errs, p.Words.none(paths))
	}
	return errors.Join(errs...)
}

// Load reads what has changed and applies it: of all files, or only of those that are named. A file
// with mistakes keeps its last good content, and the others are applied. The error names every mistake.
func (p *Files[T]) Load(named ...string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	paths := p.Paths() // under the lock, so that no other reading puts older paths into force
	defer p.publish()
	if p.owed {
		named = nil
	}
	files, gone, err := p.look(paths, named)
	if err != nil { // a folder that is gone for a moment must not open or close anything
		p.Reloaded(err)
		return err
	}
	refused := map[string]refusal{}
	for whole := len(named) == 0; ; whole = false {
		change := Change[T]{Paths: paths, Good: map[string]T{}, Gone: gone}
		for _, file := range files {
			if whole && !p.isRefusedLocked(file) && p.files[file].good.fresh() {
				continue // a named file was written, whatever its stamp says
			}
			content, r, err := p.readFile(file)
			p.remember(file, r)
			if err != nil {
				refused[file] = p.refuse(file, err)
				continue
			}
			change.Good[file] = content
		}
		if p.owed = p.Some && len(paths) > 0 && len(change.Good) == 0 && !p.remains(gone); p.owed {
			if len(refused) > 0 {
				return refusalsOf(refused)
			}
			err := p.Words.none(paths)
			p.Reloaded(err)
			return err
		}
		for _, file := range gone {
			p.forget(file)
		}
		outcome := p.Apply(change)
		for file := range change.Good {
			if err := outcome.Refused[file]; err != nil {
				refused[file] = p.refuse(file, err)
				continue
			}
			p.accept(file)
			delete(refused, file)
		}
		if files, gone = outcome.Again, nil; len(files) == 0 {
			return refusalsOf(refused)
		}
	}
}

// remains reports whether a good file is in force that has not gone.
func (p *Files[T]) remains(gone []string) bool {
	left := p.good
	for _, file := range gone {
		if p.files[file].good != nil {
			left--
		}
	}
	return left > 0
}

// readFile reads one file, with the stamps of all that it reads.
func (p *Files[T]) readFile(file string) (content T, r reading, err error) {
	r = reading{stampOf(file)} // before it is read
	content, err = p.Read(file, func(path string, most int64) ([]byte, error) {
		if clean := filepath.Clean(path); clean != file {
			r = append(r, stampOf(clean))
		}
		return p.Disk(path, most)
	})
	return content, r, err
}

// look lists the files to read, and those that are gone.
func (p *Files[T]) look(paths, named []string) (files, gone []string, err error) {
	if len(named) == 0 {
		if files, err = List(paths, p.Words); err != nil {
			return nil, nil, err
		}
		for file := range p.files {
			if _, there := slices.BinarySearch(files, file); !there {
				gone = append(gone, file)
			}
		}
		slices.Sort(gone)
		return files, gone, nil
	}
	for _, file := range named {
		// Its folder, or the file itself if the configuration names it, has to be there.
		i := slices.IndexFunc(paths, func(p string) bool {
			return filepath.Clean(p) == file || filepath.Clean(p) == filepath.Dir(file)
		})
		if i < 0 {
			continue // it belongs to paths that are no longer configured
		}
		if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
			files = append(files, file)
			continue
		}
		if _, err := os.Stat(paths[i]); err != nil { // to list it would cost as much as all its files
			return nil, nil, p.Words.missing(paths[i], err)
		}
		gone = append(gone, file)
	}
	return files, gone, nil
}
