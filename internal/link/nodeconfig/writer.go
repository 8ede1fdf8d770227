// SPDX-License-Identifier: Apache-2.0

package nodeconfig

import (
	"context"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/kube"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery/discoveryclient"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/link/report"
)

const (
	// look is how often it is looked whether something is new, and so the least time between two writes.
	look = 3 * time.Second
	// share is how many times longer than the last look took it is waited for the next one, with very many peers.
	share = 50
	// again is when all is written though nothing is new: somebody may have changed or removed it.
	again = time.Minute
)

// Part is the name of the writer in a status.
const Part = "nodeconfig"

// Options say whose NodeConfig it is.
type Options struct {
	Log           *slog.Logger
	Cluster, Node string
	// Client makes a client of the own cluster's API server.
	Client func() *kube.Client
	Server string // for people
	// Facts are those of now; nil: they are not known yet.
	Facts func() *report.Facts
}

// Writer writes one NodeConfig.
type Writer struct {
	o      Options
	name   string
	client *kube.Client
	failed kube.Backoff
	next   time.Time // of a try

	// What the API server has.
	there      presence
	spec       v1alpha1.NodeConfigSpec
	generation int64
	status     report.Status
	at         time.Time // when it was last written

	mu      sync.Mutex
	contact time.Time
	why     *fault.Fault
}

type presence int

const (
	unknown presence = iota
	absent
	present
)

// New makes a writer. Run writes.
func New(o Options) *Writer {
	return &Writer{o: o, name: v1alpha1.ClusterNodeName(o.Cluster, o.Node), client: o.Client()}
}

// Run writes until ctx ends. It is no source of members: out is never called.
func (w *Writer) Run(ctx context.Context, _ func([]roster.Said)) error {
	defer w.client.Close()
	for {
		looked := w.turn(ctx, time.Now())
		if !run.Wait(ctx, pause(looked)) {
			return nil
		}
	}
}

// pause is how long it is waited after a look. An API server that is slow to answer is no reason to look less often.
func pause(looked time.Duration) time.Duration { return min(max(look, share*looked), again) }

// turn writes what is new. It returns how long it took to find out what is.
func (w *Writer) turn(ctx context.Context, now time.Time) (looked time.Duration) {
	began := time.Now()
	f := w.o.Facts()
	if f == nil || now.Before(w.next) {
		return 0
	}
	var err error
	switch {
	case f.Linked:
		spec := report.Spec(*f)
		due := w.due(*f, spec, now)
		if looked = time.Since(began); !due {
			return looked
		}
		err = w.write(ctx, *f, spec, now)
	case w.there == absent:
		return 0
	case !f.Whole: // what the API server has not told yet is no reason to remove one
		return 0
	default: // the cluster is not linked any longer
		if err = w.client.DeleteNodeConfig(ctx, w.name); err == nil {
			w.there, w.status = absent, report.Status{}
		}
	}
	if ctx.Err() != nil {
		return looked
	}
	w.next = now.Add(w.failed.After(err))
	w.note(fault.From(err), now)
	return looked
}

// due reports whether there is something to write.
func (w *Writer) due(f report.Facts, spec v1alpha1.NodeConfigSpec, now time.Time) bool {
	if w.there != present || now.Sub(w.at) >= again || !reflect.DeepEqual(spec, w.spec) {
		return true
	}
	return report.News(w.status, report.Has(f, w.status, w.generation, now))
}

func (w *Writer) write(ctx context.Context, f report.Facts, spec v1alpha1.NodeConfigSpec, now time.Time) error {
	at, err := w.client.PutNodeConfig(ctx, w.name, w.o.Node, spec)
	if err != nil {
		w.there = unknown
		return err
	}
	before := w.status
	before.AppliedGeneration = at.Applied
	status := report.Has(f, before, at.Generation, now)
	if err := w.client.PutNodeConfigStatus(ctx, w.name, status); err != nil {
		w.there = unknown
		return err
	}
	w.there, w.spec, w.generation, w.status, w.at = present, spec, at.Generation, status, now
	return nil
}

// note keeps how a try ended for the status, and logs what is new about it.
func (w *Writer) note(f *fault.Fault, now time.Time) {
	w.mu.Lock()
	was := w.why
	if w.why = f; f == nil {
		w.contact = now
	}
	w.mu.Unlock()
	switch {
	case f == nil && was != nil:
		w.o.Log.Info("this node's NodeConfig is written again", "name", w.name)
	case f != nil && (was == nil || was.Code != f.Code):
		w.o.Log.Warn("this node's NodeConfig cannot be written: other than that, nothing depends on it", "name", w.name,
			telemetry.AttrCode, f.Code, telemetry.AttrReason, f.Explain())
	}
}

// Leave removes what was written. Call it after Run has ended.
func (w *Writer) Leave(ctx context.Context) error {
	defer w.client.Close()
	return w.client.DeleteNodeConfig(ctx, w.name)
}

// Status says how writing does.
func (w *Writer) Status() []discoveryclient.Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := discoveryclient.Status{Source: Part, Kind: discoveryclient.KindAnnouncement, URL: w.o.Server,
		State: discoveryclient.StateConnecting, LastContact: w.contact}
	switch {
	case w.why != nil:
		s.State, s.Code, s.Reason = discoveryclient.StateAway, w.why.Code, w.why.Explain()
		s.Warning = s.Reason
	case !w.contact.IsZero():
		s.State = discoveryclient.StateAttending
	}
	return []discoveryclient.Status{s}
}
