// SPDX-License-Identifier: Apache-2.0

// Command suite runs the checks of the repository in stages, shows progress and
// ends with a summary whose last line is "N passed, N failed, N skipped", of all
// stages. `make test` is `suite all`; each other test target is one stage. It does
// not know what a test does: it runs `go test -json` and counts.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func main() {
	if err := suite(os.Args[1:]); err != nil {
		if text := err.Error(); text != "" {
			fmt.Fprintln(os.Stderr, "error:", text)
		}
		var code exitCode
		if errors.As(err, &code) {
			os.Exit(int(code))
		}
		os.Exit(1)
	}
}

// exitCode ends the program without further output, after the summary.
type exitCode int

func (exitCode) Error() string { return "" }

const (
	exitFailed      = exitCode(1)
	exitUsage       = exitCode(2)
	exitInterrupted = exitCode(130)
)

// kubeEveryDay is the default version of Kubernetes, as KUBE in the Makefile.
const kubeEveryDay = "1.35"

func suite(args []string) error {
	fs := flag.NewFlagSet("suite", flag.ContinueOnError)
	kube := fs.String("kube", kubeEveryDay, "minor `VERSIONS` of Kubernetes for the kube stage, separated by commas")
	run := fs.String("run", "", "run only tests that match this `PATTERN`, in every stage of tests")
	fs.Usage = func() {
		fmt.Fprintln(fs.Output(), "usage: suite [flags] all|STAGE...")
		fs.PrintDefaults()
		for _, s := range stages(config{}) {
			fmt.Fprintf(fs.Output(), "  %-8s %s\n", s.name, s.title)
		}
	}
	if err := fs.Parse(args); err != nil {
		return exitUsage
	}
	root, err := findRoot()
	if err != nil {
		return err
	}
	if err := compileOneWay(root); err != nil {
		return err
	}
	cache, err := cacheDir()
	if err != nil {
		return err
	}
	cfg := config{root: root, cache: cache, kube: strings.Split(*kube, ","), run: *run}
	chosen, err := choose(stages(cfg), fs.Args())
	if err != nil {
		return err
	}
	r := newRunner(os.Stdout, time.Now)
	defer r.close()
	return r.runAll(chosen)
}

// compileOneWay sets the flags of make build, without C and with -trimpath, for everything
// that the suite starts: then only the race detector compiles packages again, and another
// checkout finds them in the cache.
func compileOneWay(root string) error {
	flags, err := output(root, "go", "env", "GOFLAGS")
	if err != nil {
		return err
	}
	return errors.Join(os.Setenv("GOFLAGS", strings.TrimSpace(flags+" -trimpath")), os.Setenv("CGO_ENABLED", "0"))
}

// config has the settings from the command line and the environment.
type config struct {
	root  string
	cache string
	kube  []string
	run   string
}

// choose picks the stages that the command line names, in the order of the table.
func choose(all []stage, names []string) ([]stage, error) {
	if len(names) == 1 && names[0] == "all" {
		return all, nil
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no stage is named: say all, or some of %s", stageNames(all))
	}
	for _, name := range names {
		if !slices.ContainsFunc(all, func(s stage) bool { return s.name == name }) {
			return nil, fmt.Errorf("there is no stage %q: the stages are %s", name, stageNames(all))
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(s stage) bool { return !slices.Contains(names, s.name) }), nil
}

func stageNames(all []stage) string {
	var names []string
	for _, s := range all {
		names = append(names, s.name)
	}
	return strings.Join(names, ", ")
}

// findRoot goes up to the folder of the main module.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(data), "module github.com/tombolo-io/tombolo\n") {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("this is not a checkout of tombolo: no go.mod of the main module here or above")
		}
		dir = parent
	}
}

// cacheDir is where slow artefacts live: $TOMBOLO_CACHE, or ~/.cache/tombolo.
func cacheDir() (string, error) {
	if dir := os.Getenv("TOMBOLO_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("there is no home directory for the cache: %w; set TOMBOLO_CACHE", err)
	}
	return filepath.Join(home, ".cache", "tombolo"), nil
}
