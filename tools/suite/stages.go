// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// stage is one row of the suite.
type stage struct {
	name  string
	title string
	needs []string // stages that must not have failed, if they were chosen
	run   func(*stageRun) error
}

// stages is the table of the suite, in order.
func stages(c config) []stage {
	return []stage{
		{"deps", "Debian packages", nil, c.deps},
		{"build", "every package compiles, bin/tombolo is built", []string{"deps"}, c.build},
		{"lint", "gofmt, go vet, staticcheck", []string{"deps"}, c.lint},
		{"house", "the law of the house", []string{"deps"}, c.house},
		{"unit", "unit tests with the race detector", []string{"deps"}, c.unit},
		{"counts", "full counts, of tests that count less elsewhere", []string{"deps"}, c.counts},
		{"pilot", "access lists, judged by Istio's pilot and gRPC's RBAC engine", []string{"deps"}, c.pilot},
		{"lab", "networks in namespaces", []string{"deps", "build"}, c.lab},
		{"qemu", "a kernel of its own, in QEMU", []string{"deps"}, c.qemu},
		{"kube", "real Kubernetes", []string{"deps", "build"}, c.kubernetes},
	}
}

func (c config) deps(s *stageRun) error {
	return s.do(command{dir: c.root, args: []string{"tools/deps", "unit", "lab", "qemu", "kube"}})
}

func (c config) build(s *stageRun) error {
	for _, args := range [][]string{
		{"go", "build", "./..."},
		{"make", "--no-print-directory", "build"},
	} {
		if err := s.do(command{dir: c.root, args: args}); err != nil {
			return err
		}
	}
	return nil
}

// tags turns on every test of the repository for the tools that read code.
const tags = "lab,guest,qemu,kube,counts,pilot"

func (c config) lint(s *stageRun) error {
	tools, err := c.tools(s)
	if err != nil {
		return err
	}
	vets, err := c.vets()
	if err != nil {
		return err
	}
	failed := []error{c.gofmt(s)}
	for _, cmd := range append(vets, []command{
		{dir: filepath.Join(c.root, "tools"), args: []string{"go", "vet", "./..."}, show: "go vet ./... (in tools)"},
		{dir: c.root, args: []string{filepath.Join(tools, "staticcheck"), "-tags", tags, "./..."},
			show: "staticcheck -tags " + tags + " ./..."},
		{dir: filepath.Join(c.root, "tools"), args: []string{filepath.Join(tools, "staticcheck"), "./..."},
			show: "staticcheck ./... (in tools)"},
	}...) {
		failed = append(failed, s.do(cmd))
	}
	return errors.Join(failed...)
}

// vets are go vet with each file of the main module: once with the tags, and once without
// them where a file is for that alone.
func (c config) vets() ([]command, error) {
	vets := []command{{dir: c.root, args: []string{"go", "vet", "-tags", tags, "./..."}}}
	for tag := range strings.SplitSeq(tags, ",") {
		without := constraint("!" + tag)
		alone, err := c.packagesOf(func(_ string, data []byte) bool { return without.Match(data) })
		if err != nil {
			return nil, err
		}
		if len(alone) > 0 {
			return append(vets, command{dir: c.root, args: []string{"go", "vet", "./..."}}), nil
		}
	}
	return vets, nil
}

func (c config) gofmt(s *stageRun) error {
	files, err := c.goFiles()
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := s.do(command{dir: c.root, args: append([]string{"gofmt", "-l", "-s"}, files...), out: &out,
		show: "gofmt"}); err != nil {
		return err
	}
	if out.Len() > 0 {
		return fmt.Errorf("not formatted (run make fmt):\n%s", strings.TrimSpace(out.String()))
	}
	return nil
}

// goFiles lists the repository's own Go files.
func (c config) goFiles() ([]string, error) {
	var files []string
	err := filepath.WalkDir(c.root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "bin", "testdata"}, d.Name()):
			return fs.SkipDir
		case !d.IsDir() && strings.HasSuffix(path, ".go"):
			rel, err := filepath.Rel(c.root, path)
			files = append(files, rel)
			return err
		}
		return nil
	})
	return files, err
}

// tools builds the pinned tools once for each content of tools/go.sum.
func (c config) tools(s *stageRun) (string, error) {
	sum, err := os.ReadFile(filepath.Join(c.root, "tools", "go.sum"))
	if err != nil {
		return "", err
	}
	version, err := output(c.root, "go", "env", "GOVERSION")
	if err != nil {
		return "", err
	}
	digest := sha256.Sum256(append(sum, version...))
	dir := filepath.Join(c.cache, "tools", hex.EncodeToString(digest[:6]))
	if _, err := os.Stat(filepath.Join(dir, "staticcheck")); err == nil {
		return dir, nil
	}
	return dir, s.do(command{dir: filepath.Join(c.root, "tools"), args: []string{"go", "build", "-o", dir + "/",
		"honnef.co/go/tools/cmd/staticcheck"}, show: "building staticcheck into " + dir})
}

