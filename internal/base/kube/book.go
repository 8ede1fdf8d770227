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

// book holds the statements about members of one collection, by object name. It is not
// safe for concurrent use.
type book struct {
	known       map[string]word
	states, bad int // objects with a statement, and invalid ones
}

func newBook() *book { return &book{known: map[string]word{}} }

// set replaces the word of a name; nil removes it.
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

// object is a parsed object.
type object struct {
	name    string
	written time.Time // the last change, by the API server's clock
	said    roster.Said
	states  bool // it states something about a member
	lease   time.Duration
	renewed string // the renewal from which the lease runs
	err     error  // why it is ignored
}

// word is the newest known form of an object.
type word struct {
	object
	missing bool // not in the last list: kept until its lease ends
}

// header has the fields that every object has.
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

// written is the time of the last change, by the API server's clock.
func (h *header) written() time.Time {
	var last time.Time
	for _, f := range h.Metadata.Fields {
		if f.Time.After(last) {
			last = f.Time
		}
	}
	return last
}

// readHeader parses the fields that every object has.
func readHeader(raw json.RawMessage) (header, object) {
	var h header
	if err := json.Unmarshal(raw, &h); err != nil {
		return h, object{err: fault.New(fault.CodeAnnotation, "an object of the Kubernetes API cannot be read").Because(err)}
	}
	return h, object{name: h.Metadata.Name, written: h.written()}
}

// readMember parses a Member object.
func readMember(source string) func(time.Time, json.RawMessage) object {
	return func(seen time.Time, raw json.RawMessage) object {
		_, o := readHeader(raw)
		if o.err != nil {
			return o
		}
		var m v1alpha1.Member
		if err := json.Unmarshal(raw, &m); err != nil {
			o.err = fault.Newf(fault.CodeAnnotation, "the Member object %q cannot be read", shown(o.name)).
				Because(err).Hint("compare the cluster's kind Member with what 'tombolo discovery manifest' prints")
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

// readNode parses the annotations of a Node.
func readNode(source string) func(time.Time, json.RawMessage) object {
	return func(_ time.Time, raw json.RawMessage) object {
		h, o := readHeader(raw)
		if o.err == nil {
			o.said, o.states, o.err = roster.ReadAnnotations(source, o.name, h.Metadata.Annotations)
		}
		return o
	}
}

// listed takes a whole list. Objects that it lacks are gone if they have no lease; others
// stay until their lease ends, so that an API server whose store was lost or restored
// removes nobody.
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

// put takes the present form of one object. clock is the API server's time; zero: the
// object was written just now.
func (b *book) put(now, clock time.Time, o object) (problem error) {
	old, known := b.known[o.name]
	if o.name == "" {
		return o.err // it has no name
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

// due is the time by which a replaced object has to be reported: at once if its content
// changed, and well before the old lease ends if it was only renewed. With ten thousand
// members there are renewals all the time.
func due(now time.Time, old, o word) time.Time {
	if !old.states || !o.states || old.said.Until.IsZero() || o.said.Until.IsZero() ||
		!reflect.DeepEqual(old.said.Facts, o.said.Facts) {
		return now
	}
	return now.Add(max(0, min(kubeRenewed, old.said.Until.Sub(now)/2)))
}

// until is the end of an object's lease, by our clock.
func (b *book) until(now, clock time.Time, o object) time.Time {
	old := b.known[o.name]
	switch {
	case old.lease > 0 && old.renewed == o.renewed:
		return old.said.Until // not renewed: the end stays
	case clock.IsZero() || o.written.IsZero() || !o.written.Before(clock):
		return now.Add(o.lease)
	}
	// The difference of two times of the server's clock is the age of a renewal that we
	// did not see: a node that died yesterday must not become alive.
	return now.Add(o.lease - clock.Sub(o.written))
}

// remove takes the removal of an object.
func (b *book) remove(name string) { b.set(name, nil) }

// sweep drops missing objects whose lease has ended.
func (b *book) sweep(now time.Time) {
	for name, w := range b.known {
		if w.missing && !now.Before(w.said.Until) {
			b.set(name, nil)
		}
	}
}

// said returns the statements of all objects, sorted.
func (b *book) said() []roster.Said {
	out := make([]roster.Said, 0, b.states)
	for _, name := range slices.Sorted(maps.Keys(b.known)) {
		if w := b.known[name]; w.states {
			out = append(out, w.said)
		}
	}
	return out
}

// count returns the number of objects, of those with a statement, and of invalid ones.
func (b *book) count() (objects, states, bad int) { return len(b.known), b.states, b.bad }
