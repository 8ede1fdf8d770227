// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"path/filepath"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
)

// Stdout is the path that means standard output.
const Stdout = "-"

// Config is a valid configuration. Without a path nothing is written.
type Config struct {
	Path     string
	MaxSize  int64
	MaxAge   time.Duration
	Keep     int // rotated files
	Compress bool
	Strict   bool
}

// Configure validates the audit section of a role's configuration. It reports each
// problem through add, with the path of the field.
func Configure(raw v1alpha1.AuditConfig, add func(path, format string, args ...any)) Config {
	c := Config{
		Path: raw.Path, MaxSize: int64(raw.MaxSize), MaxAge: raw.MaxAge.Duration, Keep: auditKept,
		Compress: raw.Compress, Strict: raw.Strict,
	}
	rotated := raw.MaxSize != 0 || raw.MaxAge.Duration != 0 || raw.Keep != nil || raw.Compress
	switch {
	case c.Path == "" && (rotated || raw.Strict && raw.OTLP == (v1alpha1.OTLPConfig{})):
		add("audit.path", "is missing, so nothing would be written: name a file, or - for standard output")
	case c.Path == Stdout && rotated:
		add("audit.path", "standard output (-) is not rotated: leave maxSize, maxAge, keep and compress out")
	case c.Path != "" && c.Path != Stdout && !filepath.IsAbs(c.Path):
		add("audit.path", "%q is neither absolute nor -", c.Path)
	}
	if c.Path != "" && c.Path != Stdout {
		c.Path = filepath.Clean(c.Path)
	}
	switch {
	case c.MaxSize == 0:
		c.MaxSize = auditFile
	case c.MaxSize < auditFileLeast:
		add("audit.maxSize", "%s is less than %s", raw.MaxSize, v1alpha1.Size(auditFileLeast))
	}
	switch {
	case c.MaxAge == 0:
		c.MaxAge = auditAge
	case c.MaxAge < auditAgeLeast:
		add("audit.maxAge", "%v is less than %v", c.MaxAge, auditAgeLeast)
	}
	if raw.Keep != nil {
		if c.Keep = *raw.Keep; c.Keep < 1 || c.Keep > auditKeptMost {
			add("audit.keep", "%d is not between 1 and %d", c.Keep, auditKeptMost)
		}
	}
	return c
}
