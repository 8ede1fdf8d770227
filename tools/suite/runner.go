// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// errNothingRan fails a stage that would prove nothing.
var errNothingRan = errors.New("no test ran: this proves nothing")

// silence is how long a stage may say nothing before the runner says that it lives.
const silence = 30 * time.Second

// runner runs stages one after another.
type runner struct {
	now   func() time.Time
	began time.Time
	procs *processes

	mu   sync.Mutex
	out  io.Writer
	last time.Time // when something was printed
}

// result is a row of the summary.
type result struct {
	name  string
	state string // ok, FAIL, not run
	tally
	took time.Duration
}

func newRunner(out io.Writer, now func() time.Time) *runner {
	r := &runner{now: now, began: now(), out: out, last: now()}
	r.procs = newProcesses(func(format string, args ...any) { r.say("== "+format, args...) })
	return r
}

func (r *runner) close() { r.procs.close() }

// say prints one line.
func (r *runner) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = r.now()
	fmt.Fprintf(r.out, format+"\n", args...)
}

// headline prints a line with the time since the beginning.
func (r *runner) headline(format string, args ...any) {
	d := r.now().Sub(r.began).Round(time.Second)
	r.say("[%2d:%02d] %s", int(d.Minutes()), int(d.Seconds())%60, fmt.Sprintf(format, args...))
}

func (r *runner) runAll(stages []stage) error {
	var results []result
	bad := map[string]bool{}
	for i, s := range stages {
		res := result{name: s.name, state: "not run"}
		if blocker := firstOf(s.needs, bad); r.procs.wasInterrupted() || blocker != "" {
			if blocker != "" {
				r.headline("%d/%d %s: not run, because %s failed", i+1, len(stages), s.name, blocker)
				res.failed, bad[s.name] = 1, true
			}
			results = append(results, res)
			continue
		}
		r.headline("%d/%d %s: %s", i+1, len(stages), s.name, s.title)
		begin := r.now()
		run := &stageRun{runner: r}
		err := run.alive(s.run)
		if err == nil && run.tested && run.passed+run.failed == 0 {
			err = errNothingRan // the pattern of -run matches nothing
		}
		res.tally, res.took, res.state = run.tally, r.now().Sub(begin), "ok"
		if err != nil && res.failed == 0 {
			res.failed = 1 // a check that is no test, or one that was interrupted
		}
		if err != nil || res.failed > 0 {
			res.state, bad[s.name] = "FAIL", true
			if err != nil {
				r.say("  FAIL  %s: %s", s.name, strings.ReplaceAll(err.Error(), "\n", "\n        "))
			}
		}
		results = append(results, res)
	}
	return r.summary(results)
}

func firstOf(names []string, in map[string]bool) string {
	for _, name := range names {
		if in[name] {
			return name
		}
	}
	return ""
}

// summary prints the table and the closing line.
func (r *runner) summary(results []result) error {
	var total tally
	r.headline("summary")
	r.say("  %-8s %-8s %7s %7s %7s %8s", "stage", "result", "passed", "failed", "skipped", "seconds")
	for _, res := range results {
		r.say("  %-8s %-8s %7d %7d %7d %8.1f", res.name, res.state, res.passed, res.failed, len(res.skips),
			res.took.Seconds())
		total.add(res.tally)
	}
	for _, t := range total.slowest(20) {
		r.say("  slow: %6.1f s  %s", t.seconds, t.test)
	}
	skipped := len(total.skips)
	slices.Sort(total.skips) // one that two stages run is named once
	for _, skip := range slices.Compact(total.skips) {
		r.say("  skipped: %s", skip)
	}
	if r.procs.wasInterrupted() {
		r.say("interrupted: the result is not complete")
	}
	r.say("%d passed, %d failed, %d skipped", total.passed, total.failed, skipped)
	switch {
	case r.procs.wasInterrupted():
		return exitInterrupted
	case total.failed > 0:
		return exitFailed
	}
	return nil
}

// stageRun is one stage on its way.
type stageRun struct {
	*runner
	tally
	tested bool // it ran go test

	doing struct {
		sync.Mutex
		what  string
		since time.Time
	}
}

// alive runs the stage and says so when it is silent for long.
func (s *stageRun) alive(run func(*stageRun) error) error {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				s.nudge()
			}
		}
	}()
	err := run(s)
	close(stop)
	<-stopped
	return err
}