func (c config) house(s *stageRun) error {
	return s.test(c.suiteOf("./house"), "-count=1")
}

func (c config) unit(s *stageRun) error {
	list, err := output(c.root, "go", "list", "./...")
	if err != nil {
		return err
	}
	packages := longFirst(slices.DeleteFunc(strings.Fields(list),
		func(p string) bool { return strings.HasSuffix(p, "/tombolo/house") }))
	if err := errors.Join(c.etcd(s), c.reference(s)); err != nil {
		return err
	}
	alone := c.suiteOf(slices.DeleteFunc(slices.Clone(packages), func(p string) bool { return !isSequential(p) })...)
	main := c.suiteOf(slices.DeleteFunc(packages, isSequential)...)
	main.planted = true
	tools := c.suiteOf("./...")
	tools.dir = filepath.Join(c.root, "tools")
	main.env, tools.env = withRaces(), withRaces()
	// Its packages keep the processors less busy than those of the lab.
	packagesAtATime := fmt.Sprintf("-p=%d", runtime.NumCPU()+waiting+1)
	return errors.Join(s.test(main, "-race", packagesAtATime, "-timeout", "20m"), s.test(alone), s.test(tools, "-race"))
}

// sequential are packages that the race detector makes slow and has nothing to find in: neither they, nor what they
// import of ours, nor their tests start a goroutine.
var sequential = []string{"/deploy/image", "/internal/access/policy", "/internal/discovery/roster",
	"/internal/mesh/path", "/internal/mesh/topology"}

func isSequential(p string) bool {
	return slices.ContainsFunc(sequential, func(end string) bool { return strings.HasSuffix(p, end) })
}

// etcd builds etcd in advance, where its progress is visible, and not during a test.
func (c config) etcd(s *stageRun) error {
	return s.do(command{dir: c.root, args: []string{"go", "run", "./test/kube/tools/build", "etcd"}})
}

// reference builds konnectivity's programs in advance, for the same reason.
func (c config) reference(s *stageRun) error {
	return s.do(command{dir: c.root, args: []string{"go", "run", "./test/kube/tools/build", "konnectivity"}})
}

// withRaces is the environment of the race detector. It is written in C. At the end of a process it waits for
// goroutines that are left, a second by default: about 100 test programs do so, and each process that they start.
func withRaces() []string {
	return []string{"CGO_ENABLED=1", "GORACE=" + strings.TrimSpace(os.Getenv("GORACE")+" atexit_sleep_ms=10")}
}

// waiting is how many packages or tests more than processors run at a time: each waits for a good
// part of its time.
const waiting = 2

// long are the packages whose tests take longest.
var long = []string{"/test/etcd", "/test/system", "/cmd/tombolo", "/internal/stream/carrier",
	"/internal/discovery/discoveryclient", "/test/scale"}

// longFirst puts them before the others, so that none of them runs alone at the end.
func longFirst(packages []string) []string {
	rank := func(p string) int {
		if i := slices.IndexFunc(long, func(end string) bool { return strings.HasSuffix(p, end) }); i >= 0 {
			return i
		}
		return len(long)
	}
	return slices.SortedStableFunc(slices.Values(packages), func(a, b string) int { return rank(a) - rank(b) })
}

// counts runs the tests with large numbers in full, without the race detector, so that promised bounds
// are tested and not only a fraction of them.
func (c config) counts(s *stageRun) error {
	packages, names, err := c.tagged("counts")
	if err != nil {
		return err
	}
	run := c.suiteOf(packages...)
	run.only = names
	return s.test(run, "-tags", "counts", "-count=1")
}

// pilot runs the tests that ask Istio. Their program is built in advance, where its progress is visible.
func (c config) pilot(s *stageRun) error {
	packages, names, err := c.tagged("pilot")
	if err != nil {
		return err
	}
	if err := s.do(command{dir: c.root, args: []string{"go", "run", "./test/kube/tools/build", "pilot"}}); err != nil {
		return err
	}
	run := c.suiteOf(packages...)
	run.only, run.verbose, run.noSkips = names, true, true
	return s.test(run, "-tags", "pilot", "-count=1", atATime("parallel"), "-timeout", "20m")
}

// errNotRoot is the error without the permission for network namespaces.
var errNotRoot = errors.New("network namespaces need root: run it as root, " +
	"or run `make lint test-unit`, which needs none")

