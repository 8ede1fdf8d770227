// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/test/roles"
)

// What a run has to keep within.
const (
	mostMemory   = 512 << 20 // RSS of the hub at any time
	mostRecovery = 45        // s until all clusters are served again: 15 s of backoff and what the fault left
	mostLeft     = 80        // descriptors of a hub with three agents and nothing else
)

// live goes through the faults under load, in an order of its own each round, until
// the time is over, and then checks the history.
func (w *world) live(ctx context.Context) error {
	calling, enough := context.WithCancel(ctx)
	defer enough()
	var load sync.WaitGroup
	for _, c := range w.clusters {
		for i := range w.workers {
			load.Go(func() { w.load(calling, c, w.seed+uint64(i)) })
		}
	}
	load.Go(func() { w.watch(calling) })
	err := w.rounds(ctx)
	enough()
	w.say("waiting for the streams that live")
	load.Wait()
	if err != nil {
		return err
	}
	return w.check(ctx)
}

func (w *world) rounds(ctx context.Context) error {
	r := rand.New(rand.NewPCG(w.seed, 1))
	list := faults()
	for round := 1; ; round++ {
		r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		for _, f := range list {
			run.Wait(ctx, w.pace.calm)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := w.play(ctx, f, w.clusters[r.IntN(len(w.clusters))]); err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
			w.progress(round)
		}
		if time.Since(w.began) >= w.length {
			return nil
		}
	}
}

// play lets a fault happen to a cluster, and waits until all are served again.
func (w *world) play(ctx context.Context, f fault, c *cluster) error {
	if f.needs != nil {
		if why := f.needs(w); why != "" {
			w.say("%s: left out: %s", f.name, why)
			return nil
		}
	}
	s := span{name: f.name, from: time.Now(), all: f.all, killed: f.killed, disk: f.disk}
	if f.own {
		s.clusters = []int{c.number}
	}
	w.say("%s, %s", f.name, c.name)
	err := f.do(ctx, w, c)
	over := time.Now()
	if err == nil {
		err = w.served(ctx)
	}
	s.to = time.Now()
	w.mu.Lock()
	w.say("%s, %s: over; the hub had at most %d MiB", f.name, c.name, w.now>>20)
	w.now = 0
	w.mu.Unlock()
	w.spans = append(w.spans, s)
	if took := s.to.Sub(over); took > w.slow {
		w.slow, w.slowN = took, f.name
	}
	return err
}

// served waits until a dial of each cluster comes through; these dials are part of
// the history as all others.
func (w *world) served(ctx context.Context) error {
	for _, c := range w.clusters {
		var last event
		if err := w.until(ctx, c.name+" is served again", func() bool {
			last = w.call(ctx, c, stream{up: 100, down: 100, piece: 100})
			return last.how == whole
		}); err != nil {
			return fmt.Errorf("%w: the last dial was %s: %s", err, last.how, last.why)
		}
	}
	return nil
}

func (w *world) progress(round int) {
	w.history.mu.Lock()
	defer w.history.mu.Unlock()
	count := map[ending]int{}
	for _, e := range w.history.events {
		count[e.how]++
	}
	w.say("round %d: %d streams whole, %d cut, %d refused, %d not answered; %.1f GiB; hub at most %d MiB; %d hostile connections",
		round, count[whole], count[cutOff], count[refused], count[notAsked]+count[unheard],
		float64(w.history.up+w.history.down)/(1<<30), w.peakMiB(), w.attacks)
	for _, b := range w.history.bad {
		w.say("WRONG: %s", b)
	}
}

func (w *world) peakMiB() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.peak >> 20
}

// check ends the hub in order and holds the history against the faults and the records.
func (w *world) check(ctx context.Context) error {
	left, err := w.leftovers(ctx)
	if err != nil {
		return err
	}
	if err := w.hub.Stop(30 * time.Second); err != nil {
		return fmt.Errorf("the hub did not end in order: %w", err)
	}
	in, err := readAudit(w.auditPath())
	if err != nil {
		return err
	}
	h := w.history
	f := judge(h.events, w.spans, in)
	for _, e := range f.unexplained {
		w.say("unexplained: %s of c%d from %.2f s to %.2f s, %s: %s; target: %+v", e.asked, e.cluster, e.begin.Sub(w.began).Seconds(),
			e.end.Sub(w.began).Seconds(), e.how, e.why, h.arrivals[e.id])
	}
	first := func(list []event) string {
		if len(list) == 0 {
			return ""
		}
		e := list[0]
		return fmt.Sprintf("the first: %s of c%d at %.1f s, %s: %s", e.asked, e.cluster, e.end.Sub(w.began).Seconds(), e.how, e.why)
	}
	w.line(line{name: "streams that ended whole", value: float64(f.count[whole]), target: 100, atLeast: true,
		note: fmt.Sprintf("%.2f GiB, every byte checked", float64(h.up+h.down)/(1<<30))})
	w.line(line{name: "bytes lost, doubled, changed or crossed over", value: float64(len(h.bad)), target: 0, note: strings.Join(h.bad[:min(3, len(h.bad))], "; ")})
	w.line(line{name: "streams and dials hurt without a fault that may", value: float64(len(f.unexplained)), target: 0, note: first(f.unexplained)})
	w.line(line{name: "dials with more than one audit record", value: float64(len(f.doubled)), target: 0, note: first(f.doubled)})
	w.line(line{name: "dials without a record, and not told of", value: float64(len(f.missing)), target: 0,
		note: cmp.Or(first(f.missing), fmt.Sprintf("%d refusals are in sums of %d", f.summed, in.summed))})
	disk := line{name: "dials without a record while the disk was full, not counted as lost", value: max(0, float64(int64(f.lost)-in.lost)), target: 0, note: fmt.Sprintf("%d lost, %d counted", f.lost, in.lost)}
	if !w.mounted {
		disk.why = "no disk may be mounted here"
	}
	w.line(disk)
	w.line(line{name: "streams of a hub that was killed, which leave no record, of each kill", value: float64(f.killed) / float64(max(1, w.kills)), target: float64(len(w.clusters)*(w.workers+1)) + 60, note: fmt.Sprintf("%d kills", w.kills)})
	w.line(line{name: "until all clusters were served again, at most", value: w.slow.Seconds(), target: mostRecovery, unit: " s", note: w.slowN})
	w.line(line{name: "memory of the hub, at most", value: float64(w.peakMiB()), target: mostMemory >> 20, unit: " MiB"})
	w.line(line{name: "descriptors of the hub when all is over", value: float64(left), target: mostLeft})
	return nil
}

// leftovers is how many descriptors the hub has when nobody calls any more.
func (w *world) leftovers(ctx context.Context) (n int, err error) {
	werr := w.until(ctx, "the hub lets go", func() bool {
		n, err = roles.Descriptors(w.hub.Pid())
		return err != nil || n <= mostLeft
	})
	if errors.Is(werr, context.Canceled) {
		return n, werr
	}
	return n, err // too many are a line that is short
}

// signal sends one to a process that may have ended.
func signal(p interface{ Signal(syscall.Signal) error }, s syscall.Signal) error {
	if err := p.Signal(s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}
