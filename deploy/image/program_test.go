// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
)

// TestTheImageRunsTheProgram builds the program itself, takes it out of the
// image and asks it who it is. The other tests take a stand-in, to be quick.
func TestTheImageRunsTheProgram(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "layout")
	buildImage(t, "--package", "./cmd/tombolo", "--dir", dir)
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	images, err := partial.FindImages(top, func(v1.Descriptor) bool { return true })
	if err != nil || len(images) != 0 {
		t.Fatalf("images beside the index: %d, %v", len(images), err)
	}
	indexes, err := partial.FindIndexes(top, func(v1.Descriptor) bool { return true })
	if err != nil || len(indexes) != 1 {
		t.Fatalf("%d indexes, %v", len(indexes), err)
	}
	images, err = partial.FindImages(indexes[0], func(v1.Descriptor) bool { return true })
	if err != nil || len(images) != 1 {
		t.Fatalf("%d images, %v", len(images), err)
	}
	checkConfig(t, images[0], runtime.GOARCH)
	checkFiles(t, images[0], runtime.GOARCH)
	rc := mutate.Extract(images[0])
	defer rc.Close()
	_, contents := readTar(t, rc)
	program := filepath.Join(t.TempDir(), "tombolo")
	if err := os.WriteFile(program, contents["usr/local/bin/tombolo"], 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), program, "version").CombinedOutput()
	if err != nil || !strings.Contains(string(out), testVersion) {
		t.Errorf("tombolo version says %q, %v; want %s in it", out, err, testVersion)
	}
}
