// SPDX-License-Identifier: Apache-2.0

package policyfile

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

// watcher notices changes of the policy's files. It watches folders, because
// editors and Kubernetes replace a file by renaming, and folders of folders,
// because those are replaced too.
//
//	event ──► a file that is known, or could be a policy ──► it is read
//	     └──► anything that paths may lead through ────────► every stamp is looked at
type watcher struct {
	of      *Files
	fs      *fsnotify.Watcher
	watched map[string]string // folders, to what they are without links
	missing map[string]bool   // folders that could not be watched
	named   map[string]bool   // files of the events since the last load
	all     bool              // look at every file
}

// Watch loads changed policies until ctx ends.
func (p *Files) Watch(ctx context.Context) error {
	for len(p.paths()) == 0 { // an inotify instance is not taken in vain
		select {
		case <-ctx.Done():
			return nil
		case <-p.moved:
		}
	}
	w := watcher{of: p, watched: map[string]string{}, missing: map[string]bool{}, named: map[string]bool{}, all: true}
	var err error
	if w.fs, err = fsnotify.NewWatcher(); err != nil {
		p.Log.Warn("changes of the policy are noticed on SIGHUP only", telemetry.AttrReason, err)
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
			// Who writes without an end is not waited for.
			settle.Reset(max(0, min(limit.ConfigDebounce, time.Until(first.Add(policySettle)))))
			continue
		case err := <-w.fs.Errors: // events were lost
			p.Log.Warn("the policy's folders are looked at anew", telemetry.AttrReason, err)
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
func (w *watcher) note(event fsnotify.Event) bool {
	path := filepath.Clean(event.Name)
	files, all := w.of.affected(w.of.paths(), path)
	if w.watched[path] != "" && event.Has(fsnotify.Remove|fsnotify.Rename) {
		all = true // a folder went, and the watch of it
	}
	if event.Op == fsnotify.Chmod { // a file may be readable now; what was read is the same
		files = slices.DeleteFunc(files, func(f string) bool { return !w.of.isRefused(f) })
	}
	for _, f := range files {
		w.named[f] = true
	}
	w.all = w.all || all
	return all || len(files) > 0
}

// load has what was noticed read, and watches where that leads.
func (w *watcher) load() {
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
		for f := range w.watched { // a folder may be another one by now
			w.fs.Remove(f)
		}
		clear(w.watched)
		clear(w.missing)
		w.watch(w.folders())
		w.tell(w.of.Load())
		w.all = w.watch(w.folders())
	}
}

func (w *watcher) folders() []string { return w.of.folders(w.of.paths()) }

// watch adds folders, and says whether one of them is new and watched now.
func (w *watcher) watch(folders []string) (added bool) {
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
				w.of.Log.Debug("a folder of the policy cannot be watched yet", telemetry.AttrReason, err)
			}
			w.missing[f] = true
			continue
		}
		delete(w.missing, f)
		w.watched[f], added = real, true
	}
	return added
}

func (w *watcher) watches(real string) bool {
	for _, r := range w.watched {
		if r == real {
			return true
		}
	}
	return false
}

// retry tries the folders again that could not be watched.
func (w *watcher) retry() bool {
	if len(w.missing) == 0 || !w.watch(slices.Collect(maps.Keys(w.missing))) {
		return false
	}
	w.all = true
	return true
}

func (w *watcher) tell(err error) {
	if err != nil {
		w.of.LogRefused(err, "")
	}
}
