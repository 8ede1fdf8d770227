// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"os"
	"path/filepath"
	"testing"
)

// TestAListWhileFilesArePacked: a folder is read in pieces, and a file that gets its
// packed name between two of them is in the list all the same.
func TestAListWhileFilesArePacked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	const all = 900
	for n := range all {
		if err := os.WriteFile(path+"."+number(n+1), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	done, packer := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(packer)
		for n := range all { // as pack does, without its slow part
			plain := path + "." + number(n+1)
			if err := os.WriteFile(plain+part, nil, 0o600); err != nil {
				done <- err
				return
			}
			if err := os.Rename(plain+part, plain+packed); err != nil {
				done <- err
				return
			}
			if err := os.Remove(plain); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	defer func() { <-packer }()
	for lists := 0; ; lists++ {
		select {
		case err := <-done:
			if err != nil || lists == 0 {
				t.Fatal(lists, err)
			}
			return
		default:
		}
		got, err := rotated(path)
		if err != nil {
			t.Fatal(err)
		}
		for n, o := range got {
			if o.number != n+1 {
				t.Fatalf("list %d: number %d is missing", lists, n+1)
			}
		}
		if len(got) != all {
			t.Fatalf("list %d has %d files of %d", lists, len(got), all)
		}
	}
}
