// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// scratch is the folder for temporary files of one test run. It goes away with
// the run, also when a test was killed before it could clean up.
type scratch struct{ dir string }

// newScratch makes the folder. Its path is short because unix sockets below it
// have 108 bytes.
func newScratch() (*scratch, error) {
	dir, err := os.MkdirTemp("", "t-")
	if err != nil {
		return nil, fmt.Errorf("there is no folder for temporary files: %w", err)
	}
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil { // as /tmp: tests run parts as other users
		return nil, err
	}
	return &scratch{dir}, nil
}

// left lists what tests left behind.
func (s *scratch) left() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// remove deletes the folder, unless something is mounted below: then it would
// delete what is mounted.
func (s *scratch) remove() error {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("%s stays, because the mounts cannot be read: %w", s.dir, err)
	}
	if mounts := mountsBelow(string(data), s.dir); len(mounts) > 0 {
		return fmt.Errorf("a test left mounts: %s; unmount them, then remove %s", strings.Join(mounts, ", "), s.dir)
	}
	return os.RemoveAll(s.dir)
}

// mountsBelow finds mount points at or below dir in the text of mountinfo,
// proc(5), where blanks in paths are octal.
func mountsBelow(mountinfo, dir string) []string {
	var out []string
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		point := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\134`, `\`).Replace(fields[4])
		if point == dir || strings.HasPrefix(point, filepath.Clean(dir)+"/") {
			out = append(out, point)
		}
	}
	return out
}
