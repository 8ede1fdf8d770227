// SPDX-License-Identifier: Apache-2.0

//go:build lab

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/roles"
)

// These tests need no namespaces. They are of the stage lab because they promise that nobody is hurt who has no
// fault, and the load of the unit tests is a fault of everybody.

// TestShort plays each part for one round of short faults.
func TestShort(t *testing.T) {
	bin := runtest.Program(t)
	t.Run("beside each other", func(t *testing.T) {
		t.Run("streams", func(t *testing.T) {
			t.Parallel()
			streamsShort(t, bin)
		})
		t.Run("one discovery service", func(t *testing.T) {
			t.Parallel()
			meetShort(t, bin, 10, time.Second, (*driver).meet)
		})
	})
	// It has many processes.
	t.Run("three that share an etcd", func(t *testing.T) { meetShort(t, bin, 8, 400*time.Millisecond, (*driver).meetFleet) })
	t.Run("three that fail", func(t *testing.T) { fleetThatFails(t, bin) })
}

func streamsShort(t *testing.T, bin string) {
	var table, log bytes.Buffer
	d := &driver{stdout: &table, stderr: &log, options: options{
		length: time.Second, program: bin, seed: 1, workers: 2,
		// A third of the life is left for a renewal: longer than the hub takes to restart.
		pace: pace{fault: time.Second, calm: 200 * time.Millisecond, life: 8 * time.Second},
	}}
	if err := d.all(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	for _, l := range d.lines {
		// How many streams and how fast is the machine's business.
		if name, value, target, verdict := l.cells(); l.short() && !strings.HasPrefix(name, "streams that ended whole") && l.unit != " s" {
			t.Errorf("%s: %s, %s: %s", name, value, target, verdict)
		}
	}
	if len(d.lines) < 9 || strings.Count(table.String(), "\n") != len(d.lines) {
		t.Errorf("the table:\n%s", table.String())
	}
	if t.Failed() {
		t.Logf("%s", log.String())
	}
}

func meetShort(t *testing.T, bin string, lines int, fault time.Duration, meet func(d *driver, ctx context.Context, l *lab.Lab) error) {
	var log bytes.Buffer
	d := &driver{stdout: io.Discard, stderr: &log, began: time.Now(), options: options{
		meeting: time.Second, fleet: time.Second, program: bin, seed: 1, pace: pace{fault: fault, calm: fault / 5, last: time.Minute},
	}}
	if err := roles.InLab("chaos", func(l *lab.Lab) error { return meet(d, t.Context(), l) }); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	for _, l := range d.lines {
		// How many messages is the machine's business.
		if name, value, target, verdict := l.cells(); l.short() && !strings.Contains(name, "messages that") {
			t.Errorf("%s: %s, %s: %s", name, value, target, verdict)
		}
	}
	if len(d.lines) != lines {
		t.Errorf("there are %d lines", len(d.lines))
	}
	t.Logf("%s", log.String())
}

// fleetThatFails plants mistakes in the services themselves: one does
// not share what it knows, and one dies of which nobody knows.
func fleetThatFails(t *testing.T, bin string) {
	var log bytes.Buffer
	d := &driver{stdout: io.Discard, stderr: &log, began: time.Now(), options: options{apart: true,
		fleet: time.Second, program: bin, seed: 1, pace: pace{fault: time.Second, calm: 200 * time.Millisecond, last: 5 * time.Second},
	}}
	err := roles.InLab("chaos", func(l *lab.Lab) (err error) {
		f, err := d.newFleet(t.Context(), l)
		defer func() { err = errors.Join(err, f.close()) }()
		if err != nil {
			return err
		}
		f.list = []mishap{{name: "a service dies of which nobody knows", do: func(ctx context.Context, _ *rand.Rand) error {
			if err := f.until(ctx, "it has a watcher", func() bool { return f.replicas[1].begun() > 0 }); err != nil {
				return err
			}
			kill(f.replicas[1].running)
			return f.startReplica(ctx, f.replicas[1])
		}}}
		return f.plays(t.Context())
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	found := map[string]bool{}
	for _, l := range d.lines {
		found[l.name] = l.short()
	}
	for _, name := range []string{"watchers that missed a final state", "streams that ended though their replica lived"} {
		if !found["three discovery services with etcd: "+name] {
			t.Errorf("it is not found: %s\n%s", name, log.String())
		}
	}
	if !strings.Contains(log.String(), "short") {
		t.Error("the run does not say so")
	}
}
