// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
)

// programPrintsTheMembers: the file for those who keep manifests in a repository is what the program prints.
func programPrintsTheMembers(t *testing.T, program string) {
	want, err := exec.CommandContext(t.Context(), program, "discovery", "manifest").Output()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("kubernetes/members.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("kubernetes/members.yaml is another: tombolo discovery manifest > deploy/kubernetes/members.yaml")
	}
}
