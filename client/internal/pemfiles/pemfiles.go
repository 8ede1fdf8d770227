// SPDX-License-Identifier: Apache-2.0

// Package pemfiles keeps the TLS configuration that was made of files until they change. It does not know what is in
// them.
package pemfiles

import (
	"crypto/tls"
	"os"
	"sync"
	"time"
)

// Files are some files, as last read. The zero value has read none.
type Files struct {
	mu     sync.Mutex
	seen   []stamp
	config *tls.Config
}

// stamp identifies a version of a file.
type stamp struct {
	size    int64
	changed time.Time
}

// Config returns the configuration that load makes of the files at paths, which do not change. It asks load again once
// a file has changed; while load fails, as when they are being replaced, it returns the last good one.
func (f *Files) Config(load func() (*tls.Config, error), paths ...string) (*tls.Config, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen, same := make([]stamp, len(paths)), len(f.seen) == len(paths)
	for i, path := range paths {
		if info, err := os.Stat(path); err == nil {
			seen[i] = stamp{info.Size(), info.ModTime()}
		}
		same = same && seen[i] == f.seen[i]
	}
	if f.config != nil && same {
		return f.config, nil
	}
	cfg, err := load()
	if err != nil {
		if f.config != nil {
			return f.config, nil
		}
		return nil, err
	}
	f.seen, f.config = seen, cfg
	return cfg, nil
}
