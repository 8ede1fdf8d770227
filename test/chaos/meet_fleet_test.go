// SPDX-License-Identifier: Apache-2.0

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

	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/roles"
)

// TestAFleetThatFailsIsFound plants mistakes in the services themselves: one does
// not share what it knows, and one dies of which nobody knows.
func TestAFleetThatFailsIsFound(t *testing.T) {
	var log bytes.Buffer
	d := &driver{stdout: io.Discard, stderr: &log, began: time.Now(), options: options{apart: true,
		fleet: time.Second, program: program(t), seed: 1, pace: pace{fault: time.Second, calm: 200 * time.Millisecond, last: 5 * time.Second},
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

// TestPick: a balancer that asks takes who is up, and one that does not takes anybody.
func TestPick(t *testing.T) {
	f := &fleet{}
	for _, at := range []string{"a", "b", "c"} {
		f.replicas = append(f.replicas, &replica{direct: direct{at: at}})
	}
	f.replicas[1].up.Store(true)
	blind := map[string]bool{}
	for range 1000 {
		if got := f.pick(true); got != "b" {
			t.Fatalf("%s is picked, which is not up", got)
		}
		blind[f.pick(false)] = true
	}
	if len(blind) != 3 {
		t.Errorf("blindly %v are picked", blind)
	}
	f.replicas[1].up.Store(false)
	if f.pick(true) == "" {
		t.Error("nobody is picked where nobody is up")
	}
}
