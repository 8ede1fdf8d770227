// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/test/lab"
)

// bench is one run.
type bench struct {
	options
	lab     *lab.Lab
	creds   *credentials
	targets []target
	results *results
	stdout  io.Writer
	stderr  io.Writer
	noMux   error            // why our own mux is left out
	left    map[string]error // measurements that cannot be taken here, and why
	cables  int              // of the lab, so far
	losses  []*lab.Filter    // on them
}

// values are the figures of one sample, by metric.
type values map[metric]float64

// measurement is one kind of sample, taken on several transports in turns.
type measurement struct {
	name       string
	about      string
	transports []string // of a full run; a -transports selects from and adds to them
	family     family   // of its transports
	variants   []string
	main       metric // for the column of ratios
	against    string // the transport that ratios refer to
	// fresh asks for new processes for each sample, because one leaves traces.
	fresh bool
	// unless says why it cannot be measured here, or nil.
	unless func(*bench) error
	wedges bool // something that is compared may stand still for good
	rounds int  // where the command line says nothing; 0: as many as the run
	busy   bool // processes that are not counted work for it
	crew   func(ctx context.Context, b *bench, transport string) (*crew, error)
	sample func(ctx context.Context, b *bench, c *crew, s sample) (values, error)
	// whole takes all samples in place of crew and sample.
	whole func(ctx context.Context, b *bench, rounds int) ([]record, error)
}

// sample says which one is taken.
type sample struct {
	measurement, variant, transport string
	round                           int
	profile                         string // where profiles go; empty: none
}

// runAll is the program; code is its exit code.
func runAll(ctx context.Context, args []string) (code int, err error) {
	o, err := parseOptions(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0, nil
	}
	if err != nil {
		return 2, err
	}
	b := &bench{options: o, targets: targets(o.lanes), stdout: os.Stdout, stderr: os.Stderr, noMux: muxWorks(), left: map[string]error{}}
	var before saved
	if o.compare != "" { // read now: this run may write to the same place
		if before.header, before.records, err = loadResults(o.compare); err != nil {
			return 2, err
		}
	}
	if b.creds, err = newCredentials(time.Now()); err != nil {
		return 1, err
	}
	if b.lab, err = lab.New("bench"); err != nil {
		return 1, err
	}
	defer func() { code, err = failing(code, errors.Join(err, b.lab.Close())) }()
	head := describe(o, time.Now())
	if b.results, err = createResults(filepath.Join(o.out, "results.jsonl"), head); err != nil {
		return 1, err
	}
	defer func() { code, err = failing(code, errors.Join(err, b.results.Close())) }()
	if b.noMux != nil {
		b.say("our own mux is left out: %v", b.noMux)
	}
	begin := time.Now()
	short, err := b.all(ctx)
	if err != nil {
		return 1, err
	}
	b.say("took %v; samples are in %s", time.Since(begin).Round(time.Second), filepath.Join(o.out, "results.jsonl"))
	if o.compare != "" {
		if err := b.compareRuns(ctx, before, saved{head, b.results.records}); err != nil {
			return 1, err
		}
	}
	return o.gate(short), nil
}

// gate is the exit code of a run whose measurements were taken: the quick one fails when
// a target is not met.
func (o options) gate(short bool) int {
	if short && o.quick {
		return 1
	}
	return 0
}

// failing makes sure that an error has an exit code.
func failing(code int, err error) (int, error) {
	if err != nil {
		code = max(code, 1)
	}
	return code, err
}

// all takes every measurement of the run and prints it; short says that a target is not met.
func (b *bench) all(ctx context.Context) (short bool, err error) {
	var taken []string
	for _, m := range b.plan() {
		if err := b.measureAll(ctx, m); err != nil {
			return false, fmt.Errorf("%s: %w", m.name, err)
		}
		taken = append(taken, m.name)
		if !b.quick {
			printTable(b.stdout, m, b.results.records)
		}
	}
	if !b.quick {
		if len(b.only)+len(b.transports) > 0 {
			return false, nil
		}
		fmt.Fprintln(b.stdout, "\ntargets:")
	}
	return printTargets(b.stdout, b.targets, b.results.records, taken, b.left), nil
}

func (b *bench) say(format string, args ...any) { fmt.Fprintf(b.stderr, format+"\n", args...) }

// plan is the measurements of this run with their transports.
func (b *bench) plan() []measurement {
	quick := quickPlan(b.lanes)
	var out []measurement
	for _, m := range measurements() {
		if len(b.only) > 0 && !slices.Contains(b.only, m.name) {
			continue
		}
		if b.quick {
			q, ok := quick[m.name]
			if !ok {
				continue
			}
			m.transports, m.variants, m.rounds = q.transports, q.variants, q.rounds
		}
		if m.transports = b.selected(m); len(m.transports) == 0 {
			continue
		}
		if m.unless != nil {
			if err := m.unless(b); err != nil {
				b.say("%s is left out: %v", m.name, err)
				b.left[m.name] = err
				continue
			}
		}
		out = append(out, m)
	}
	return out
}

