// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"context"
	"path/filepath"
)

// The programs of test/konnectivity, each with a module of its own there.
const (
	Reference    = "reference"    // konnectivity's server and agent
	ReferenceOld = "reference034" // the same of v0.34.0
	Frontend     = "frontend"     // what kube-apiserver dials with
)

// EnsureReference returns the program of test/konnectivity/reference, with konnectivity's server and agent in it, and
// builds it first where the cache does not hold it.
func EnsureReference(ctx context.Context, repo string, progress func(string)) (string, error) {
	return EnsureKonnectivity(ctx, repo, Reference, progress)
}

// EnsureKonnectivity is the same for each of the programs.
func EnsureKonnectivity(ctx context.Context, repo, name string, progress func(string)) (string, error) {
	module := filepath.Join(repo, "test/konnectivity", name)
	args := []string{"-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", "-s -w"}
	sum, err := sources(module, args)
	if err != nil {
		return "", err
	}
	dir, err := cached(ctx, "konnectivity", sum, building{module: module, args: args, list: []program{{name, "."}}}, progress)
	return filepath.Join(dir, name), err
}

// EnsureAllOfKonnectivity builds all of them.
func EnsureAllOfKonnectivity(ctx context.Context, repo string, progress func(string)) (string, error) {
	for _, name := range []string{ReferenceOld, Frontend} {
		if _, err := EnsureKonnectivity(ctx, repo, name, progress); err != nil {
			return "", err
		}
	}
	return EnsureReference(ctx, repo, progress)
}
