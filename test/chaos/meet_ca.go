// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// shareCA gives a replica the CA of all: none makes its own beside others.
func (f *fleet) shareCA(ctx context.Context, state string) error {
	ca := filepath.Join(f.dir, "ca")
	if _, err := os.Stat(ca); errors.Is(err, os.ErrNotExist) {
		if out, err := exec.CommandContext(ctx, f.program, "discovery", "ca", "create", ca).CombinedOutput(); err != nil {
			return fmt.Errorf("making a CA: %w: %s", err, out)
		}
	}
	if err := os.MkdirAll(state, 0o700); err != nil {
		return err
	}
	for _, name := range []string{"ca.crt", "ca.key"} {
		data, err := os.ReadFile(filepath.Join(ca, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(state, name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}