func (c config) lab(s *stageRun) error {
	if os.Geteuid() != 0 {
		return errNotRoot
	}
	packages, names, err := c.tagged("lab")
	if err != nil {
		return err
	}
	if err := c.etcd(s); err != nil {
		return err
	}
	within := "20m"
	if os.Getenv("TOMBOLO_LAB_GRID") == "whole" { // each pair with the program itself
		within = "1h"
	}
	// Packages run beside each other, each in namespaces of its own. The mesh runs alone: some of its
	// tests count single packets. Its other tests wait most of the time and run beside each other.
	mesh := func(p string) bool { return p == "./test/lab/mesh" }
	alone := slices.DeleteFunc(slices.Clone(packages), func(p string) bool { return !mesh(p) })
	beside := slices.DeleteFunc(packages, mesh)
	var failed []error
	for _, packages := range [][]string{beside, alone} {
		run := c.suiteOf(packages...)
		run.only, run.verbose, run.noSkips, run.planted = names, true, true, true
		failed = append(failed, s.test(run, "-tags", "lab", "-count=1", atATime("p"), atATime("parallel"), "-timeout",
			within))
	}
	return errors.Join(failed...)
}

// qemu runs the tests that boot a kernel of their own. It is fetched in advance, where its progress is visible.
func (c config) qemu(s *stageRun) error {
	packages, names, err := c.tagged("qemu")
	if err != nil {
		return err
	}
	if err := s.do(command{dir: c.root, args: []string{"go", "run", "./test/qemu/fetch"}}); err != nil {
		return err
	}
	run := c.suiteOf(packages...)
	run.only, run.verbose, run.noSkips = names, true, true // secrets are made in the guest and end with it
	return s.test(run, "-tags", "qemu", "-count=1", "-timeout", "20m")
}

// atATime is a flag of go test for more packages or tests at a time than there are processors.
func atATime(name string) string { return fmt.Sprintf("-%s=%d", name, runtime.NumCPU()+waiting) }

func (c config) kubernetes(s *stageRun) error {
	if os.Geteuid() != 0 {
		return errNotRoot
	}
	packages, names, err := c.tagged("kube")
	if err != nil {
		return err
	}
	var failed []error
	for _, version := range c.kube {
		steps := []command{
			{dir: c.root, args: []string{"go", "run", "./test/kube/tools/build", version}},
			{dir: c.root, args: []string{"make", "--no-print-directory", "image"}},
		}
		for _, step := range steps {
			if err = s.do(step); err != nil {
				break
			}
		}
		if err == nil {
			run := c.suiteOf(packages...)
			run.only, run.verbose, run.noSkips, run.planted = names, true, true, true
			run.env = []string{"TOMBOLO_KUBE_VERSION=" + version}
			err = s.test(run, "-tags", "kube", "-count=1", "-p=1", "-timeout", "30m")
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("kubernetes %s: %w", version, err))
		}
	}
	return errors.Join(failed...)
}

func (c config) suiteOf(packages ...string) testRun {
	return testRun{dir: c.root, packages: packages, pattern: c.run}
}

// constraint is the line of a file that only one stage compiles.
func constraint(tag string) *regexp.Regexp {
	return regexp.MustCompile(`(?m)^//go:build (.*\W)?` + tag + `\b`)
}

// aTest is where a test begins.
var aTest = regexp.MustCompile(`(?m)^func (Test\w*)\((?:\w+ )?\*testing\.T\)`)

// tagged finds the packages with tests of a stage, in any folder, so that none is
// forgotten, and the names of these tests: other tests in the same packages belong to the
// stage unit.
func (c config) tagged(tag string) (packages, names []string, err error) {
	tagged := constraint(tag)
	packages, err = c.packagesOf(func(file string, data []byte) bool {
		if !strings.HasSuffix(file, "_test.go") || !tagged.Match(data) {
			return false
		}
		for _, found := range aTest.FindAllSubmatch(data, -1) {
			names = append(names, string(found[1]))
		}
		return true
	})
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("no test carries //go:build %s: this stage would prove nothing", tag)
	}
	slices.Sort(names)
	return packages, slices.Compact(names), err
}

// packagesOf returns the folders of the Go files that chosen selects, each once.
func (c config) packagesOf(chosen func(file string, data []byte) bool) ([]string, error) {
	files, err := c.goFiles()
	if err != nil {
		return nil, err
	}
	var packages []string
	for _, file := range files {
		data, err := os.ReadFile(filepath.Join(c.root, file))
		if err != nil {
			return nil, err
		}
		if chosen(file, data) && !slices.Contains(packages, folder(file)) {
			packages = append(packages, folder(file))
		}
	}
	return packages, nil
}

// folder is the pattern of go test for the package of a file.
func folder(file string) string { return "./" + filepath.ToSlash(filepath.Dir(file)) }