func (s *stageRun) nudge() {
	s.mu.Lock()
	quiet := s.now().Sub(s.last)
	s.mu.Unlock()
	if quiet < silence {
		return
	}
	s.doing.Lock()
	what, took := s.doing.what, s.now().Sub(s.doing.since)
	s.doing.Unlock()
	s.headline("  still running: %s (%.0f s)", what, took.Seconds())
}

func (s *stageRun) begin(what string) {
	s.doing.Lock()
	defer s.doing.Unlock()
	s.doing.what, s.doing.since = what, s.now()
}

// do runs a command and shows what it prints.
func (s *stageRun) do(c command) error {
	what := c.show
	if what == "" {
		what = strings.Join(c.args, " ")
	}
	s.begin(what)
	s.say("  %s", what)
	lines := &lineWriter{show: func(line string) { s.say("    %s", line) }}
	defer lines.flush()
	out := c.out
	if out == nil {
		out = lines
	}
	if err := s.procs.run(c, out, lines); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// testRun is one run of go test.
type testRun struct {
	dir      string
	packages []string
	pattern  string
	only     []string // names of tests; pattern goes before them
	env      []string
	verbose  bool // a line for each test
	noSkips  bool // a skipped test is a failure
	planted  bool // its tests plant secrets; see evidence
}

// test runs go test and counts.
func (s *stageRun) test(t testRun, flags ...string) error {
	// Lint vets each file with more checks than go test has, once and not in every stage.
	args := append([]string{"go", "test", "-json", "-vet=off"}, flags...)
	if t.pattern != "" {
		args = append(args, "-run", t.pattern)
	}
	what := strings.Join(args, " ")
	if t.pattern == "" && len(t.only) > 0 {
		args = append(args, "-run", "^("+strings.Join(t.only, "|")+")$")
		what += fmt.Sprintf(" -run %d tests", len(t.only))
	}
	s.begin(what)
	s.say("  %s: %d %s", what, len(t.packages), plural(len(t.packages), "pattern"))
	count := newCounter(t.verbose, s.say)
	lines := &lineWriter{show: func(line string) { s.say("    %s", line) }}
	tmp, err := newScratch()
	if err != nil {
		return err
	}
	planted, err := newEvidence()
	if err != nil {
		return err
	}
	kept, err := planted.output()
	if err != nil {
		return err
	}
	run := command{dir: t.dir, env: append(t.env, "TMPDIR="+tmp.dir, plantedFolder+"="+planted.dir),
		args: append(args, t.packages...)}
	err = s.procs.run(run, io.MultiWriter(count, kept), lines)
	lines.flush()
	count.cut()
	if err != nil {
		err = fmt.Errorf("go test: %w", err)
	}
	err = errors.Join(err, kept.Close(), s.sweep(tmp))
	if !s.procs.wasInterrupted() {
		err = errors.Join(err, planted.check(t.planted && t.pattern == ""))
	}
	err = errors.Join(err, planted.remove())
	if t.noSkips && len(count.skips) > 0 {
		count.failed += len(count.skips)
		err = errors.Join(err, fmt.Errorf("skipped %d %s: in this stage each has to run", len(count.skips),
			plural(len(count.skips), "test")))
		count.skips = nil
	}
	s.add(count.tally)
	s.tested = true
	if err == nil && count.passed+count.failed == 0 && t.pattern == "" {
		err = errNothingRan
	}
	return err
}

// sweep removes the temporary files of a run. What tests leave is a failure,
// unless they were interrupted.
func (s *stageRun) sweep(tmp *scratch) error {
	left, err := tmp.left()
	if len(left) > 0 && !s.procs.wasInterrupted() {
		err = errors.Join(err, fmt.Errorf("tests left temporary files behind: %s", strings.Join(left, ", ")))
	}
	return errors.Join(err, tmp.remove())
}

// lineWriter shows whole lines.
type lineWriter struct {
	mu   sync.Mutex
	rest string
	show func(string)
}

func (w *lineWriter) Write(data []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rest += string(data)
	for {
		line, rest, ok := strings.Cut(w.rest, "\n")
		if !ok {
			return len(data), nil
		}
		w.show(line)
		w.rest = rest
	}
}

func (w *lineWriter) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rest != "" {
		w.show(w.rest)
		w.rest = ""
	}
}
