// SPDX-License-Identifier: Apache-2.0

package labtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tombolo-io/tombolo/test/lab"
)

// programEnv names the program under test; set from outside, it is not built.
const programEnv = "TOMBOLO_LAB_PROGRAM"

// MainWithProgram is Main for tests that run the tombolo program: it builds it
// once, where every user may run it, in the way of make build: what that has compiled
// is taken from the cache.
func MainWithProgram(m *testing.M) int {
	return main(func() int {
		if os.Getenv(programEnv) != "" {
			return m.Run()
		}
		l, err := lab.New("program")
		if err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			return 1
		}
		code := 1
		if err = build(l); err == nil {
			code = m.Run()
		}
		if closeErr := l.Close(); err == nil {
			err = closeErr
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			return 1
		}
		return code
	})
}

func build(l *lab.Lab) error {
	dir, err := l.Dir()
	if err != nil {
		return err
	}
	program := filepath.Join(dir, "tombolo")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", program, "github.com/tombolo-io/tombolo/cmd/tombolo")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building tombolo: %w\n%s", err, out)
	}
	return os.Setenv(programEnv, program)
}

// Program is the path of the program under test.
func Program(t testing.TB) string {
	t.Helper()
	program := os.Getenv(programEnv)
	if program == "" {
		t.Fatal("no program: the package's TestMain must call labtest.MainWithProgram")
	}
	return program
}
