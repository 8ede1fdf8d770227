// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"context"
	"path/filepath"
)

// EnsureReference returns the program of test/konnectivity/reference, with konnectivity's server and agent in it, and
// builds it first where the cache does not hold it.
func EnsureReference(ctx context.Context, repo string, progress func(string)) (string, error) {
	module := filepath.Join(repo, "test/konnectivity/reference")
	args := []string{"-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", "-s -w"}
	sum, err := sources(module, args)
	if err != nil {
		return "", err
	}
	dir, err := cached(ctx, "konnectivity", sum,
		building{module: module, args: args, list: []program{{"reference", "."}}}, progress)
	return filepath.Join(dir, "reference"), err
}
