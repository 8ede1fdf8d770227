// SPDX-License-Identifier: Apache-2.0

// Package tools builds the Kubernetes programs that the rig runs, from the Go modules beside it (one module
// per minor version), into a cache outside the checkout. It does not run them, and it downloads nothing but
// Go modules.
package tools

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Default is the minor version that `make test` uses.
const Default = "1.35"

// program is one binary and the package that it is built from.
type program struct{ name, pkg string }

// programs are built in this order: what takes longest comes first, so that its packages are shared.
func programs() []program {
	return []program{
		{"kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"},
		{"kubelet", "k8s.io/kubernetes/cmd/kubelet"},
		{"kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"},
		{"kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"},
		{"kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"},
		{"kubectl", "k8s.io/kubernetes/cmd/kubectl"},
		{"etcd", "go.etcd.io/etcd/server/v3"},
	}
}

// complete marks a directory whose build has come to its end.
const complete = "complete"

// Ensure returns the directory with the programs of a minor version ("1.35"), and builds them first where
// the cache does not hold them. repo is the root of the checkout; progress gets a line per program.
func Ensure(ctx context.Context, repo, minor string, progress func(string)) (string, error) {
	return ensure(ctx, filepath.Join(repo, "test/kube/tools", "v"+minor), "kube", programs(), progress)
}

// EnsureEtcd is Ensure for etcd alone, the one of Default, which takes seconds.
func EnsureEtcd(ctx context.Context, repo string, progress func(string)) (string, error) {
	all := programs()
	dir, err := ensure(ctx, filepath.Join(repo, "test/kube/tools", "v"+Default), "etcd", all[len(all)-1:], progress)
	return filepath.Join(dir, "etcd"), err
}

func ensure(ctx context.Context, module, folder string, list []program, progress func(string)) (string, error) {
	version, err := kubernetesVersion(module)
	if err != nil {
		return "", err
	}
	args := buildArgs(version)
	sum, err := fingerprint(module, args)
	if err != nil {
		return "", err
	}
	return cached(ctx, folder, version+"-"+sum, building{module: module, args: args, list: list}, progress)
}

// cached returns the directory of the cache with the programs of a build, and builds them first where it is not there.
func cached(ctx context.Context, folder, name string, b building, progress func(string)) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	b.dir = filepath.Join(cache, folder, name)
	if done(b.dir) {
		return b.dir, nil
	}
	if err := os.MkdirAll(filepath.Dir(b.dir), 0o755); err != nil {
		return "", fmt.Errorf("make the cache of %s: %w (set TOMBOLO_CACHE to a writable directory)", folder, err)
	}
	unlock, err := lock(ctx, b.dir+".lock", progress)
	if err != nil {
		return "", err
	}
	defer unlock()
	if done(b.dir) { // another run built it while this one waited
		return b.dir, nil
	}
	return b.dir, b.run(ctx, progress)
}

// CacheDir is where slow artefacts live: $TOMBOLO_CACHE, or ~/.cache/tombolo.
func CacheDir() (string, error) {
	if dir := os.Getenv("TOMBOLO_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find the cache directory: %w (set TOMBOLO_CACHE)", err)
	}
	return filepath.Join(home, ".cache", "tombolo"), nil
}

// Minors lists the minor versions that have a module in the checkout.
func Minors(repo string) []string {
	found, _ := filepath.Glob(filepath.Join(repo, "test/kube/tools/v*/go.mod")) // the pattern is constant
	var minors []string
	for _, path := range found {
		minors = append(minors, strings.TrimPrefix(filepath.Base(filepath.Dir(path)), "v"))
	}
	return minors
}

// kubernetesVersion reads the pinned version, for example "v1.35.4", from the module's go.mod.
func kubernetesVersion(module string) (string, error) {
	text, err := os.ReadFile(filepath.Join(module, "go.mod"))
	if err != nil {
		repo := filepath.Join(module, "../../../..")
		return "", fmt.Errorf("no module for this Kubernetes version: %w (there are %s)", err, strings.Join(Minors(repo), ", "))
	}
	match := regexp.MustCompile(`(?m)^\s+k8s\.io/kubernetes (v[0-9.]+)$`).FindSubmatch(text)
	if match == nil {
		return "", fmt.Errorf("%s/go.mod requires no k8s.io/kubernetes", module)
	}
	return string(match[1]), nil
}

