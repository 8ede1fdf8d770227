// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// cgroupDirs lists the directories that a cgroup of this name has: one with cgroup v2, one per hierarchy
// with v1.
func cgroupDirs(name string) []string {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return []string{filepath.Join("/sys/fs/cgroup", name)}
	}
	var dirs []string
	found, _ := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs") // the pattern is constant
	for _, path := range found {
		dirs = append(dirs, filepath.Join(filepath.Dir(path), name))
	}
	return dirs
}

// makeCgroup makes the cgroup under which kubelet keeps its pods. Each rig's node has its own: two kubelets
// under one root would delete each other's pods as orphans.
func makeCgroup(name string) error {
	for _, dir := range cgroupDirs(name) {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { // v1: "cpu" may be a link to "cpu,cpuacct"
			return fmt.Errorf("make the node's cgroup: %w", err)
		}
		parent := filepath.Dir(dir)
		// v1 cpusets begin empty, and an empty one takes no process.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if text, err := os.ReadFile(filepath.Join(parent, file)); err == nil && parent != "/sys/fs/cgroup" {
				if err := os.WriteFile(filepath.Join(dir, file), text, 0o644); err != nil {
					return fmt.Errorf("fill the node's cpuset: %w", err)
				}
			}
		}
		// v2 hands controllers down from parent to child.
		if text, err := os.ReadFile(filepath.Join(parent, "cgroup.controllers")); err == nil && parent == "/sys/fs/cgroup" {
			for _, controller := range strings.Fields(string(text)) {
				for _, level := range []string{parent, dir} {
					// Some controllers cannot be handed down (threaded, or in use elsewhere); kubelet says so if it needs them.
					_ = os.WriteFile(filepath.Join(level, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
				}
			}
		}
	}
	return nil
}
