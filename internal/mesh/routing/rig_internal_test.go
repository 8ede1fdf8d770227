// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/kerneltest"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// twin is the kernel in memory: it tells of its changes, and counts how often it is asked.
type twin struct {
	*kerneltest.Kernel
	heard    func() // of the watch that is open
	observed int
	applied  int
	deaf     error // what reading ends with
	turn     sync.Mutex
}

// hand orders what the test has done before what Run does next, for the race detector:
// the bubble's clock orders it anyway.
func (k *twin) hand() {
	k.turn.Lock()
	defer k.turn.Unlock()
}

func (k *twin) Counts() ([]kernel.Count, error) {
	k.hand()
	return k.Kernel.Counts()
}

func (k *twin) Settings() []plan.Sysctl {
	k.hand()
	return k.Kernel.Settings()
}

func (k *twin) Observe() (plan.State, error) {
	k.hand()
	k.observed++
	if k.deaf != nil {
		return plan.State{}, k.deaf
	}
	return k.Kernel.Observe()
}

// Apply tells of each step, as the kernel echoes them.
func (k *twin) Apply(steps []plan.Step) error {
	k.hand()
	k.applied++
	before := len(k.Log)
	err := k.Kernel.Apply(steps)
	if len(k.Log) > before {
		k.echo()
	}
	return err
}

func (k *twin) echo() {
	if k.heard != nil {
		k.heard()
	}
}

// take removes what somebody else takes away, and the kernel tells of it.
func (k *twin) take(t *testing.T, to plan.State) {
	t.Helper()
	have, _ := k.Kernel.Observe()
	log := k.Log
	if err := k.Kernel.Apply(plan.Diff(have, to)); err != nil {
		t.Fatal(err)
	}
	k.Log = log
	k.echo()
}

// lacks is what the twin differs in from what is wanted.
func (k *twin) lacks(want plan.State) string {
	have, _ := k.Kernel.Observe()
	return plan.Print(plan.Diff(have, want))
}

// watcher is a watch of the twin; fail ends it.
type watcher struct {
	k    *twin
	fail chan error
}

func (w *watcher) Filter(ctx context.Context, notify func()) error {
	w.k.heard = notify
	defer func() { w.k.heard = nil }()
	select {
	case err := <-w.fail:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *watcher) Route(ctx context.Context, _ func()) error { <-ctx.Done(); return context.Cause(ctx) }

func (w *watcher) Close() error { return nil }

// rig is a Routing over a twin that runs, within a bubble of time.
type rig struct {
	*Routing
	t       *testing.T
	kernel  *twin
	log     *bytes.Buffer
	reg     *prometheus.Registry
	told    []topology.Peers
	watches []*watcher
	refuse  error // of the next watches
	group   *run.Group
	ended   error
}

// inBubble runs a test in a bubble of time.
func inBubble(t *testing.T, change func(*Parts), test func(t *testing.T, r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, kernel: &twin{Kernel: kerneltest.New()}, log: &bytes.Buffer{}, reg: prometheus.NewRegistry()}
		p := Parts{
			Kernel: r.kernel, Options: input(2).Options, Log: slog.New(slog.NewTextHandler(r.log, nil)), Metrics: r.reg,
			Peers: func(ps topology.Peers) { r.told = append(r.told, ps) },
			Watch: func() (Watch, error) {
				r.kernel.hand()
				if r.refuse != nil {
					return nil, r.refuse
				}
				w := &watcher{r.kernel, make(chan error, 1)}
				r.watches = append(r.watches, w)
				return w, nil
			},
		}
		if change != nil {
			change(&p)
		}
		var err error
		if r.Routing, err = New(p); err != nil {
			t.Fatal(err)
		}
		defer r.stop()
		test(t, r)
	})
}

func (r *rig) start() {
	r.group = run.NewGroup(r.t.Context())
	r.group.Do(func(ctx context.Context) { r.ended = r.Run(ctx) })
	synctest.Wait()
}

func (r *rig) stop() error {
	if r.group == nil {
		return nil
	}
	r.group.Stop()
	r.group.Wait()
	r.group = nil
	return r.ended
}

// begun has the link, and the input in force.
func (r *rig) begun(in topology.Input) {
	r.t.Helper()
	r.link()
	r.start()
	r.Set(in)
	r.settle()
	r.inForce(in)
}

func (r *rig) link() {
	r.t.Helper()
	if err := r.kernel.Make(kerneltest.Link); err != nil {
		r.t.Fatal(err)
	}
}

// settle lets everything that is due soon happen, its echo too.
func (r *rig) settle() { r.wait(time.Second) }

func (r *rig) wait(d time.Duration) {
	r.kernel.hand()
	time.Sleep(d)
	synctest.Wait()
}

func (r *rig) inForce(in topology.Input) {
	r.t.Helper()
	want, _, _ := topology.Plan(in)
	if left := r.kernel.lacks(want); left != "" {
		r.t.Fatalf("not in force:\n%s\n%s", left, r.log)
	}
	if s := r.Status(); !s.InForce || s.Fault != nil {
		r.t.Fatalf("status %+v", s)
	}
}

func (r *rig) logged(what string) int { return strings.Count(r.log.String(), what) }

// metric reads one, with its labels in the order of their names.
func (r *rig) metric(name string, labels ...string) float64 {
	r.t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var values []string
			for _, l := range m.GetLabel() {
				values = append(values, l.GetValue())
			}
			if f.GetName() == name && fmt.Sprint(values) == fmt.Sprint(labels) {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	r.t.Fatalf("there is no metric %s %v", name, labels)
	return 0
}

// input is a mesh of this node and others up to a number.
func input(others int) topology.Input {
	in := topology.Input{Options: topology.Defaults(), Health: map[string]topology.Health{}}
	in.Options.Overlay6 = netip.MustParsePrefix("fd00:0:0:2::/64")
	in.Self = aMember(1)
	for n := 2; n <= others; n++ {
		in.Members = append(in.Members, aMember(n))
	}
	return in
}

func aMember(n int, more ...string) member.Facts {
	m := member.Facts{
		ID: fmt.Sprintf("m%04d", n), Node: fmt.Sprintf("n%d", n), Key: member.Key{byte(n), byte(n >> 8)},
		Overlay4: netip.AddrFrom4([4]byte{100, 112, byte(n >> 8), byte(n)}),
		Overlay6: netip.AddrFrom16([16]byte{0: 0xfd, 7: 2, 14: byte(n >> 8), 15: byte(n)}),
	}
	m.Ranges = append(m.Ranges, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n >> 8), byte(n), 0}), 24))
	for _, s := range more {
		m.Ranges = append(m.Ranges, netip.MustParsePrefix(s))
	}
	return m
}

var errBroken = errors.New("broken")
