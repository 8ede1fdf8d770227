// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// EnsureOracle returns the program of test/pilot/oracle, with Istio's pilot in it, and builds it first where the cache
// does not hold it: with an empty build cache that takes minutes.
func EnsureOracle(ctx context.Context, repo string, progress func(string)) (string, error) {
	module := filepath.Join(repo, "test/pilot/oracle")
	args := []string{"-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", "-s -w"}
	sum, err := sources(module, args)
	if err != nil {
		return "", err
	}
	dir, err := cached(ctx, "pilot", sum, building{module: module, args: args, list: []program{{"oracle", "."}}}, progress)
	return filepath.Join(dir, "oracle"), err
}

// sources names a build by the files of a module with sources of its own, and how it is built.
func sources(module string, args []string) (string, error) {
	files, err := filepath.Glob(filepath.Join(module, "*")) // sorted
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("read the module of a test's program: %w", err)
		}
		fmt.Fprintf(h, "%s %d\n%s", filepath.Base(file), len(text), text)
	}
	fmt.Fprintf(h, "%q %s/%s %s", args, runtime.GOOS, runtime.GOARCH, runtime.Version())
	return hex.EncodeToString(h.Sum(nil))[:12], nil
}
