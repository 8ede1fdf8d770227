// SPDX-License-Identifier: Apache-2.0

// Command licence puts the licence line at the top of each Go file of the
// checkout that lacks it. It does not touch generated files or testdata.
package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const line = "// SPDX-License-Identifier: Apache-2.0\n"

func main() {
	root := ".."
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	if err := filepath.WalkDir(root, visit); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func visit(path string, d fs.DirEntry, err error) error {
	switch {
	case err != nil:
		return err
	case d.IsDir() && slices.Contains([]string{".git", "bin", "testdata"}, d.Name()):
		return fs.SkipDir
	case d.IsDir() || !strings.HasSuffix(path, ".go"):
		return nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	changed, ok := add(data)
	if !ok {
		return nil
	}
	info, err := d.Info()
	if err != nil {
		return err
	}
	fmt.Println("licence line added:", path)
	return os.WriteFile(path, changed, info.Mode())
}

// generated is the line that the Go project defines for generated files.
var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// add puts the line in front, with an empty line below so that it is neither a
// package comment nor in the way of a build constraint.
func add(data []byte) ([]byte, bool) {
	if bytes.HasPrefix(data, []byte(line)) || generated.Match(data) {
		return nil, false
	}
	return append([]byte(line+"\n"), data...), true
}
