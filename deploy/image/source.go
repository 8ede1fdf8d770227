// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// source is what the image says about where it comes from.
type source struct {
	created  time.Time // also the date of every file, so that builds are reproducible
	revision string    // git commit, "-dirty" added when tracked files differ from it; empty without git
}

// moduleRoot is the directory of the go.mod that this program belongs to.
func moduleRoot(ctx context.Context) (string, error) {
	mod, err := output(exec.CommandContext(ctx, "go", "env", "GOMOD"))
	if err != nil {
		return "", err
	}
	if mod == "" || mod == os.DevNull {
		return "", fmt.Errorf("no go.mod here or above: run this inside the checkout")
	}
	return filepath.Dir(mod), nil
}

func rooted(root, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(root, path)
}

// describeSource dates the image: SOURCE_DATE_EPOCH (reproducible-builds.org)
// before the time of the commit, before 1970. A checkout without git, or
// without a commit, is no error.
func describeSource(ctx context.Context, root string, getenv func(string) string) (source, error) {
	src := source{created: time.Unix(0, 0).UTC()}
	if commit, err := git(ctx, root, "log", "-1", "--format=%H %ct"); err == nil {
		hash, at, _ := strings.Cut(commit, " ")
		sec, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			return src, fmt.Errorf("git says that the commit was made at %q: %w", at, err)
		}
		src.revision, src.created = hash, time.Unix(sec, 0).UTC()
		changed, err := git(ctx, root, "status", "--porcelain", "--untracked-files=no")
		if err != nil {
			return src, err
		}
		if changed != "" {
			src.revision += "-dirty"
		}
	}
	if epoch := getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		sec, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil || sec < 0 {
			return src, usagef("SOURCE_DATE_EPOCH is %q: want seconds since 1970", epoch)
		}
		src.created = time.Unix(sec, 0).UTC()
	}
	return src, nil
}

func git(ctx context.Context, root string, args ...string) (string, error) {
	return output(exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...))
}

// output runs a command and gives its trimmed stdout, or its stderr as the error.
func output(cmd *exec.Cmd) (string, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
