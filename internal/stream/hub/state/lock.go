// SPDX-License-Identifier: Apache-2.0

package state

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/store"
)

// openChecked opens the file, takes the lock that the library asks for again,
// and looks the file over before the library maps it: a damaged page would end
// the process there, with a panic or a signal.
func openChecked(path string, flag int, mode os.FileMode) (*os.File, error) {
	file, err := os.OpenFile(path, flag, mode)
	if err != nil {
		return nil, unwritable(filepath.Dir(path), err)
	}
	err = store.Lock(file)
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK):
		err = fault.New(fault.CodeStateBusy, "the state in "+filepath.Dir(path)+" is in use").
			Whyf("another hub holds it").Hint("stop that hub, or give this one its own --state-dir")
	case err != nil:
		err = unwritable(filepath.Dir(path), err)
	default:
		if err = checkFile(file); err != nil {
			err = corrupt(path, err)
		}
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}