// buildArgs are the flags of `go build`. The version must be linked in: kubelet and kube-apiserver refuse to
// work together when they believe to be v0.0.0.
func buildArgs(version string) []string {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	const p = "k8s.io/component-base/version."
	return []string{"-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags",
		fmt.Sprintf("-s -w -X %sgitVersion=%s -X %sgitMajor=%s -X %sgitMinor=%s", p, version, p, parts[0], p, parts[1])}
}

// fingerprint names a build by everything that decides about its result.
func fingerprint(module string, args []string) (string, error) {
	h := sha256.New()
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return "", fmt.Errorf("read the module of the Kubernetes binaries: %w", err)
		}
		fmt.Fprintf(h, "%s %d\n%s", name, len(text), text)
	}
	fmt.Fprintf(h, "%q %q %s/%s", args, programs(), runtime.GOOS, runtime.GOARCH)
	return hex.EncodeToString(h.Sum(nil))[:12], nil
}

func done(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, complete))
	return err == nil
}

// building is programs of a module and the flags that they are built with.
type building struct {
	module, dir string
	args        []string
	list        []program
}

// run makes all programs in a directory of its own and renames it at the end, so that a build that was
// cut short is never taken for a whole one.
func (b building) run(ctx context.Context, progress func(string)) error {
	dir, list := b.dir, b.list
	tmp := dir + ".building"
	if err := os.RemoveAll(tmp); err != nil { // what an earlier, killed build left: we hold the lock
		return err
	}
	if err := os.MkdirAll(tmp, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	begin := time.Now()
	for i, p := range list {
		progress(fmt.Sprintf("building %s (%d of %d; minutes when the Go build cache is cold)", p.name, i+1, len(list)))
		start := time.Now()
		err := beside(buildBeat, func(took time.Duration) {
			progress(fmt.Sprintf("building %s still, for %s", p.name, round(took)))
		}, func() error { return goBuild(ctx, b.module, filepath.Join(tmp, p.name), p.pkg, b.args) })
		if err != nil {
			return err
		}
		progress(fmt.Sprintf("built %s in %s (%s in all)", p.name, round(time.Since(start)), round(time.Since(begin))))
	}
	if err := os.WriteFile(filepath.Join(tmp, complete), []byte(begin.UTC().Format(time.RFC3339)+"\n"), 0o644); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Rename(tmp, dir)
}

// buildTime bounds the build of one program: minutes, on two processors and with nothing cached. buildBeat is
// how often it is said that it goes on.
const buildTime, buildBeat = 30 * time.Minute, 15 * time.Second

// beside calls beat now and then while do is under way.
func beside(every time.Duration, beat func(took time.Duration), do func() error) error {
	begin, over := time.Now(), make(chan struct{})
	var told sync.WaitGroup
	told.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				beat(time.Since(begin))
			case <-over:
				return
			}
		}
	})
	defer told.Wait()
	defer close(over) // before the wait
	return do()
}

func goBuild(ctx context.Context, module, out, pkg string, args []string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, buildTime, fmt.Errorf("it took longer than %s", buildTime))
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", append(append([]string{"build"}, args...), "-o", out, pkg)...)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // lets go stop its compilers
	cmd.WaitDelay = 10 * time.Second
	if text, err := cmd.CombinedOutput(); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("build %s: %w", pkg, context.Cause(ctx))
		}
		return fmt.Errorf("build %s: %w\n%s", pkg, err, text)
	}
	return nil
}

// lock takes the lock of one cache entry. It polls, because flock cannot be interrupted by a context; the
// holder builds for minutes, so the pace does not matter.
func lock(ctx context.Context, path string, progress func(string)) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock the cache of Kubernetes binaries: %w", err)
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	told := false
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if !told {
			progress("waiting for another run that builds the same binaries")
			told = true
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("wait for the lock %s: %w", path, ctx.Err())
		case <-tick.C:
		}
	}
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }
