// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/run"
)

// Check reports why a network cannot be built here, or nil.
func Check(ctx context.Context) error {
	err := onThread(ctx, func() error { return unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS) })
	if err == nil {
		return nil
	}
	return fmt.Errorf("this process may not make network namespaces: %w "+
		"(needed: root, or CAP_SYS_ADMIN and CAP_NET_ADMIN, on Linux)", err)
}

// onThread runs f on an operating-system thread of its own that ends with it.
// The goroutine is never unlocked from its thread, so the runtime throws the
// thread away, and no other goroutine can inherit what f did to it. New threads
// are never cloned from a locked one (they come from the runtime's template).
func onThread(ctx context.Context, f func() error) error {
	err := errors.New("the function left its goroutine without returning")
	group := run.NewGroup(ctx)
	group.Do(func(context.Context) {
		runtime.LockOSThread()
		err = f()
	})
	waited := group.Wait() // and err is f's
	return errors.Join(waited, err)
}

// newNamespace makes a network namespace under the given path and returns a
// handle to it. The path is bound to it until removeNamespace.
func newNamespace(ctx context.Context, path string) (netns.NsHandle, error) {
	handle := netns.None()
	err := onThread(ctx, func() error {
		if err := createFile(path); err != nil {
			return err
		}
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		if err := unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("binding it to its name: %w", err)
		}
		var err error
		if handle, err = netns.GetFromPath(path); err != nil {
			return fmt.Errorf("opening it: %w", err)
		}
		return nil
	})
	if err != nil {
		return netns.None(), errors.Join(
			fmt.Errorf("making the network namespace %s: %w", path, err), removeNamespace(path))
	}
	return handle, nil
}

// createFile makes the empty file that a namespace is bound to. Another run
// may remove the empty directory between our two calls, hence the rounds.
func createFile(path string) error {
	var err error
	for range 3 {
		if err = os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		var f *os.File
		f, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
		if err == nil {
			return f.Close()
		}
		if !os.IsNotExist(err) {
			return err
		}
	}
	return err
}

// Do runs f on a thread of its own inside the host's network namespace.
// Sockets that f opens belong to the namespace for good. Goroutines that f
// starts do not run there.
func (h *Host) Do(f func() error) error {
	return onThread(h.net.ctx, func() error {
		if h.ns.IsOpen() {
			if err := netns.Set(h.ns); err != nil {
				return fmt.Errorf("entering the namespace of %s: %w", h.name, err)
			}
		}
		return f()
	})
}

// Sysctl sets a network sysctl inside the namespace, for example
// "ipv4/ip_forward".
func (h *Host) Sysctl(path, value string) error {
	return h.Do(func() error {
		// /proc/sys/net shows the namespace of the thread that looks.
		file := filepath.Join("/proc/sys/net", path)
		if err := os.WriteFile(file, []byte(value), 0o644); err != nil {
			return fmt.Errorf("setting %s to %s in %s: %w (in a container: /proc/sys must be writable, "+
				"as with --privileged)", file, value, h.name, err)
		}
		return nil
	})
}
