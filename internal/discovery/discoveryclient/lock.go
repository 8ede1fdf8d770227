// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/store"
)

// lockFile keeps a second process from being the same member; it holds the id of the first.
const lockFile = "member.lock"

// lockState takes a state directory until the file is closed.
func lockState(dir string) (*os.File, error) {
	unusable := func(err error) error {
		return fault.New(fault.CodeStateAccess, "the state directory "+dir+" cannot be used").Because(err).
			Hint("create it for this user (uid %d), or choose another with node.stateDir", os.Getuid())
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, unusable(err)
	}
	file, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, unusable(err)
	}
	switch err := store.Lock(file); {
	case errors.Is(err, syscall.EWOULDBLOCK):
		who := "another process"
		text, _ := io.ReadAll(io.LimitReader(file, 32))
		if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			who = fmt.Sprintf("process %d", n)
		}
		return nil, errors.Join(fault.New(fault.CodeStateBusy, "the state of the member in "+dir+" is in use").
			Whyf("%s announces that member", who).
			Hint("stop it, or give this one a node.stateDir of its own: it is another member then"), file.Close())
	case err != nil:
		return nil, errors.Join(unusable(err), file.Close())
	}
	if err := errors.Join(file.Truncate(0), writeAt(file, fmt.Sprintf("%d\n", os.Getpid()))); err != nil &&
		!errors.Is(err, syscall.ENOSPC) {
		return nil, errors.Join(unusable(err), file.Close())
	}
	return file, nil
}

func writeAt(file *os.File, text string) error {
	_, err := file.WriteAt([]byte(text), 0)
	return err
}

// Unused reports, by a fault, whether somebody runs the member of a state directory now.
// It makes nothing.
func Unused(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, lockFile)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	file, err := lockState(dir)
	if err != nil {
		return err
	}
	return file.Close()
}
