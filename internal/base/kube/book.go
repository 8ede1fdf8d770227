// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// book is what one collection says of members, by the names of its objects. It is
// for one user at a time.
type book struct {
	known       map[string]word
	states, bad int // of these: that say something, and of which nothing counts
}

func newBook() *book { return &book{known: map[string]word{}} }

// set puts a word in the place of what was known; nil takes it away.
func (b *book) set(name string, w *word) {
	count := func(w word, by int) {
		if w.states {
			b.states += by
		}
		if w.err != nil {
			b.bad += by
		}
	}
	count(b.known[name], -1)
	if w == nil {
		delete(b.known, name)
		return
	}
	count(*w, 1)
	b.known[name] = *w
}

// object is one object as it was read.
type object struct {
	name    string
	written time.Time // when somebody last changed it, by the API server's clock
	said    roster.Said
	states  bool // there is something said
	lease   time.Duration
	renewed string // the renewal from which the lease runs
	err     error  // why nothing of it counts
}

// word is an object that is known.
type word struct {
	object
	missing bool // the last list has it not: it lives on until its lease ends
}

// header is what every object has.
type header struct {
	Metadata struct {
		Name        string            `json:"name"`
		Generation  int64             `json:"generation"`
		Annotations map[string]string `json:"annotations"`
		Fields      []struct {
			Time time.Time `json:"time"`
		} `json:"managedFields"`
	} `json:"metadata"`
}

// written is when somebody last changed the object, by the API server's clock.
func (h *header) written() time.Time {
	var last time.Time
	for _, f := range h.Metadata.Fields {
		if f.Time.After(last) {
			last = f.Time
		}
	}
	return last
}

// readHeader reads what every object has.
func readHeader(raw json.RawMessage) (header, object) {
	var h header
	if err := json.Unmarshal(raw, &h); err != nil {
		return h, object{err: fault.New(fault.CodeAnnotation, "an object of the Kubernetes API cannot be read").Because(err)}
	}
	return h, object{name: h.Metadata.Name, written: h.written()}
}

// readMember reads an object of kind Member.
func readMember(source string) func(time.Time, json.RawMessage) object {
	return func(seen time.Time, raw json.RawMessage) object {
		_, o := readHeader(raw)
		if o.err != nil {
			return o
		}
		var m v1alpha1.Member
		if err := json.Unmarshal(raw, &m); err != nil {
			o.err = fault.Newf(fault.CodeAnnotation, "the object Member %q cannot be read", shown(o.name)).
				Because(err).Hint("its schema is what 'tombolo discovery manifest' prints: is the cluster's another one?")
			return o
		}
		o.said, o.err = roster.ReadMember(source, seen, m)
		o.states, o.renewed = o.err == nil, m.Spec.RenewTime
		if !o.said.Until.IsZero() {
			o.lease = o.said.Until.Sub(seen)
		}
		return o
	}
}

// readNode reads the annotations of a node.
func readNode(source string) func(time.Time, json.RawMessage) object {
	return func(_ time.Time, raw json.RawMessage) object {
		h, o := readHeader(raw)
		if o.err == nil {
			o.said, o.states, o.err = roster.ReadAnnotations(source, o.name, h.Metadata.Annotations)
		}
		return o
	}
}

// listed takes a whole list. What it lacks is gone where nothing else ends it; a
// lease runs on: an API server whose store was lost, or put back, ends nobody.
func (b *book) listed(now time.Time, l listing) (problems []error) {
	there := make(map[string]bool, len(l.items))
	for _, o := range l.items {
		there[o.name] = true
	}
	for name, w := range b.known {
		if there[name] {
			continue
		}
		if w.missing = true; w.lease == 0 {
			b.set(name, nil)
			continue
		}
		b.set(name, &w)
	}
	b.sweep(now)
	for _, o := range l.items {
		if err := b.put(now, l.when, o); err != nil {
			problems = append(problems, err)
		}
	}
	return problems
}

// put takes one object as it is at present. clock is the API server's; zero: it was
// written just now.
func (b *book) put(now, clock time.Time, o object) (problem error) {
	old, known := b.known[o.name]
	if o.name == "" {
		return o.err // nobody's
	}
	if !known && len(b.known) >= kubeObjects {
		return fault.Newf(fault.CodeLimit, "more than %d objects of a kind are not read", kubeObjects)
	}
	o.said.Heard = now
	if known && old.states {
		o.said.Heard = old.said.Heard
	}
	if o.states && o.lease > 0 {
		o.said.Until = b.until(now, clock, o)
	}
	b.set(o.name, &word{object: o})
	return o.err
}

// due is when an object that was put in the place of an old one has to be reported:
// at once if it says something else, and if it only is renewed, well before the old
// lease ends. Of ten thousand members one or another is renewed at any time.
func due(now time.Time, old, o word) time.Time {
	if !old.states || !o.states || old.said.Until.IsZero() || o.said.Until.IsZero() ||
		!reflect.DeepEqual(old.said.Facts, o.said.Facts) {
		return now
	}
	return now.Add(max(0, min(kubeRenewed, old.said.Until.Sub(now)/2)))
}

// until is when the lease of an object ends, by our clock.
func (b *book) until(now, clock time.Time, o object) time.Time {
	old := b.known[o.name]
	switch {
	case old.lease > 0 && old.renewed == o.renewed:
		return old.said.Until // not renewed: its time runs on
	case clock.IsZero() || o.written.IsZero() || !o.written.Before(clock):
		return now.Add(o.lease)
	}
	// Two times of one clock that is not ours tell how old a renewal is that was made
	// before we looked: a node that died yesterday is not alive again.
	return now.Add(o.lease - clock.Sub(o.written))
}

// remove takes the end of an object.
func (b *book) remove(name string) { b.set(name, nil) }

// sweep forgets what is neither there nor alive.
func (b *book) sweep(now time.Time) {
	for name, w := range b.known {
		if w.missing && !now.Before(w.said.Until) {
			b.set(name, nil)
		}
	}
}

// said is what all objects say, in one order.
func (b *book) said() []roster.Said {
	out := make([]roster.Said, 0, b.states)
	for _, name := range slices.Sorted(maps.Keys(b.known)) {
		if w := b.known[name]; w.states {
			out = append(out, w.said)
		}
	}
	return out
}

// count is the number of objects, of those that say something, and of those of
// which nothing counts.
func (b *book) count() (objects, states, bad int) { return len(b.known), b.states, b.bad }
