// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// coded is how an error begins that has a code, or a problem in a policy.
var coded = regexp.MustCompile(`(?m)^error: ([a-z]+_)+[a-z]+: |^error: usage: |^policy: `)

// TestFilesWithoutAnEnd are refused by every role and verb that reads one: devices, pipes
// that nobody writes, and what is larger than such a file can be.
func TestFilesWithoutAnEnd(t *testing.T) {
	dir := t.TempDir()
	pipe, large := filepath.Join(dir, "pipe"), filepath.Join(dir, "large")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, 1<<40); err != nil { // it has holes, and takes no room
		t.Fatal(err)
	}
	policy := filepath.Join(dir, "hub.yaml")
	write := func(text string) {
		if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"/dev/zero", pipe, large} {
		write("apiVersion: tombolo.dev/v1alpha1\nkind: HubConfig\npolicies: [" + file + "]\nstateDir: " + dir + "/hub\nrunDir: " + dir + "/run\n")
		for _, args := range [][]string{
			{"hub", "--config", file}, {"agent", "--config", file}, {"mesh", "--config", file}, {"discovery", "--config", file},
			{"discovery", "announce", "--config", file}, {"discovery", "members", "--config", file},
			{"config", "validate", file}, {"hub", "--config", policy}, {"policy", "check", file},
			{"agent", "--state-dir", dir + "/agent", "--join", "@" + file},
			{"mesh", "--secret-file", file, "--service", "https://192.0.2.1:1", "--state-dir", dir + "/mesh"},
			{"discovery", "members", "--secret-file", file, "--service", "https://192.0.2.1:1"}, {"discovery", "secret", "show", file},
		} {
			if o := tombolo(t, args...); o.code == 0 || !strings.Contains(o.out+o.err, file) || !coded.MatchString(o.out+o.err) {
				t.Errorf("%v: exit %d\n%s%s", args, o.code, o.out, o.err)
			}
		}
	}
}
