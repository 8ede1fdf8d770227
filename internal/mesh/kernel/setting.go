// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/tombolo-io/tombolo/internal/base/plan"
)

const (
	// settingsDir has the settings of this process's network.
	settingsDir = "/proc/sys/net"
	// settingsAgain has them once more, in a container that is not privileged: there everything below /proc/sys is
	// read-only, and runc mounts nothing there, but a directory of the node may be mounted elsewhere. Whatever the
	// mount, the kernel shows each process the settings of its own network.
	settingsAgain = "/host/proc/sys/net"
	needsRights   = "run it as root, or give it CAP_NET_ADMIN and a writable /proc/sys/net, in a container at " +
		settingsAgain
)

func sysctl(path string) string { return filepath.Join(settingsDir, filepath.FromSlash(path)) }

// openSetting opens a setting to write it.
func openSetting(path string) (*os.File, error) {
	return openFirst(filepath.FromSlash(path), settingsDir, settingsAgain)
}

// openFirst opens a file to write it, in the first of two directories, or in the second where the first one may not be
// written and it has the file too. The error is that of the first.
func openFirst(path, first, second string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(first, path), os.O_WRONLY, 0)
	if err == nil || !denied(err) {
		return file, err
	}
	if again, other := os.OpenFile(filepath.Join(second, path), os.O_WRONLY, 0); other == nil {
		return again, nil
	}
	return nil, err
}

func writeSetting(s plan.Sysctl) error {
	file, err := openSetting(s.Path)
	if err != nil {
		return err
	}
	_, err = file.WriteString(s.Value)
	return errors.Join(err, file.Close())
}
