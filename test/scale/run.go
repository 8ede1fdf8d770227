// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/roles"
)

// runner is one run.
type runner struct {
	options
	lab     *lab.Lab
	results *roles.Results
	stdout  io.Writer
	stderr  io.Writer
	sites   int // so far, for their addresses
	lines   []line
}

// measurement takes figures and says what lines come of them.
type measurement struct {
	name string
	take func(ctx context.Context, r *runner) error
}

func measurements() []measurement {
	return []measurement{
		{"sessions", takeSessions}, {"streams", takeStreams}, {"dials", takeDials},
		{"storm", takeStorm}, {"policy", takePolicy}, {"neighbour", takeNeighbour}, {"soak", takeSoak},
		{"members", takeMembers}, {"updates", takeUpdates}, {"watchers", takeWatchers},
	}
}

func names() (out []string) {
	for _, m := range measurements() {
		out = append(out, m.name)
	}
	return out
}

// runAll is the program; code is its exit code.
func runAll(ctx context.Context, args []string) (code int, err error) {
	return roles.Judge(args, parseOptions, func(o options) (short bool, err error) {
		r := &runner{options: o, stdout: os.Stdout, stderr: os.Stderr}
		err = r.all(ctx)
		return r.short(), err
	})
}

// all takes every measurement of the run and prints its lines. Whatever was
// started is gone when it returns.
func (r *runner) all(ctx context.Context) error {
	return roles.InLab("scale", func(l *lab.Lab) error {
		r.lab = l
		return r.measure(ctx)
	})
}

func (r *runner) measure(ctx context.Context) (err error) {
	if r.results, err = roles.CreateResults(filepath.Join(r.out, "scale.jsonl"), describe(r.options, time.Now())); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.results.Close()) }()
	begin := time.Now()
	for _, m := range measurements() {
		if len(r.only) > 0 && !slices.Contains(r.only, m.name) {
			continue
		}
		began, busy, own := time.Now(), roles.BusyTime(), ownTime()
		if err := m.take(ctx, r); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		r.others(m.name, (roles.BusyTime()-busy-ownTime()+own).Seconds()/time.Since(began).Seconds())
	}
	r.say("took %v; the curves are in %s", time.Since(begin).Round(time.Second), filepath.Join(r.out, "scale.jsonl"))
	return printLines(r.stdout, r.lines)
}

// ownTime is the processor time of this process and of those that it started and
// that have ended.
func ownTime() time.Duration {
	sum := roles.CPUTime()
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_CHILDREN, &u) == nil {
		sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return sum
}

// others says when something else kept the machine busy.
func (r *runner) others(name string, cores float64) {
	const much = 0.2
	if cores > much {
		r.say("%-10s other processes kept %.1f cores busy meanwhile: repeat it on a quiet machine before you believe a latency", name, cores)
	}
}

func (r *runner) say(format string, args ...any) { fmt.Fprintf(r.stderr, format+"\n", args...) }

// line judges a figure and writes it down.
func (r *runner) line(l line) error {
	r.lines = append(r.lines, l)
	r.say("%s", l)
	return r.results.Add(l.record())
}

// short says that a line is not met.
func (r *runner) short() bool {
	return slices.ContainsFunc(r.lines, func(l line) bool { return l.verdict() == short })
}
