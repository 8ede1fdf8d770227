// SPDX-License-Identifier: Apache-2.0

package confdir

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

// watcher notices changes of the files. It watches folders, because editors and Kubernetes
// replace a file by renaming, and the parents of folders, because those are replaced too.
//
//	event ──► a file that is known, or has such a name ──► it is read
//	     └──► anything that paths may lead through ──────► every stamp is compared
type watcher[T any] struct {
	of      *Files[T]
	fs      *fsnotify.Watcher
	watched map[string]string // folders, to what they are without links
	missing map[string]bool   // folders that could not be watched
	named   map[string]bool   // files of the events since the last load
	all     bool              // look at every file
}

// Watch loads changed files until ctx ends.
func (p *Files[T]) Watch(ctx context.Context) error {
	for len(p.Paths()) == 0 { // without need, no inotify instance is taken
		select {
		case <-ctx.Done():
			return nil
		case <-p.moved:
		}
	}
	w := watcher[T]{of: p, watched: map[string]string{}, missing: map[string]bool{}, named: map[string]bool{}, all: true}
	var err error
	if w.fs, err = fsnotify.NewWatcher(); err != nil {
		p.Log.Warn("changes of the "+p.Words.All+" are noticed on SIGHUP only", telemetry.AttrReason, err)
		return nil
	}
	defer w.fs.Close()
	settle, again := time.NewTimer(0), time.NewTicker(limit.PolicyFolders)
	defer settle.Stop()
	defer again.Stop()
	var first time.Time // of the events that wait
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.moved:
			w.all = true
		case <-again.C:
			if !w.retry() {
				continue
			}
		case event := <-w.fs.Events:
			if !w.note(event) {
				continue
			}
			if first.IsZero() {
				first = time.Now()
			}
			// The wait ends even if somebody writes without an end.
			settle.Reset(max(0, min(limit.ConfigDebounce, time.Until(first.Add(settleMost)))))
			continue
		case err := <-w.fs.Errors: // events were lost
			p.Log.Warn("the folders of the "+p.Words.All+" are looked at again", telemetry.AttrReason, err)
			w.all = true
			settle.Reset(limit.ConfigDebounce)
			continue
		case <-settle.C:
		}
		first = time.Time{}
		w.load()
	}
}

// note takes an event and says whether it matters.
func (w *watcher[T]) note(event fsnotify.Event) bool {
	path := filepath.Clean(event.Name)
	files, all := w.of.affected(w.of.Paths(), path)
	if w.watched[path] != "" && event.Has(fsnotify.Remove|fsnotify.Rename) {
		all = true // the kernel ended the watch with the folder
	}
	if event.Op == fsnotify.Chmod { // only a file that was refused may be readable now
		files = slices.DeleteFunc(files, func(f string) bool { return !w.of.isRefused(f) })
	}
	for _, f := range files {
		w.named[f] = true
	}
	w.all = w.all || all
	return all || len(files) > 0
}

// load reads what was noticed, and watches the folders that it leads to.
func (w *watcher[T]) load() {
	if !w.all {
		named := slices.Sorted(maps.Keys(w.named))
		clear(w.named)
		if len(named) == 0 {
			return
		}
		w.tell(w.of.Load(named...))
		// What changed in a folder before it was watched is seen by its stamp.
		w.all = w.watch(w.of.foldersOf(named))
	}
	for w.all {
		w.all = false
		clear(w.named)
		for f := range w.watched { // the path may lead to another folder now
			w.fs.Remove(f)
		}
		clear(w.watched)
		clear(w.missing)
		w.watch(w.folders())
		w.tell(fresh(w.of.Load())) // it reads refused files again
		w.all = w.watch(w.folders())
	}
}

func (w *watcher[T]) folders() []string { return w.of.folders(w.of.Paths()) }

// watch adds folders, and says whether one of them is new and watched now.
func (w *watcher[T]) watch(folders []string) (added bool) {
	for _, f := range folders {
		real, err := filepath.EvalSymlinks(f)
		if err == nil && w.watches(real) {
			continue // the kernel would give the events one of the names
		}
		if err == nil {
			err = w.fs.Add(f)
		}
		if err != nil {
			if !w.missing[f] {
				w.of.Log.Debug("a folder of the "+w.of.Words.All+" cannot be watched yet", telemetry.AttrReason, err)
			}
			w.missing[f] = true
			continue
		}
		delete(w.missing, f)
		w.watched[f], added = real, true
	}
	return added
}

func (w *watcher[T]) watches(real string) bool {
	for _, r := range w.watched {
		if r == real {
			return true
		}
	}
	return false
}

// retry tries the folders again that could not be watched.
func (w *watcher[T]) retry() bool {
	if len(w.missing) == 0 || !w.watch(slices.Collect(maps.Keys(w.missing))) {
		return false
	}
	w.all = true
	return true
}

func (w *watcher[T]) tell(err error) {
	if err != nil {
		w.of.LogRefused(err, "")
	}
}
