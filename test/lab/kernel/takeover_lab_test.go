// SPDX-License-Identifier: Apache-2.0

//go:build lab

package kernel_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/kerneltest"
	"github.com/tombolo-io/tombolo/internal/mesh/routing"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// dying is a kernel whose user is killed after some steps.
type dying struct {
	*kernel.Kernel
	left int
}

func (d *dying) Apply(steps []plan.Step) error {
	n := min(d.left, len(steps))
	d.left -= n
	if err := d.Kernel.Apply(steps[:n]); err != nil {
		return err
	}
	if n < len(steps) {
		return errors.New("killed")
	}
	return nil
}

// An end in the middle, without a word: the next start takes over what is there.
func TestTheNextStartTakesOver(t *testing.T) {
	n := alone(t)
	n.populate()
	before := n.dump()
	want, _, _ := topology.Plan(input())
	for _, left := range []int{1, 3, 7, 9, 13, 21, 25, 30, 35, 40, 1000} {
		tun := openTunnel(t, n.host)
		first := newRouter(t, n, func(p *routing.Parts) {
			p.Keep = true
			p.Kernel = &dying{p.Kernel.(*kernel.Kernel), left}
		})
		first.start()
		first.Set(input())
		runtest.Eventually(t, "the first one", func() bool { s := first.Status(); return s.Fault != nil || s.InForce })
		if err := first.stop(); err != nil {
			t.Fatal(err)
		}
		if err := tun.file.Close(); err != nil { // as kill -9 does
			t.Fatal(err)
		}
		second := newRouter(t, n, nil)
		if err := n.host.Do(func() error { return second.Prepare(input()) }); err != nil {
			t.Fatalf("after %d steps: %v", left, err)
		}
		tun = openTunnel(t, n.host)
		second.start()
		second.to(input())
		if have, err := n.Observe(); err != nil || len(plan.Diff(have, want)) != 0 {
			t.Errorf("after %d steps: %v", left, err)
		}
		if err := second.stop(); err != nil {
			t.Fatal(err)
		}
		if err := tun.file.Close(); err != nil {
			t.Fatal(err)
		}
		if after := n.dump(); after != before {
			t.Fatalf("after %d steps the machine is not as it was:\n%s", left, difference(before, after))
		}
	}
}

// down removes what is left, and nothing else.
func (n *node) down() []plan.Step {
	n.t.Helper()
	var steps []plan.Step
	err := n.host.Do(func() (err error) {
		steps, err = routing.Down(routing.Names(input().Options), n.t.TempDir())
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return steps
}

// TestDownLeavesWhatRuns: what a mesh that runs has in the kernel is not taken from under it.
func TestDownLeavesWhatRuns(t *testing.T) {
	n := alone(t)
	openTunnel(t, n.host)
	r := newRouter(t, n, nil)
	r.start()
	r.to(input())
	before := n.dump()
	var steps []plan.Step
	err := n.host.Do(func() (err error) { steps, err = routing.Down(routing.Names(input().Options), t.TempDir()); return err })
	if !fault.Has(err, fault.CodeStateBusy) || len(steps) > 0 {
		t.Errorf("under a mesh that runs %d steps were made, and it said %v", len(steps), err)
	}
	if after := n.dump(); after != before {
		t.Errorf("of a mesh that runs is gone:\n%s", difference(before, after))
	}
}

func TestDownRemovesWhatIsLeft(t *testing.T) {
	n := alone(t)
	n.populate()
	before := n.dump()
	if steps := n.down(); len(steps) != 0 {
		t.Errorf("of nothing:\n%s", plan.Print(steps))
	}
	for _, lost := range []bool{true, false} {
		if err := n.Make(kerneltest.Link); err != nil { // a link that stays, as that of the kernel's WireGuard
			t.Fatal(err)
		}
		r := newRouter(t, n, func(p *routing.Parts) { p.Keep = true })
		r.start()
		r.to(input())
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		if lost {
			if err := n.Lose(kerneltest.Link); err != nil {
				t.Fatal(err)
			}
		}
		steps := plan.Print(n.down())
		for what, there := range map[string]bool{"table inet": true, "rule ipv6": true, "route unreachable": true, "remove link": !lost} {
			if strings.Contains(steps, what) != there {
				t.Errorf("removed, the link was lost: %v:\n%s", lost, steps)
			}
		}
		if after := n.dump(); after != before {
			t.Errorf("the machine is not as it was:\n%s", difference(before, after))
		}
		if steps := n.down(); len(steps) != 0 {
			t.Errorf("once more:\n%s", plan.Print(steps))
		}
	}
	// What bears our name and is not ours stays.
	n.run("", "ip", "link", "add", "tombolo0", "type", "veth", "peer", "name", "other9")
	n.run("table inet tombolo_mesh { chain x { }; }\n", "nft", "-f", "-")
	before = n.dump()
	if steps := n.down(); len(steps) != 0 {
		t.Errorf("of others:\n%s", plan.Print(steps))
	}
	if after := n.dump(); after != before {
		t.Errorf("of others is gone:\n%s", difference(before, after))
	}
}
