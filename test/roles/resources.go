// SPDX-License-Identifier: Apache-2.0

package roles

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// CPUTime is the user and system time of this process so far.
func CPUTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err) // it has no cause that a run could meet
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// ThreadsTime is what the live threads of a process have worked so far (schedstat, proc_pid(5)).
func ThreadsTime(pid int) (sum time.Duration, err error) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid)) // the pattern is good
	if len(files) == 0 {
		return 0, fmt.Errorf("process %d has no threads that can be seen", pid)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // a thread that has just ended
		}
		first, _, _ := strings.Cut(string(data), " ")
		n, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(n)
	}
	return sum, nil
}

// BusyTime is what all processors of the machine have worked so far, by the
// kernel's count in hundredths of a second; 0 where it cannot be read.
func BusyTime() time.Duration {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(data), "\n")
	return ParseBusy(first)
}

// ParseBusy reads the first line of /proc/stat (proc_stat(5)): all but idle and iowait.
func ParseBusy(line string) (sum time.Duration) {
	const tick = time.Second / 100
	fields := strings.Fields(line)
	for i, field := range fields {
		if i == 0 || i == 4 || i == 5 || i > 8 {
			continue
		}
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0
		}
		sum += time.Duration(n) * tick
	}
	return sum
}

// Resident is the memory of a process that lies in the machine's, in bytes
// (VmRSS, proc_pid_status(5)).
func Resident(pid int) (int64, error) {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, err
	}
	return parseResident(string(data))
}

func parseResident(status string) (int64, error) {
	for line := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("the status has no VmRSS")
}

// Descriptors counts the open files of a process.
func Descriptors(pid int) (int, error) {
	dir, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "fd"))
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	return len(names), err
}
