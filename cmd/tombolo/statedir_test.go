// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// TestAStateDirectoryThatOthersMayWrite is used by no role: a key in it may be anybody's.
func TestAStateDirectoryThatOthersMayWrite(t *testing.T) {
	dir := runtest.Dir(t)
	state, config := filepath.Join(dir, "state"), filepath.Join(dir, "config.yaml")
	secret := filepath.Join(dir, "secret")
	must(t, "discovery", "secret", "create", secret)
	if err := errors.Join(os.Mkdir(state, 0o700), os.Chmod(state, 0o770)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		yaml string
	}{
		"hub": {[]string{"hub"}, "kind: HubConfig\nstateDir: %[1]q\nrunDir: %[2]q\n" +
			"listen: 127.0.0.1:0\nadmin: {listen: '127.0.0.1:0'}\n"},
		"agent": {[]string{"agent"}, "kind: AgentConfig\nstateDir: %[1]q\n" +
			"healthListen: 127.0.0.1:0\nallow: [127.0.0.1]\n"},
		"discovery": {[]string{"discovery"}, "kind: DiscoveryConfig\nstateDir: %[1]q\nrunDir: %[2]q\n" +
			"listen: 127.0.0.1:0\nadmin: {listen: '127.0.0.1:0'}\ntls: {self: true}\n"},
		"announce": {[]string{"discovery", "announce"}, "kind: MeshConfig\ncluster: {secretFiles: [%[3]q]}\n" +
			"node: {name: a, stateDir: %[1]q, runDir: %[2]q}\nhealthListen: 127.0.0.1:0\nsources: {file: %[3]q}\n"},
	} {
		text := fmt.Sprintf("apiVersion: tombolo.dev/v1alpha1\n"+c.yaml+"#%[3]s", state, filepath.Join(dir, "run"), secret)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			o := tombolo(t, append(c.args, "--config", config)...)
			wantExit(t, o, 1, "the state directory "+state+" is not used", "0770", "chmod 700 "+state)
		})
	}
}
