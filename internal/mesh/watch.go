// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

// fileStamp identifies a version of a file; links are followed.
type fileStamp struct {
	size int64
	at   time.Time
	real string
}

// fileStamps are the stamps of files, by name.
type fileStamps map[string]fileStamp

func stampsOf(files []string) fileStamps {
	out := fileStamps{}
	out.add(files)
	return out
}

// add takes the stamps of files that have none yet.
func (f fileStamps) add(files []string) {
	for _, file := range files {
		if _, known := f[file]; known {
			continue
		}
		s := fileStamp{size: -1} // it is not there
		if info, err := os.Stat(file); err == nil {
			s.size, s.at = info.Size(), info.ModTime()
			s.real, _ = filepath.EvalSymlinks(file)
		}
		f[file] = s
	}
}

// fileWatch reports when files change.
type fileWatch struct {
	log     *slog.Logger
	before  fileStamps      // as they were read
	files   func() []string // to watch
	other   <-chan struct{} // files gives others
	changed func()
}

// run calls changed when a file has changed, until ctx ends. Folders are watched, because editors
// and Kubernetes replace a file by renaming. What folders do not show is found by a look at the
// files themselves, a moment later.
func (w fileWatch) run(ctx context.Context) error {
	before := w.before
	watched := map[string]bool{}
	var events chan fsnotify.Event
	var errs chan error
	fs, err := fsnotify.NewWatcher()
	if err == nil {
		defer fs.Close()
		events, errs = fs.Events, fs.Errors
	} else {
		w.log.Warn("the policy's files are looked at again and again: their folders cannot be watched",
			telemetry.AttrReason, err)
	}
	settle, again := time.NewTimer(limit.ConfigDebounce), time.NewTicker(limit.PolicyFolders)
	defer settle.Stop()
	defer again.Stop()
	for {
		if fs != nil {
			for file := range before {
				if folder := filepath.Dir(file); !watched[folder] {
					watched[folder] = fs.Add(folder) == nil
				}
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-events:
			settle.Reset(limit.ConfigDebounce)
			continue
		case <-errs: // events were lost
		case <-w.other:
		case <-settle.C:
		case <-again.C:
		}
		now := stampsOf(w.files())
		if maps.Equal(now, before) {
			continue
		}
		w.changed()
		before = now
		before.add(w.files())
	}
}
