// SPDX-License-Identifier: Apache-2.0

package route

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

// fails reports whether a fault is about a hub itself, or about who we are: it opens no stream, whatever the target
// is. All others are answers.
func fails(f *fault.Fault) bool {
	return f.Code == fault.CodeHubAway || f.Code == fault.CodeConfig || fault.ClassOf(f.Code) == fault.Unauthenticated
}

// answers reports whether a hub answered when it was last asked.
func (h hubState) answers() bool { return !h.answered.IsZero() && h.why == "" }

// unready is why a cluster cannot be reached, as far as its hubs tell; nil: one of them answers.
func unready(c Cluster, hubs []hubState) *fault.Fault {
	if slices.ContainsFunc(hubs, hubState.answers) {
		return nil
	}
	var why []string
	for i, h := range hubs {
		if h.why != "" {
			why = append(why, c.Hubs[i]+": "+h.why)
		}
	}
	if len(why) == 0 {
		return fault.Newf(fault.CodeHubAway, "no hub of cluster %s has answered yet", c.Name).
			Hint("they are being asked: wait a moment")
	}
	return fault.Newf(fault.CodeHubAway, "no hub of cluster %s answers", c.Name).Whyf("%s", strings.Join(why, "; ")).
		Hint("check the cluster's hubs and certificate; 'tombolo route status' shows each")
}

// nextPing is how long to wait until a hub of a cluster is asked: a while after the last answer; if none answers, until
// the first of them is no longer put off.
func nextPing(hubs []hubState, now time.Time) time.Duration {
	answered, due := time.Time{}, now.Add(pingEvery)
	for _, h := range hubs {
		if h.answers() && h.answered.After(answered) {
			answered = h.answered
		}
		if h.until.Before(due) {
			due = h.until
		}
	}
	if !answered.IsZero() {
		due = answered.Add(pingEvery)
	}
	return max(0, due.Sub(now))
}

// unready is why the cluster cannot be reached.
func (d *door) unready() *fault.Fault {
	d.mu.Lock()
	defer d.mu.Unlock()
	return unready(d.Cluster, d.hubs)
}

// due are the hubs that are not put off, in their order.
func (d *door) due() []int {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	return slices.DeleteFunc(inOrder(d.hubs, now), func(i int) bool { return d.hubs[i].until.After(now) })
}

// nextPing is how long to wait until a hub is asked.
func (d *door) nextPing() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return nextPing(d.hubs, d.now())
}

// ping asks the hubs that are due until one answers.
func (d *door) ping(ctx context.Context) {
	_, openers, err := d.certificate()
	for _, i := range d.due() {
		if err != nil { // without it nobody can be asked
			d.note(i, fault.From(err).Error())
			continue
		}
		within, cancel := context.WithTimeout(ctx, pingWait)
		err := openers[i].Ping(within)
		silent := run.Ended(within) != nil
		cancel()
		if run.Ended(ctx) != nil {
			return // it was cut short, and says nothing of the hub
		}
		if f := fault.From(err); err != nil && (silent || fails(f)) {
			d.note(i, f.Error())
			continue
		}
		d.note(i, "")
		return
	}
}

// watch asks the hubs of a cluster now and then, so that it is known without a caller whether one answers.
func (r *Route) watch(ctx context.Context, d *door) {
	log := r.log.With(telemetry.AttrCluster, d.Name)
	for was := true; ; {
		if f := d.unready(); (f == nil) != was && (f == nil || f.Why != "") {
			if was = f == nil; was {
				log.Info("a hub of the cluster answers again")
			} else {
				log.Warn("no hub of the cluster answers", telemetry.AttrCode, f.Code, telemetry.AttrReason, f.Why)
			}
		}
		wait := d.nextPing()
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
			if wait == 0 { // otherwise a caller may have asked meanwhile
				d.ping(ctx)
			}
		case <-d.failed: // by a caller: it is asked again sooner
		case <-ctx.Done():
		}
		timer.Stop()
		if run.Ended(ctx) != nil {
			return
		}
	}
}

// ready is why not every cluster can be reached.
func (r *Route) ready() *fault.Fault {
	if r.draining.Load() {
		return fault.New(fault.CodeDraining, "routed mode is shutting down")
	}
	for _, c := range r.cfg.Clusters {
		if f := r.doors[c.Name].unready(); f != nil {
			return f
		}
	}
	return nil
}