// selected is the transports of a measurement that this run wants and can have.
func (b *bench) selected(m measurement) []string {
	want := m.transports
	if len(b.transports) > 0 {
		want = nil
		for _, name := range b.transports {
			if familyOf(name) == m.family {
				want = append(want, name)
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(want), func(name string) bool {
		t, err := parseTransport(name)
		return b.noMux != nil && err == nil && t.Kind == kindMux
	})
}

// measureAll takes all samples of a measurement: in each round each case on each
// transport, and each round begins with another transport.
func (b *bench) measureAll(ctx context.Context, m measurement) error {
	begin := time.Now()
	if m.whole != nil {
		records, err := m.whole(ctx, b, b.roundsOf(m))
		for _, r := range records {
			err = errors.Join(err, b.results.add(r))
		}
		b.say("%-12s %d rounds, %.0f s", m.name, b.roundsOf(m), time.Since(begin).Seconds())
		return err
	}
	crews := map[string]*crew{}
	defer func() {
		for _, c := range crews {
			c.stop()
		}
	}()
	if !m.fresh {
		for _, name := range m.transports {
			c, err := m.crew(ctx, b, name)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			crews[name] = c
		}
	}
	rounds := b.roundsOf(m)
	for round := range rounds {
		for _, variant := range m.variants {
			for i := range m.transports {
				name := m.transports[(i+round)%len(m.transports)]
				s := sample{measurement: m.name, variant: variant, transport: name, round: round}
				err := b.one(ctx, m, crews[name], s)
				for tries := 0; err != nil && m.wedges && tries < mostWedges; tries++ {
					b.say("%-12s %s stands still, and is started again: %v", m.name, name, err)
					if err = b.restart(ctx, m, name, crews); err == nil {
						err = b.one(ctx, m, crews[name], s)
					}
				}
				if err != nil {
					return fmt.Errorf("%s %s, round %d: %w", name, variant, round+1, err)
				}
			}
		}
		b.say("%-12s round %d of %d, %.0f s", m.name, round+1, rounds, time.Since(begin).Seconds())
	}
	b.warnOfOthers(m)
	return nil
}

// mostWedges bounds how often a sample is taken again.
const mostWedges = 3

// restart starts the processes of a transport again.
func (b *bench) restart(ctx context.Context, m measurement, name string, crews map[string]*crew) error {
	if m.fresh {
		return nil
	}
	crews[name].stop()
	c, err := m.crew(ctx, b, name)
	if err == nil {
		crews[name] = c
	}
	return err
}

// warnOfOthers says when something else kept the machine busy. Kernel threads
// and a path's process, which belong to a measurement of paths, count as others.
func (b *bench) warnOfOthers(m measurement) {
	const much = 0.2 // cores
	var seen []float64
	for _, r := range b.results.records {
		if v, ok := r.Values[others]; ok && r.Measurement == m.name {
			seen = append(seen, v)
		}
	}
	if s := summarize(seen); !m.busy && s.N > 0 && s.Median > much {
		b.say("%-12s other processes kept %.1f cores busy meanwhile: repeat it on a quiet machine before you believe a figure", m.name, s.Median)
	}
}

// one takes one sample and records it.
func (b *bench) one(ctx context.Context, m measurement, c *crew, s sample) error {
	if c == nil {
		var err error
		if c, err = m.crew(ctx, b, s.transport); err != nil {
			return err
		}
		defer c.stop()
	}
	if b.profile {
		s.profile = filepath.Join(b.out, "profiles", fmt.Sprintf("%s-%s-%s-round%d", s.measurement, s.variant, s.transport, s.round+1))
	}
	c.foreign = math.NaN()
	v, err := m.sample(ctx, b, c, s)
	if err != nil {
		return err
	}
	if !math.IsNaN(c.foreign) {
		v[others] = c.foreign
	}
	return b.results.add(record{Measurement: s.measurement, Variant: s.variant, Transport: s.transport, Round: s.round, Values: v})
}

// roundsOf is how many rounds a measurement has: what the command line says, or
// what the measurement does, which does not need as many or needs more.
func (b *bench) roundsOf(m measurement) int {
	if m.rounds == 0 || b.fixed {
		return b.rounds
	}
	return m.rounds
}

// defaultLanes is how many connections the product's sessions may have here.
func defaultLanes() int { return max(2, min(4, 2*runtime.NumCPU())) }
