// SPDX-License-Identifier: Apache-2.0

package tenantfile

import (
	"crypto/sha256"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/confdir"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

// feedRefusals bounds the refusals that a feed's status lists.
const feedRefusals = 20

// FeedOptions are what a Feed needs.
type FeedOptions struct {
	Source   string // in logs, refusals and other sources' refusals, such as "hub h1"
	Book     *Book
	Hubs     []string // that tenants may name
	Log      *slog.Logger
	Now      func() time.Time
	Reloaded func(error) // counts a change, nil, or a tenant that is refused
}

// Feed is a source of tenants that somebody hands over, each as the text of a file. A tenant that
// is refused keeps what it had.
type Feed struct {
	FeedOptions
	again chan struct{}
	heard chan struct{} // closed once the source has said all that it has

	mu      sync.Mutex
	texts   map[string][sha256.Size]byte // handed over last, by name
	waiting map[string]content           // good, but others have what they claim
	refused map[string]confdir.Refusal
	away    string // why the source says nothing now
}

// NewFeed makes a Feed without tenants.
func NewFeed(o FeedOptions) *Feed {
	f := &Feed{
		FeedOptions: o, again: make(chan struct{}, 1), heard: make(chan struct{}), away: "it has not answered yet",
		texts: map[string][sha256.Size]byte{}, waiting: map[string]content{}, refused: map[string]confdir.Refusal{},
	}
	o.Book.join(o.Source, func() {
		select {
		case f.again <- struct{}{}:
		default: // it will
		}
	})
	return f
}

// Again receives when a refused tenant may be good now: call Retry.
func (f *Feed) Again() <-chan struct{} { return f.again }

// Heard is closed once the source has said all that it has.
func (f *Feed) Heard() <-chan struct{} { return f.heard }

// Away notes why the source says nothing; nil: it has said all that it has.
func (f *Feed) Away(why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away = ""; why != nil {
		f.away = fault.From(why).Error()
		return
	}
	select {
	case <-f.heard:
	default:
		close(f.heard)
	}
}

// Replace makes the texts all that there is.
func (f *Feed) Replace(texts map[string][]byte) {
	f.mu.Lock()
	var gone []string
	for name := range f.texts {
		if _, stays := texts[name]; !stays {
			gone = append(gone, name)
		}
	}
	f.mu.Unlock()
	f.Change(texts, gone)
}

// Change takes new and changed texts, and names that are gone.
func (f *Feed) Change(texts map[string][]byte, gone []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	good := map[string]content{}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		sum := sha256.Sum256(texts[name])
		if old, known := f.texts[name]; known && old == sum {
			continue
		}
		f.texts[name] = sum
		delete(f.waiting, name)
		next, err := parse(place{f.Source, name}.String(), texts[name], f.Hubs)
		if err != nil {
			f.refuse(name, err)
			continue
		}
		good[name] = next
	}
	for _, name := range gone {
		delete(f.texts, name)
		delete(f.waiting, name)
		delete(f.refused, name)
	}
	f.apply(good, gone)
}

// Retry puts into force what was refused because others had what it claims, if they have it no more.
func (f *Feed) Retry() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.apply(maps.Clone(f.waiting), nil)
}

func (f *Feed) apply(good map[string]content, gone []string) {
	changed := 0
	for len(good) > 0 || len(gone) > 0 {
		out := f.Book.apply(f.Source, good, gone)
		changed += out.changed
		for name, next := range good {
			if err := out.refused[name]; err != nil {
				f.waiting[name] = next
				f.refuse(name, err)
				continue
			}
			delete(f.waiting, name)
			delete(f.refused, name)
		}
		good, gone = map[string]content{}, nil
		for _, name := range out.again {
			if next, waits := f.waiting[name]; waits {
				good[name] = next
			}
		}
	}
	if changed > 0 {
		f.Reloaded(nil)
		f.Log.Info("tenants loaded", "source", f.Source, "tenants", f.Book.count(f.Source), "changed", changed)
	}
}

func (f *Feed) refuse(name string, err error) {
	x := fault.From(err)
	known := f.refused[name]
	next := confdir.Refusal{File: place{f.Source, name}.String(), Reason: x.Error(), At: f.Now().UTC()}
	f.refused[name] = next
	f.Reloaded(err)
	if known.Reason != next.Reason {
		f.Log.Error("a tenant is refused; what it had before stays", "source", f.Source, telemetry.AttrCode, x.Code,
			telemetry.AttrReason, x.Error())
	}
}

// Status may be called at any time. It lists some of the refusals.
func (f *Feed) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := Status{Tenants: f.Book.count(f.Source), Away: f.away}
	out.Refused = len(f.refused)
	for _, name := range slices.Sorted(maps.Keys(f.refused)) {
		if len(out.Refusals) == feedRefusals {
			break
		}
		out.Refusals = append(out.Refusals, f.refused[name])
	}
	return out
}
