// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// follower keeps the book of one collection: a list, then a watch from there on.
//
//	list ──► watch ──┐ ended, cut or unreachable: continue from the last version
//	  ▲        ▲─────┘
//	  └──────── 410 Gone: the server no longer has that version
//
// None of these transitions drops known objects.
type follower struct {
	what    collection
	client  *Client
	log     *slog.Logger
	clock   func() time.Time
	random  func() float64
	changed func(due time.Time) // the statements changed, and are due by then
	removed func(name string)   // may be nil

	mu       sync.Mutex
	book     *book
	contact  time.Time // when the API server last answered correctly
	err      error     // why not since then
	over     bool
	taken    bool                 // the list is part of what said returned last
	handed   bool                 // and the receiver has it
	told     fault.Code           // the fault that was logged last
	mistakes map[string]time.Time // invalid objects, and when that was last logged
}

// run follows until ctx ends.
func (f *follower) run(ctx context.Context) error {
	version := ""
	var failed tries
	for ctx.Err() == nil {
		begin := f.clock()
		err := f.turn(ctx, &version)
		if ctx.Err() != nil {
			break
		}
		f.report(err)
		if f.clock().Sub(begin) >= kubeSettled {
			failed = tries{}
		}
		if !run.Wait(ctx, retry(err, failed.next(err), f.random())) {
			break
		}
	}
	return nil
}

// turn lists if necessary, and watches once.
func (f *follower) turn(ctx context.Context, version *string) error {
	if *version == "" {
		l, err := f.client.list(ctx, f.what, f.clock)
		if err != nil {
			return err
		}
		f.listed(l)
		*version = l.version
	}
	lasts := kubeWatch + time.Duration(f.random()*float64(kubeWatch))
	next, err := f.client.watch(ctx, f.what, *version, lasts, f.event)
	if *version = next; Answered(err) == http.StatusGone {
		*version = ""
	}
	return err
}

func (f *follower) listed(l listing) {
	f.mu.Lock()
	problems := f.book.listed(f.clock(), l)
	f.metLocked()
	over := l.over && !f.over
	f.over = l.over
	f.mu.Unlock()
	if over {
		f.log.Warn("Kubernetes has more objects than are read", telemetry.AttrCode, fault.CodeLimit, "path", f.what.path,
			"bound", kubeObjects)
	}
	for _, o := range l.items {
		f.mistake(o.name, o.err)
	}
	for _, p := range problems {
		if fault.Has(p, fault.CodeLimit) {
			f.mistake("", p)
		}
	}
	f.changed(f.clock())
}

// event takes one event of a watch.
func (f *follower) event(kind string, raw json.RawMessage) {
	now := f.clock()
	f.mu.Lock()
	f.metLocked()
	if kind == eventBookmark {
		f.mu.Unlock()
		return
	}
	o := f.what.read(now, raw)
	old, by := f.book.known[o.name], now
	if kind == eventDeleted {
		f.book.remove(o.name)
		delete(f.mistakes, o.name)
		o.err = nil
	} else if err := f.book.put(now, time.Time{}, o); err != nil {
		o.err = err
	} else {
		by = due(now, old, f.book.known[o.name])
	}
	f.mu.Unlock()
	if kind == eventDeleted && f.removed != nil {
		f.removed(o.name)
	}
	f.mistake(o.name, o.err)
	f.changed(by)
}

func (f *follower) said() []roster.Said {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.taken = !f.contact.IsZero()
	return f.book.said()
}

// gave notes that the receiver has what said returned last.
func (f *follower) gave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handed = f.handed || f.taken
}

func (f *follower) part() Part {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := Part{Contact: f.contact, Told: f.handed, Err: f.err}
	p.Objects, p.Members, p.Bad = f.book.count()
	return p
}

// metLocked notes an answer of the API server.
func (f *follower) metLocked() {
	f.contact, f.err = f.clock(), nil
	f.told = ""
}

// mistake logs an invalid object, at intervals: its writer may write it a thousand
// times.
func (f *follower) mistake(name string, err error) {
	if err == nil {
		return
	}
	now := f.clock()
	f.mu.Lock()
	last, before := f.mistakes[name]
	quiet := before && now.Sub(last) < kubeComplain || !before && len(f.mistakes) > kubeObjects
	if !quiet {
		f.mistakes[name] = now
	}
	f.mu.Unlock()
	if !quiet {
		x := fault.From(err)
		f.log.Warn("a Kubernetes object is ignored", telemetry.AttrCode, x.Code, telemetry.AttrReason, x.Explain())
	}
}

// report notes how a turn ended, and logs a failure once.
func (f *follower) report(err error) {
	if err == nil || Answered(err) == http.StatusGone || errors.Is(err, errPartial) {
		return
	}
	x := fault.From(err)
	f.mu.Lock()
	f.err = err
	quiet := f.told == x.Code
	f.told = x.Code
	f.mu.Unlock()
	if !quiet {
		f.log.Warn("Kubernetes cannot be read", telemetry.AttrCode, x.Code, telemetry.AttrReason, x.Explain())
	}
}

// denied reports whether the API server has refused, which an administrator has to fix.
func denied(err error) bool {
	return fault.Has(err, fault.CodeKubeDenied) || fault.Has(err, fault.CodeNotFound)
}

// tries counts consecutive failures of one kind. An API server that starts refuses for some
// seconds what it grants later, so failures to reach it do not count as refusals.
type tries struct {
	n      int
	denied bool
}

// next is the number of this failure, from 0.
func (t *tries) next(err error) int {
	if d := denied(err); d != t.denied {
		*t = tries{denied: d}
	}
	t.n++
	return t.n - 1
}

// retry is how long to wait after try number n (from 0) failed with err: twice as long
// each time, up to a bound, with jitter, so that the nodes of a cluster do not return
// at the same moment.
func retry(err error, n int, random float64) time.Duration {
	if denied(err) && n > 4 { // permissions may arrive during setup
		return kubeRetryDenied + time.Duration(random*float64(kubeRetryDenied))
	}
	top := kubeRetryMost
	if n < 8 {
		top = min(kubeRetryFirst<<n, kubeRetryMost)
	}
	return top/2 + time.Duration(random*float64(top))/2
}
