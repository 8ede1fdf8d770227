// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Confinement is what a strict container gives a process: a foreign user
// without groups, no capability in any set, no_new_privs, and a root file
// system on which only the named directories can be written.
type Confinement struct {
	UID, GID uint32 // 0: root, with the capabilities of Keep
	Keep     []int
	Writable []string
	Hosts    string // a file in place of /etc/hosts, if one is named
}

// StartConfined starts the command in the host as another user with hardly any right.
func StartConfined(h *Host, cmd *exec.Cmd, c Confinement) (*Process, error) {
	return h.StartWith(cmd, c.apply)
}

// apply prepares the calling thread, from which the command is started next
// and which does nothing else afterwards.
func (c Confinement) apply(cmd *exec.Cmd) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	for _, dir := range c.Writable {
		if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("binding %s: %w", dir, err)
		}
	}
	if c.Hosts != "" {
		if err := unix.Mount(c.Hosts, "/etc/hosts", "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("binding %s: %w", c.Hosts, err)
		}
	}
	readOnly := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, readOnly); err != nil {
		return fmt.Errorf("making / read-only: %w (needs Linux 5.12)", err)
	}
	writable := &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}
	for _, dir := range c.Writable {
		if err := unix.MountSetattr(unix.AT_FDCWD, dir, 0, writable); err != nil {
			return fmt.Errorf("making %s writable: %w", dir, err)
		}
	}
	if err := dropCapabilities(c.Keep); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	// The change of user takes the permitted and effective sets away.
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: c.UID, Gid: c.GID, Groups: []uint32{}}
	return nil
}

// dropCapabilities empties the ambient and inheritable sets of the thread, and
// the bounding one but for some. The permitted set stays until the change of user, which needs it.
func dropCapabilities(but []int) error {
	last, err := os.ReadFile("/proc/sys/kernel/cap_last_cap")
	if err != nil {
		return err
	}
	highest, err := strconv.Atoi(strings.TrimSpace(string(last)))
	if err != nil {
		return err
	}
	for capability := 0; capability <= highest; capability++ {
		if slices.Contains(but, capability) {
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(capability), 0, 0, 0)
		if err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("dropping capability %d: %w", capability, err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clearing ambient capabilities: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("reading capabilities: %w", err)
	}
	data[0].Inheritable, data[1].Inheritable = 0, 0
	if err := unix.Capset(&header, &data[0]); err != nil {
		return fmt.Errorf("clearing inheritable capabilities: %w", err)
	}
	return nil
}
