// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tombolo-io/tombolo/test/lab"
)

// Sweep removes what rigs left whose owners died without Close (kill -9, a panic). It touches only what bears
// a lab's name, and only when the owner named in it is dead.
func Sweep(ctx context.Context, progress func(string)) error {
	var errs []error
	for _, path := range traces("") {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if lab.OwnerDead(filepath.Base(path)) {
			progress("removing what a dead rig left: " + path)
			errs = append(errs, removePath(path))
		}
	}
	_, err := lab.Sweep()
	return errors.Join(append(errs, err)...)
}

// traces lists the paths that rigs, or the rig with this id, have outside their directory, and the directory.
func traces(id string) []string {
	var found []string
	name := "tombolo-lab-*-" + word
	if id != "" {
		name = id
	}
	for _, dir := range []string{os.TempDir(), "/tmp", "/run/netns", "/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		for _, pattern := range []string{name, name + "-*"} {
			matches, _ := filepath.Glob(filepath.Join(dir, pattern)) // fails for malformed patterns only
			for _, path := range matches {
				if !slices.Contains(found, path) {
					found = append(found, path)
				}
			}
		}
	}
	return found
}

// remove deletes what a lab does not: the cgroups of a rig whose processes are dead or may be killed, and mounts.
func remove(id string) error {
	var errs []error
	for _, path := range traces(id) {
		errs = append(errs, removePath(path))
	}
	return errors.Join(errs...)
}

func removePath(path string) error {
	switch {
	case strings.HasPrefix(path, "/sys/fs/cgroup/"):
		return removeCgroup(path)
	case strings.HasPrefix(path, "/run/netns/"):
		return nil
	}
	return unmountBelow(path)
}

// removeCgroup deletes a cgroup and all below it. Its last processes may still be on their way out.
func removeCgroup(root string) error {
	deadline := time.Now().Add(10 * time.Second)
	for {
		var dirs []string
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil // what vanished meanwhile is what we want
		})
		slices.Reverse(dirs) // children before parents
		for _, dir := range dirs {
			err = errors.Join(err, ignoreMissing(os.Remove(dir)))
		}
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("remove the cgroup %s: %w", root, err)
		}
		time.Sleep(50 * time.Millisecond) // the kernel gives no event for a cgroup that has become empty on v1
		for _, pid := range cgroupProcs(root) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended since
		}
	}
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// cgroupProcs lists the processes in a cgroup and below it.
func cgroupProcs(root string) []int {
	var pids []int
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error { // never fails: see below
		if err != nil || d.Name() != "cgroup.procs" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil // the cgroup vanished
		}
		for _, word := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(word); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids
}

// mountsBelow lists mount points under dir in the caller's mount namespace, deepest first.
func mountsBelow(dir string) ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var points []string
	scan := bufio.NewScanner(f)
	for scan.Scan() {
		if fields := strings.Fields(scan.Text()); len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			points = append(points, fields[4])
		}
	}
	slices.SortFunc(points, func(a, b string) int { return len(b) - len(a) })
	return points, scan.Err()
}

// unmountBelow makes sure that deleting dir deletes nothing that is only mounted there.
func unmountBelow(dir string) error {
	points, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	for _, point := range points {
		if err := syscall.Unmount(point, syscall.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", point, err)
		}
	}
	return nil
}

// Leftovers lists what there is of the rig with this id: paths, mounts and processes. It is empty after Close.
func Leftovers(id string) ([]string, error) {
	left := traces(id)
	for _, path := range []string{filepath.Join(os.TempDir(), id), "/tmp/" + id, "/run/netns/" + id} {
		points, err := mountsBelow(path)
		if err != nil {
			return nil, err
		}
		left = append(left, points...)
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		for _, file := range []string{"cmdline", "cgroup"} {
			text, err := os.ReadFile(filepath.Join("/proc", entry.Name(), file))
			if err == nil && strings.Contains(string(text), id) {
				left = append(left, fmt.Sprintf("process %d: %s", pid, strings.ReplaceAll(string(text), "\x00", " ")))
				break
			}
		}
	}
	return left, nil
}
