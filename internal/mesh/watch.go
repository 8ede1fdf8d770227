// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

// fileStamp tells a file from another one, or from itself before; following links.
type fileStamp struct {
	size int64
	at   time.Time
	real string
}

// fileStamps are those of files by their names.
type fileStamps map[string]fileStamp

func stampsOf(files []string) fileStamps {
	out := fileStamps{}
	out.add(files)
	return out
}

// add takes the stamps of those files that have none yet.
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

// followPolicies loads the policy between peers when one of its files, or of the lists that
// they name, has changed, until ctx ends. Folders are watched, because editors and
// Kubernetes replace a file by renaming. What no folder tells of is seen by the files
// themselves, a moment later.
func (m *Mesh) followPolicies(ctx context.Context) error {
	p := m.parts.Load()
	r, before := p.routing, p.policy
	watched := map[string]bool{}
	var events chan fsnotify.Event
	var errs chan error
	fs, err := fsnotify.NewWatcher()
	if err == nil {
		defer fs.Close()
		events, errs = fs.Events, fs.Errors
	} else {
		m.log.Warn("the policy's files are looked at again and again: their folders cannot be watched", telemetry.AttrReason, err)
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
		case <-m.files:
		case <-settle.C:
		case <-again.C:
		}
		now := stampsOf(r.Governing())
		if maps.Equal(now, before) {
			continue
		}
		m.loadPolicy()
		before = now
		before.add(r.Governing())
	}
}

// loadPolicy reads the policy again.
func (m *Mesh) loadPolicy() {
	m.reading.Lock()
	defer m.reading.Unlock()
	m.mu.Lock()
	files := m.set.Policies
	m.mu.Unlock()
	if err := m.parts.Load().routing.Reload(files, m.attach.Cluster()); err != nil {
		f := fault.From(err)
		m.log.Error("the new policy between peers is refused; the last good one stays", telemetry.AttrCode, f.Code, telemetry.AttrReason, f.Explain())
		return
	}
	m.log.Info("policy between peers loaded", "files", files)
}
