// SPDX-License-Identifier: Apache-2.0

package conf

import (
	"net"
	"strconv"
	"time"
)

// Report records a problem with the field at path, like Document.Add.
type Report func(path, format string, args ...any)

// Want reports a field that does not have its only valid value.
func (d *Document) Want(path, want, got string) {
	if got != want {
		d.Add(path, "%q is expected", want)
	}
}

// Listener reports an invalid listen address. Port 0 is valid: the kernel then
// chooses one.
func (add Report) Listener(path, address string) {
	if _, port, err := net.SplitHostPort(address); err != nil || !IsPort(port) {
		add(path, "%q is not host:port or :port", address)
	}
}

// IsPort reports whether s is a port number, 0 included.
func IsPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && (n > 0 || s == "0")
}

// Positive returns d, or otherwise if d is 0, and reports a negative d.
func (add Report) Positive(path string, d, otherwise time.Duration) time.Duration {
	if d < 0 {
		add(path, "%v is negative", d)
	}
	if d <= 0 {
		return otherwise
	}
	return d
}

// Log reports an unknown log format or level.
func (add Report) Log(format, level string) {
	switch format {
	case "", "text", "json":
	default:
		add("log.format", "%q is neither text nor json%s", format, Meant(format, "text", "json"))
	}
	switch level {
	case "", "debug", "info", "warn", "error":
	default:
		add("log.level", "%q is none of debug, info, warn, error%s", level, Meant(level, "debug", "info", "warn", "error"))
	}
}

// Settings are the fields that a reload cannot change, each with whether it is unchanged.
type Settings []struct {
	Name string
	Same bool
}

// Changed names the settings that have changed.
func (s Settings) Changed() (out []string) {
	for _, one := range s {
		if !one.Same {
			out = append(out, one.Name)
		}
	}
	return out
}
