// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestWhereASettingIsWritten: not even root may write osrelease, as everything below /proc/sys in a container.
func TestWhereASettingIsWritten(t *testing.T) {
	const closed, file = "/proc/sys/kernel", "osrelease"
	open, other, empty := t.TempDir(), t.TempDir(), t.TempDir()
	for _, dir := range []string{open, other} {
		if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		what, first, second, in string
		err                     error
	}{
		{"it may be written", open, other, open, nil},
		{"it may be elsewhere", closed, other, other, nil},
		{"it is not elsewhere", closed, empty, "", os.ErrPermission},
		{"it may not be elsewhere either", closed, closed, "", os.ErrPermission},
		{"it is not there, as before a link is", empty, other, "", os.ErrNotExist},
	} {
		got, err := openFirst(file, c.first, c.second)
		if !errors.Is(err, c.err) || (got == nil) != (c.in == "") {
			t.Errorf("%s: %v, %v", c.what, got, err)
			continue
		}
		if got == nil {
			continue
		}
		if want := filepath.Join(c.in, file); got.Name() != want {
			t.Errorf("%s: %s, want %s", c.what, got.Name(), want)
		}
		if err := got.Close(); err != nil {
			t.Error(err)
		}
	}
}
