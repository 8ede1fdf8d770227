// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// netnsDir is where iproute2 keeps named namespaces, so `ip netns exec` works
// on ours while somebody looks into a failing test.
const netnsDir = "/run/netns"

// Sweep removes the namespaces and directories whose owner is dead, and
// returns their names. It never touches anything of a live process, of another
// pid namespace, or without our prefix.
func Sweep() ([]string, error) {
	me, err := self()
	if err != nil {
		return nil, err
	}
	return sweep(func(o owner) bool { return o.dead(me) })
}

// SweepOwn removes what this very process made, for a signal handler that is
// about to exit and holds no Network.
func SweepOwn() ([]string, error) {
	me, err := self()
	if err != nil {
		return nil, err
	}
	return sweep(func(o owner) bool { return o == me })
}

// OwnerDead reports whether a name begins with that of a network whose process is gone: who makes more than
// namespaces and directories removes it by that.
func OwnerDead(name string) bool {
	me, err := self()
	o, ok := parseOwner(name)
	return err == nil && ok && o.dead(me)
}

// Leftovers lists what this process made and has not yet removed.
func Leftovers() ([]string, error) {
	me, err := self()
	if err != nil {
		return nil, err
	}
	return find(func(o owner) bool { return o == me })
}

func sweep(wanted func(owner) bool) ([]string, error) {
	found, err := find(wanted)
	errs := []error{err}
	for _, path := range found {
		if filepath.Dir(path) == netnsDir {
			errs = append(errs, removeNamespace(path))
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			errs = append(errs, fmt.Errorf("removing the leftover directory %s: %w", path, err))
		}
	}
	return found, errors.Join(errs...)
}

// find returns the paths of namespaces and directories whose owner is wanted.
func find(wanted func(owner) bool) ([]string, error) {
	var found []string
	places := []string{netnsDir, tempRoot, os.TempDir()}
	slices.Sort(places)
	for _, place := range slices.Compact(places) {
		entries, err := os.ReadDir(place)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return found, fmt.Errorf("looking for leftovers in %s: %w", place, err)
		}
		for _, entry := range entries {
			path := filepath.Join(place, entry.Name())
			if o, ok := parseOwner(entry.Name()); ok && ours(path) && wanted(o) {
				found = append(found, path)
			}
		}
	}
	return found, nil
}

// ours reports whether this user made the file: anybody may create a file with
// our prefix in /tmp. A namespace file counts as its maker's before it is
// mounted and as root's after.
func ours(path string) bool {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return false
	}
	return int(st.Uid) == os.Geteuid()
}

// removeNamespace takes a namespace's name away; the kernel removes the
// namespace with its links when the last process and socket in it is gone.
func removeNamespace(path string) error {
	err := unix.Unmount(path, unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmounting the namespace %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the namespace %s: %w", path, err)
	}
	return nil
}
