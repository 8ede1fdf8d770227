// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery/discoveryclient"
)

// part is the objects of one kind. It receives them from the API server.
type part[T any] struct {
	name    string
	owner   *Federation
	compact func(json.RawMessage) json.RawMessage
	read    func(json.RawMessage) (T, error)
	objects map[string]*object[T]
	contact time.Time
	away    error
	heard   bool // the API server has given all of them
	taken   bool // and they are part of what was decided last
	handed  bool // and the receiver has what comes of them
}

// object is one as it is kept, and what it says.
type object[T any] struct {
	name  string
	raw   json.RawMessage
	value T
	err   error // why it does not count
}

// newPart makes one of objects that are kept as O says.
func newPart[O, T any](name string, owner *Federation, read func(json.RawMessage) (T, error)) *part[T] {
	return &part[T]{name: name, owner: owner, compact: compact[O], read: read, objects: map[string]*object[T]{}}
}

// Whole has all objects.
func (p *part[T]) Whole(all map[string]json.RawMessage, cut bool) {
	p.owner.mu.Lock()
	defer p.owner.stir()
	defer p.owner.mu.Unlock()
	if !cut {
		p.heard = true
		maps.DeleteFunc(p.objects, func(name string, _ *object[T]) bool { return all[name] == nil })
	}
	for name, raw := range all {
		p.putLocked(name, raw)
	}
}

// One is a change of an object.
func (p *part[T]) One(name string, raw json.RawMessage) {
	p.owner.mu.Lock()
	defer p.owner.mu.Unlock()
	if raw == nil {
		delete(p.objects, name)
		p.owner.stir()
	} else if p.putLocked(name, raw) {
		p.owner.stir()
	}
}

// Away says why the API server cannot be read. What was known stays.
func (p *part[T]) Away(why error) {
	p.owner.mu.Lock()
	defer p.owner.mu.Unlock()
	if p.away = why; why == nil {
		p.contact = time.Now()
	}
}

// putLocked reads an object, and reports whether it says something else than before; mu is held.
func (p *part[T]) putLocked(name string, raw json.RawMessage) bool {
	raw = p.compact(raw)
	before := p.objects[name]
	if before != nil && string(before.raw) == string(raw) {
		return false
	}
	o := &object[T]{name: name, raw: raw}
	o.value, o.err = p.read(raw)
	p.objects[name] = o
	if o.err != nil {
		p.owner.tell(o.err)
	}
	return true
}

func (f *Federation) tell(err error) {
	x := fault.From(err)
	f.o.Log.Warn("an object of linked clusters does not count", telemetry.AttrCode, x.Code,
		telemetry.AttrReason, x.Explain())
}

// compact has what a node uses of an object: who has written which field, and when what was heard, is most of it.
func compact[O any](raw json.RawMessage) json.RawMessage {
	var o O
	if json.Unmarshal(raw, &o) != nil {
		return raw // whoever reads it says why
	}
	out, err := json.Marshal(o)
	if err != nil {
		return raw
	}
	return out
}

// goodLocked are the objects that count, in the order of their names; mu is held.
func (p *part[T]) goodLocked() (out []*object[T]) {
	for _, name := range slices.Sorted(maps.Keys(p.objects)) {
		if o := p.objects[name]; o.err == nil {
			out = append(out, o)
		}
	}
	return out
}

func (p *part[T]) raw() map[string]json.RawMessage {
	out := make(map[string]json.RawMessage, len(p.objects))
	for name, o := range p.objects {
		out[name] = o.raw
	}
	return out
}

// statusLocked is for people; mu is held.
func (p *part[T]) statusLocked(server string) discoveryclient.Status {
	s := discoveryclient.Status{Source: p.name, Kind: discoveryclient.KindKubernetes, URL: server,
		State: discoveryclient.StateConnecting, LastContact: p.contact, Settled: p.handed}
	for _, name := range slices.Sorted(maps.Keys(p.objects)) {
		if o := p.objects[name]; o.err != nil {
			if s.Junk++; s.Junk == 1 {
				s.Warning = fault.From(o.err).Explain()
			}
		}
	}
	switch {
	case p.away != nil:
		why := fault.From(p.away)
		s.State, s.Code, s.Reason = discoveryclient.StateAway, why.Code, why.Explain()
	case !p.contact.IsZero():
		s.State = discoveryclient.StateAttending
	}
	return s
}
