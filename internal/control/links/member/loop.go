// SPDX-License-Identifier: Apache-2.0

package member

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/control/controlconf"
	"github.com/tombolo-io/tombolo/internal/control/links/kinds"
	"github.com/tombolo-io/tombolo/internal/control/watch"
	"github.com/tombolo-io/tombolo/internal/link/learn"
	"github.com/tombolo-io/tombolo/internal/link/share"
)

// The parts of a pass, for the log.
const (
	partHost   = "the host cluster"
	partLinked = "that this cluster is linked"
	partOwn    = "the objects of this cluster"
	partCopies = "the copies of other clusters' objects"
	partRanges = "the ranges of this cluster"
	partPools  = "the IPPools of Calico for other clusters"
	partStated = "what this cluster states at the host cluster"
)

// loop does passes: it is the one goroutine that decides.
type loop struct {
	cfg     controlconf.Links
	there   *there
	own     client.Client // without a cache
	reader  reader
	wake    *watch.Loop
	notes   notes
	events  *kinds.Events
	learner *learner
	pools   pools
	reports *reports
	nodes   *memo[node]
	members *memo[v1alpha1.MemberObjectSpec]
	leases  leases

	stumbled bool // the host cluster did not take what was written last

	last *share.Shared // what was decided last; nil: nothing since the start
	told telling       // by the name of a node's object
}

// run does passes until ctx ends.
func (l *loop) run(ctx context.Context) { l.wake.Run(ctx, l.pass) }

// pass brings both clusters nearer to what they should have. It says when to look again; 0: when something changes.
func (l *loop) pass(parent context.Context) time.Duration {
	ctx, cancel := context.WithTimeout(parent, patient)
	defer cancel()
	away := l.there.away(ctx)
	l.notes.say(partHost, away)
	l.events.Say(lacks(away))
	var all linked
	from := l.there.whole()
	if from != nil {
		var err error
		if all, err = readLinked(ctx, from); err != nil {
			return l.failed(partHost, err)
		}
	}
	whole := from != nil
	if whole && away == nil && !all.has(l.cfg.Cluster) { // it was removed, or its kind is about to go
		if away = l.there.sure(ctx); away != nil {
			return gather
		}
	}
	if l.there.copies {
		if err := l.copy(ctx, all, whole, away); err != nil {
			l.failed(partCopies, err) // the host cluster gets to know what happens here in any case
		} else {
			l.notes.say(partCopies, nil)
		}
	}
	if away != nil || !whole {
		l.reports.copyTo(nil, 0)
		return l.there.pause()
	}
	l.reports.copyTo(l.copies(all), len(all.nodes))
	again, err := l.state(ctx, all)
	first := !l.stumbled
	if l.stumbled = err != nil; err != nil {
		if first && !answered(err) { // it may have gone away this moment: the next pass asks
			l.there.suspect(err)
			return gather
		}
		return l.failed(partStated, err)
	}
	l.notes.say(partStated, nil)
	if l.notes.fails(partCopies) {
		return retry
	}
	return again
}

func (l *loop) failed(part string, err error) time.Duration {
	l.notes.say(part, err)
	return retry
}

// copy has the own cluster have what the host cluster has. What that one does not have any longer is removed only while
// it has all kinds and the Cluster of this one, and so speaks for it: one that has lost its objects cuts nothing.
func (l *loop) copy(ctx context.Context, all linked, whole bool, away error) error {
	own, err := readLinked(ctx, l.reader.ours)
	if err != nil {
		return err
	}
	if same, err := l.same(ctx, all, own); same || err != nil {
		return err
	}
	speaks, now := whole && all.has(l.cfg.Cluster), time.Now()
	switch {
	case away != nil && !speaks:
		return do(ctx, l.own, warning(own, l.cfg.Cluster, unreached(away), now))
	case !whole:
		return nil
	case !speaks:
		return do(ctx, l.own, warning(own, l.cfg.Cluster, unlinked(l.cfg.Cluster), now))
	case away != nil:
		all = warned(all, own, l.cfg.Cluster, unreached(away), now)
	}
	changes := copied(all, own, l.cfg.Cluster)
	if slices.ContainsFunc(changes, removes) && (away != nil || l.there.sure(ctx) != nil) {
		changes = slices.DeleteFunc(changes, removes)
	}
	return do(ctx, l.own, changes)
}

// same notes for good if the host cluster is the own one, whose objects are no copies. Without that a new object, which
// one cache has before the other one, would be made a copy of itself, and its owner could not write it any longer.
func (l *loop) same(ctx context.Context, all, own linked) (bool, error) {
	there, here := all.clusters[l.cfg.Cluster], own.clusters[l.cfg.Cluster]
	if there == nil {
		return false, nil
	}
	if here == nil {
		here = &objects.Cluster{}
		if err := l.own.Get(ctx, client.ObjectKeyFromObject(there), here); client.IgnoreNotFound(err) != nil {
			return false, err
		}
	}
	if here.UID == there.UID {
		l.there.copies = false
	}
	return !l.there.copies, nil
}

