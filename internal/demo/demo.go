// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/demo/network"
)

// Options say how to play.
type Options struct {
	Program  string // path of the tombolo program
	Rootless bool   // loopback addresses instead of namespaces
	Mesh     bool   // nodes that become one network, instead of hub and agents
	Screen   *Screen
	Errors   io.Writer // the logs of the programs, after a failure
}

// Bounds of the demo. They are far above what is needed, so that only a defect
// meets them, also on a busy machine.
const (
	startWithin   = 15 * time.Second
	fetchWithin   = 5 * time.Second
	recoverWithin = 20 * time.Second
	stopGrace     = 5 * time.Second
	logLines      = 12
)

// Run plays the demo, and removes what it made also when it fails or ctx ends.
func Run(ctx context.Context, o Options) error {
	if o.Mesh && o.Rootless {
		return fault.New(fault.CodeUsage, "a mesh cannot be shown on the loopback").
			Hint("leave out --rootless and run it as root (sudo tombolo demo --mesh), or leave out --mesh")
	}
	if !o.Rootless {
		if err := network.Check(ctx); err != nil {
			return fault.New(fault.CodeUnauthorized, "the demo builds its networks in namespaces").Because(err).
				Hint("%s", withRoot(o.Mesh))
		}
	}
	begin := time.Now()
	p := &play{screen: o.Screen}
	story := p.all
	if o.Mesh {
		story = (&meshPlay{play: p}).all
	}
	err := story(ctx, o)
	var told bool // what the programs said
	var left error
	if p.stage != nil {
		if err != nil && ctx.Err() == nil && o.Screen.failed == nil {
			logs := p.stage.logs(logLines)
			fmt.Fprint(o.Errors, logs)
			told = logs != ""
		}
		left = p.stage.close()
	}
	if err == nil && left == nil {
		o.Screen.line("")
		o.Screen.line("%s (%.1f s)", o.Screen.paint(green, "demo: ok"), time.Since(begin).Seconds())
		return o.Screen.fault()
	}
	o.Screen.line("")
	if ctx.Err() != nil && left == nil {
		o.Screen.line("demo: interrupted, and everything that it made is gone")
		return fault.New(fault.CodeInterrupted, "the demo was ended early").Because(context.Cause(ctx)).
			Hint("nothing of it is left; run it again")
	}
	o.Screen.line("%s", o.Screen.paint(red, "demo: failed"))
	return explain(errors.Join(err, left), o.Screen, told)
}

// withRoot says how the demo is played all the same.
func withRoot(mesh bool) string {
	if mesh {
		return "run it as root: sudo tombolo demo --mesh"
	}
	return "run it as root (sudo tombolo demo), or run `tombolo demo --rootless`: it shows dials, " +
		"refusals and recovery on 127.0.0.x, without NAT, partition and equal ranges"
}

// explain makes a failure of the demo a fault: one that has a code keeps it.
func explain(err error, screen *Screen, told bool) error {
	if f := screen.fault(); f != nil {
		return f
	}
	var coded *fault.Fault
	if errors.As(err, &coded) {
		return coded
	}
	f := fault.New(fault.CodeDemo, "the demo failed").Because(err)
	if told {
		return f.Hint("run it again; if it fails again, report this with the last log lines of its programs, which are above")
	}
	return f.Hint("run it again; if it fails again, report this")
}

// play is one run of the demo.
type play struct {
	screen *Screen
	stage  *stage
}

// scene is one part of a play. Without a name it tells its outcome itself.
type scene struct {
	name string
	do   func(context.Context) (string, error)
}

func (p *play) all(ctx context.Context, o Options) error {
	p.introduce(o.Rootless)
	return p.perform(ctx, []scene{
		{"network", func(ctx context.Context) (string, error) { return p.build(ctx, o) }},
		{"hub", p.startHub},
		{"edge", p.startEdge},
		{"agents", p.startAgents},
		{"", p.showStatus},
		{"fetch through the hub", p.fetchBoth},
		{"direct dial", p.dialDirectly},
		{"metadata address", p.refuseMetadata},
		{"source refused by edge", p.refuseSource},
		{"agent killed (-9)", p.killAgent},
		{"throughput", p.measure},
		{"clean up", p.cleanUp},
	})
}

// perform plays scenes until one fails, or nobody wants to see more.
func (p *play) perform(ctx context.Context, scenes []scene) error {
	for _, scene := range scenes {
		play := func() (string, error) {
			outcome, err := scene.do(ctx)
			if err != nil && ctx.Err() != nil {
				return "", fmt.Errorf("interrupted: %w", context.Cause(ctx))
			}
			return outcome, err
		}
		var err error
		if scene.name == "" {
			_, err = play()
		} else {
			err = p.screen.step(scene.name, play)
		}
		if err := errors.Join(err, ctx.Err(), p.screen.failed); err != nil {
			return err
		}
	}
	return nil
}

func (p *play) introduce(rootless bool) {
	if rootless {
		p.screen.title("tombolo demo --rootless: one hub, two clusters, all on this machine's loopback",
			"hub <── edge on 127.0.0.1 <── agent of c1 ── https backend on 127.0.0.2",
			"                          <── agent of c2 ── https backend on 127.0.0.3",
			"",
			"NAT, partition and equal address ranges need network namespaces, and those need root.")
		return
	}
	p.screen.title("tombolo demo: one hub, two clusters behind NAT, both with the range "+network.SiteRange,
		"control plane              internet        private networks",
		"198.51.100.10                 ┌─ gateway 1 ── c1: agent 10.42.0.11, https backend 10.42.0.80",
		"hub <─ edge <─ agents dial ───┤  (NAT, lets nothing in)",
		"              out only        └─ gateway 2 ── c2: agent 10.42.0.11, https backend 10.42.0.80")
}
