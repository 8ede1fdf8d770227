// SPDX-License-Identifier: Apache-2.0

// Command chaos lets everything go wrong that we know how to, while honest callers
// dial and check every byte: killed and stopped hubs and agents, peers that say
// nothing, slow readers, hostile unknown peers and callers, a full disk, certificates
// that run out. Afterwards the history of all streams is held against the audit.
//
//	go run ./test/chaos -for 2m -tombolo bin/tombolo
//
// Before that a discovery service is played with: killed with its last snapshot
// torn, stopped, cut off from its watchers, attacked, without room on its disk; and
// three that share an etcd behind load balancers: killed, restarted, cut off from
// etcd, which is killed and stopped too. What watchers saw is held against what
// members did.
//
// The hub and the agents are the real program, in processes of their own. What it
// cannot do from outside, such as a clock that jumps, tests do inside: see
// docs/concepts/security.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/roles"
)

func main() {
	roles.Main("chaos", func(role string) error { return fmt.Errorf("there is no role %q", role) }, runAll)
}

// options are the command line.
type options struct {
	length  time.Duration
	program string
	floods  int
	seed    uint64
	logs    string        // folder for the logs of the processes; empty: they are not kept
	workers int           // of honest load, for each cluster
	meeting time.Duration // of the mishaps of a discovery service; 0: none
	fleet   time.Duration // of those of several that share etcd; 0: none
	pace    pace
	apart   bool // a mistake that tests plant: one of several discovery services shares nothing with the others
}

// pace is how long things last.
type pace struct {
	fault time.Duration // what is wrong stays so
	calm  time.Duration // between two faults
	life  time.Duration // of an agent's certificate
	last  time.Duration // until every watcher has the last words
}

func fullPace() pace {
	return pace{fault: 6 * time.Second, calm: 4 * time.Second, life: 45 * time.Second, last: time.Minute}
}

func parseOptions(args []string) (o options, err error) {
	f := flag.NewFlagSet("chaos", flag.ContinueOnError)
	f.DurationVar(&o.length, "for", 20*time.Minute, "how long in all; what was begun is finished")
	f.DurationVar(&o.meeting, "discovery", -1, "how long a discovery service is played with, before the hub (0: not at all; default: a quarter of -for)")
	f.DurationVar(&o.fleet, "replicas", -1, "how long several discovery services with etcd are played with, after that (0: not at all; default: a quarter of -for)")
	f.StringVar(&o.program, "tombolo", "bin/tombolo", "the program")
	f.IntVar(&o.floods, "floods", 0, "run the floods of test/system first, so many times longer (needs go; 0: do not)")
	f.StringVar(&o.logs, "logs", "", "keep the logs of hub and agents in this folder")
	f.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "of the order of things; printed, so that a run can be had again")
	f.IntVar(&o.workers, "workers", 8, "honest callers of each cluster")
	o.pace = fullPace()
	if err := f.Parse(args); err != nil {
		return o, err
	}
	given := map[string]bool{}
	f.Visit(func(one *flag.Flag) { given[one.Name] = true })
	for name, of := range map[string]*time.Duration{"discovery": &o.meeting, "replicas": &o.fleet} {
		if !given[name] {
			*of = o.length / 4
		}
	}
	if f.NArg() > 0 || o.length <= 0 || o.workers < 1 || o.meeting < 0 || o.fleet < 0 {
		return o, errors.New("chaos takes flags with positive values and no arguments")
	}
	return o, nil
}

// runAll is the program; code is its exit code.
func runAll(ctx context.Context, args []string) (code int, err error) {
	return roles.Judge(args, parseOptions, func(o options) (short bool, err error) {
		d := &driver{options: o, stdout: os.Stdout, stderr: os.Stderr}
		err = d.all(ctx)
		return d.short(), err
	})
}

// driver is one run.
type driver struct {
	options
	stdout, stderr io.Writer
	began          time.Time
	lines          []line
}

func (d *driver) say(format string, args ...any) {
	fmt.Fprintf(d.stderr, "%6.1fs  "+format+"\n", append([]any{time.Since(d.began).Seconds()}, args...)...)
}

func (d *driver) all(ctx context.Context) error {
	d.began = time.Now()
	d.say("seed %d", d.seed)
	if d.floods > 0 {
		if err := d.flood(ctx); err != nil {
			return err
		}
	}
	return roles.InLab("chaos", func(l *lab.Lab) error {
		if d.meeting > 0 {
			if err := d.meet(ctx, l); err != nil {
				return err
			}
		}
		if d.fleet > 0 {
			if err := d.meetFleet(ctx, l); err != nil {
				return err
			}
		}
		if err := d.live(ctx, l); err != nil {
			return err
		}
		return printLines(d.stdout, d.lines)
	})
}

func (d *driver) live(ctx context.Context, l *lab.Lab) (err error) {
	w, err := newWorld(ctx, d, l)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.live(ctx); err != nil {
		return fmt.Errorf("%w\nthe hub's last words:\n%s", err, w.lastWords())
	}
	return nil
}