// state has the host cluster have what this cluster states. It says when to look again.
func (l *loop) state(ctx context.Context, all linked) (time.Duration, error) {
	of := all.clusters[l.cfg.Cluster]
	if !all.has(l.cfg.Cluster) { // it is not linked, or no longer
		l.last, l.told = nil, telling{cluster: l.cfg.Cluster, version: l.told.version}
		if !l.there.copies { // what was copied stays, and so do its pools
			l.notes.say(partPools, l.pools.keep(ctx, l.cfg.Cluster, linked{}, &learn.Result{}))
		}
		changes, _ := stated(l.told, share.Shared{}, all, time.Now())
		if err := do(ctx, l.there.client, changes); err != nil {
			return retry, err
		}
		l.notes.say(partLinked, fault.Newf(fault.CodeNotFound, "the host cluster has no Cluster %q", l.cfg.Cluster).
			Hint("%s", relink(l.cfg.Cluster)))
		return 0, nil
	}
	l.notes.say(partLinked, nil)
	f, around := l.facts(ctx, of, all)
	if f == nil {
		if c, differs := around.says(of, l.there.clock.now()); differs {
			return retry, do(ctx, l.there.client, []change{c})
		}
		return retry, nil
	}
	s := share.Decide(*f)
	l.told.cluster, l.told.engine, l.told.health = l.cfg.Cluster, of.Spec.Engine, l.reports.of()
	l.told.see(all, f.Now)
	changes, soon := stated(l.told, s, all, f.Now)
	if c, differs := clusterStatus(s, around, of, f.Now); differs {
		changes = append(changes, c)
	}
	l.last = &s
	if err := do(ctx, l.there.client, changes); err != nil {
		return retry, err
	}
	l.heard(changes, f.Now)
	again := heardEvery(len(s.Nodes))
	if !s.Again.IsZero() {
		again = min(again, max(time.Until(s.Again), time.Millisecond))
	}
	if soon > 0 {
		again = min(again, soon)
	}
	return again, nil
}

// facts are those that decide what this cluster states, and what is wrong around it; nil: not all of them are known.
func (l *loop) facts(ctx context.Context, of *objects.Cluster, all linked) (*share.Facts, verdicts) {
	items, err := l.reader.list(ctx, kindNode)
	if err != nil {
		l.failed(partOwn, err)
		return nil, nil
	}
	nodes := l.nodes.all(items)
	if items, err = l.reader.list(ctx, kindMember); err != nil {
		l.failed(partOwn, err)
		return nil, nil
	}
	l.notes.say(partOwn, nil)
	known, err := l.learner.ask(of.Spec, nodes)
	l.notes.say(partRanges, err)
	l.notes.say(partPools, l.pools.keep(ctx, l.cfg.Cluster, all, known))
	around := l.around(known, err)
	if known == nil { // the loop is woken
		return nil, around
	}
	members := l.members.all(items)
	f := facts(nodes, members, *known)
	l.leases.silence(&f, members, time.Now())
	told(&f, l.cfg.Cluster, l.reports.of())
	f.Cluster, f.Spec, f.Gateways, f.Selector = l.cfg.Cluster, of.Spec, l.cfg.Gateways, l.cfg.Selector
	f.Excludes = excludes(of.Spec.ExcludeSelector)
	f.Now = l.there.clock.now()
	switch {
	case l.last != nil: // what the host cluster has may be older than what was written last
		f.Away, f.Doubts = l.last.Away, l.last.Doubts
		for _, n := range l.last.Nodes {
			f.Before = append(f.Before, n.ClusterNodeSpec)
		}
	default:
		for _, n := range all.nodes {
			if n.Spec.ClusterName == l.cfg.Cluster {
				f.Before = append(f.Before, n.Spec)
			}
		}
	}
	return &f, around
}

// heard notes which nodes were said to be heard.
func (l *loop) heard(changes []change, now time.Time) {
	if l.told.heard == nil {
		l.told.heard, l.told.told = map[string]time.Time{}, map[string]time.Time{}
	}
	for _, c := range changes {
		if status, ok := c.status.(objects.ClusterNodeStatus); ok {
			if l.told.told[c.name] = now; status.LastHeard != nil {
				l.told.heard[c.name] = status.LastHeard.Time
			}
		}
		if c.remove != "" {
			delete(l.told.heard, c.name)
			delete(l.told.told, c.name)
		}
	}
}

// copies are the ClusterNodes of the own cluster whose NodeConfigs the host cluster gets; nil, where it is the own one.
func (l *loop) copies(all linked) map[string]types.UID {
	if !l.there.copies {
		return nil
	}
	out := map[string]types.UID{}
	for name, n := range all.nodes {
		if n.Spec.ClusterName == l.cfg.Cluster && all.clusters[l.cfg.Cluster] != nil {
			out[name] = n.UID
		}
	}
	return out
}

// excludes is what a selector says about labels; nil: it cannot be read.
func excludes(selector string) func(map[string]string) bool {
	if selector == "" {
		return func(map[string]string) bool { return false }
	}
	s, err := labels.Parse(selector)
	if err != nil {
		return nil
	}
	return func(of map[string]string) bool { return s.Matches(labels.Set(of)) }
}
