// SPDX-License-Identifier: Apache-2.0

package conf

import (
	"net"
	"strconv"
	"time"
)

// Report takes one problem with the field at path, as Document.Add does.
type Report func(path, format string, args ...any)

// Want reports a field that has to say one thing and does not.
func (d *Document) Want(path, want, got string) {
	if got != want {
		d.Add(path, "%q is expected", want)
	}
}

// Listener reports what is no address to listen at. Port 0 is one: the kernel then
// chooses.
func (add Report) Listener(path, address string) {
	if _, port, err := net.SplitHostPort(address); err != nil || !IsPort(port) {
		add(path, "%q is not host:port or :port", address)
	}
}

// IsPort accepts 0, too.
func IsPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && (n > 0 || s == "0")
}

// Positive gives otherwise for 0, and reports what is less.
func (add Report) Positive(path string, d, otherwise time.Duration) time.Duration {
	if d < 0 {
		add(path, "%v is negative", d)
	}
	if d <= 0 {
		return otherwise
	}
	return d
}

// Log reports a format and a level that no logger has.
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

// Settings are what a changed file may not change, and whether it is the same.
type Settings []struct {
	Name string
	Same bool
}

// Changed names those that are not.
func (s Settings) Changed() (out []string) {
	for _, one := range s {
		if !one.Same {
			out = append(out, one.Name)
		}
	}
	return out
}
