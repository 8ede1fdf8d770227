// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// benchstat compares two files in the format of Go's benchmarks.
const benchstat = "golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da"

// loadResults reads the results of an earlier run.
func loadResults(path string) (header, []record, error) {
	f, err := os.Open(path)
	if err != nil {
		return header{}, nil, fmt.Errorf("the run to compare with: %w", err)
	}
	defer f.Close()
	h, records, err := readResults(f)
	if err != nil {
		return h, nil, fmt.Errorf("%s is not the results.jsonl of a run: %w", path, err)
	}
	return h, records, nil
}

// writeBenchmarks writes samples as results of Go benchmarks, each round a line.
func writeBenchmarks(w io.Writer, h header, records []record) {
	fmt.Fprintf(w, "cpu: %s\nkernel: %s\ntoolchain: %s\n", h.CPU, h.Kernel, h.Go)
	for _, m := range order() {
		better := "higher"
		if units()[m].lower {
			better = "lower"
		}
		if !units()[m].quiet {
			fmt.Fprintf(w, "Unit %s better=%s\n", units()[m].name, better)
		}
	}
	for _, r := range records {
		var figures strings.Builder
		for _, m := range order() {
			if v, ok := r.Values[m]; ok && !units()[m].quiet {
				fmt.Fprintf(&figures, " %g %s", v, units()[m].name)
			}
		}
		name := strings.ToUpper(r.Measurement[:1]) + r.Measurement[1:]
		fmt.Fprintf(w, "Benchmark%s/%s/%s 1%s\n", name, r.Variant, r.Transport, figures.String())
	}
}

// saved is a run that was read from a file.
type saved struct {
	header  header
	records []record
}

// compareRuns prints what benchstat says about an earlier run and this one.
func (b *bench) compareRuns(ctx context.Context, before, now saved) error {
	var files []string
	for _, run := range []struct {
		name string
		saved
	}{{"before", before}, {"now", now}} {
		var text bytes.Buffer
		writeBenchmarks(&text, run.header, run.records)
		path := filepath.Join(b.out, run.name+".txt")
		if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
			return err
		}
		files = append(files, run.name+"="+path)
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{"run", benchstat}, files...)...)
	// benchstat's module is its own: ours must not be asked for it.
	cmd.Env = append(slices.Clone(os.Environ()), "GOFLAGS=-mod=mod")
	cmd.Stdout, cmd.Stderr = b.stdout, b.stderr
	if err := cmd.Run(); err != nil {
		return errors.Join(fmt.Errorf("benchstat failed; its input is %s", strings.Join(files, " and ")), err)
	}
	return nil
}
