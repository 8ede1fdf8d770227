// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// prefix begins the name of every namespace and directory of a network. Sweep
// looks at nothing that does not begin with it.
const prefix = "tombolo-lab-"

// owner names the process that made a thing, so that another process can tell
// whether it still lives. A pid alone is not enough, it is used again; a pid
// means nothing in another pid namespace (a container that shares /run).
type owner struct {
	pidns uint64
	pid   int
	start uint64 // in clock ticks since boot, field 22 of /proc/PID/stat
}

// self returns the owner that stands for this process.
func self() (owner, error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &st); err != nil {
		return owner{}, fmt.Errorf("reading this process's pid namespace: %w (is /proc mounted?)", err)
	}
	pid := os.Getpid()
	start, _, err := processStart(pid)
	if err != nil {
		return owner{}, fmt.Errorf("reading this process's start time: %w", err)
	}
	return owner{pidns: st.Ino, pid: pid, start: start}, nil
}

// String is the owner as it stands in names, for example "1uljzi4-9ix-2kx4".
func (o owner) String() string {
	return strings.Join([]string{
		strconv.FormatUint(o.pidns, 36),
		strconv.FormatInt(int64(o.pid), 36),
		strconv.FormatUint(o.start, 36),
	}, "-")
}

// parseOwner reads the owner out of the name of a namespace or directory.
func parseOwner(name string) (owner, bool) {
	rest, found := strings.CutPrefix(name, prefix)
	if !found {
		return owner{}, false
	}
	parts := strings.SplitN(rest, "-", 4)
	if len(parts) != 4 || parts[3] == "" {
		return owner{}, false
	}
	pidns, err1 := strconv.ParseUint(parts[0], 36, 64)
	pid, err2 := strconv.ParseInt(parts[1], 36, 32)
	start, err3 := strconv.ParseUint(parts[2], 36, 64)
	if err1 != nil || err2 != nil || err3 != nil || pid <= 0 {
		return owner{}, false
	}
	return owner{pidns: pidns, pid: int(pid), start: start}, true
}

// dead reports whether the owner is certainly gone. An owner of another pid
// namespace cannot be judged from here and counts as alive.
func (o owner) dead(me owner) bool {
	if o.pidns != me.pidns {
		return false
	}
	start, state, err := processStart(o.pid)
	switch {
	case os.IsNotExist(err):
		return true
	case err != nil:
		return false
	case start != o.start:
		return true // the pid belongs to somebody else by now
	}
	return state == "Z" || state == "X" // killed, and not yet waited for
}

// processStart returns the start time and the state letter of a process.
func processStart(pid int) (start uint64, state string, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, "", err
	}
	// The command name stands in parentheses and may itself contain spaces and
	// parentheses, so the fields are counted from the last one.
	text := string(stat)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	const stateField, startField = 0, 19 // fields 3 and 22 of proc(5)
	if len(fields) <= startField {
		return 0, "", fmt.Errorf("/proc/%d/stat has %d fields, want more than %d", pid, len(fields), startField)
	}
	start, err = strconv.ParseUint(fields[startField], 10, 64)
	if err != nil {
		return 0, "", fmt.Errorf("/proc/%d/stat: start time: %w", pid, err)
	}
	return start, fields[stateField], nil
}
