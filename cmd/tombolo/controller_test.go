// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestControllerThatIsNotInstalled(t *testing.T) {
	file := filepath.Join(t.TempDir(), "controller.yaml")
	t.Setenv("PATH", "")
	for text, want := range map[string]string{
		exampleController:               "not_found: the program tombolo-controller is not installed",
		"kind: ControllerConfig\n":      "config_invalid: ",
		exampleController + "\nno: 1\n": "no: unknown key",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := runController(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; %q is expected", err, want)
		}
	}
}
