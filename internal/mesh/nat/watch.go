// SPDX-License-Identifier: Apache-2.0

package nat

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// Server answers STUN.
type Server struct {
	Name string // of the hub, service or setting that it comes from
	Addr netip.AddrPort
}

// Event is something that happened to a socket. The zero value: time has passed.
type Event struct {
	Servers []Server // the list, if it is not nil
	Needed  *bool    // whether the mapping is needed
	Changed bool     // the machine has other addresses, or slept
	From    netip.AddrPort
	Packet  []byte // a STUN packet that came from From
}

// Mapped is an endpoint of the socket as seen from outside.
type Mapped struct {
	Addr   netip.AddrPort
	Server Server    // that said so last
	At     time.Time // when it was seen last
}

// Rebinding is a change of a mapping.
type Rebinding struct {
	Server   Server
	From, To netip.AddrPort
}

// Packet is to be sent from the socket.
type Packet struct {
	To   netip.AddrPort
	Data []byte
}

// Decision is what to do after an event, and what is known then.
type Decision struct {
	Send    []Packet
	Mapped  []Mapped // all of them, the one that was seen last first
	Changed bool     // they have changed
	Rebound []Rebinding
	Err     error     // why a packet does not count
	Wake    time.Time // when Next is to be called if nothing happens; zero: never
}

// ServerState is what is known about a server, for people.
type ServerState struct {
	Server
	Used    bool           // it is being asked
	Mapped  netip.AddrPort // not valid before its first answer
	RTT     time.Duration
	Answer  time.Time // the last one
	Failing time.Time // since when it does not answer
}

// Watch keeps the mapped endpoints of a socket fresh. Its owner calls Next from
// one goroutine, with each event and when it is time.
type Watch struct {
	client  *Client
	servers []*asked
	needed  bool
	known   []netip.AddrPort // what was reported last
}

type asked struct {
	Server
	due    time.Time // of the next request; zero: at once
	tries  int       // requests without an answer
	rtt    time.Duration
	mapped netip.AddrPort
	at     time.Time
	failed time.Time // since when; zero: it answers, or was not asked
}

// NewWatch makes a watch. The seed is random and secret.
func NewWatch(seed [32]byte) *Watch { return &Watch{client: NewClient(seed), needed: true} }

// Awaits reports whether a datagram has the id of an open request. Others are of no use to Next.
func (w *Watch) Awaits(datagram []byte) bool { return w.client.Awaits(datagram) }

// Next takes an event and decides.
func (w *Watch) Next(e Event, now time.Time) Decision {
	var d Decision
	if e.Servers != nil {
		w.list(e.Servers)
	}
	if e.Needed != nil && *e.Needed != w.needed {
		w.needed = *e.Needed
		for _, s := range w.servers {
			if w.needed && s.tries == 0 {
				s.due = time.Time{}
			}
		}
	}
	if e.Changed {
		w.anew()
	}
	if e.Packet != nil {
		w.heard(e, now, &d)
	}
	w.late(now)
	w.ask(now, &d)
	w.tell(&d)
	return d
}

// list takes a new list of servers; state of remaining ones is kept.
func (w *Watch) list(servers []Server) {
	var next []*asked
	for _, s := range servers {
		s.Addr = unmap(s.Addr)
		same := func(a *asked) bool { return a.Addr == s.Addr }
		if !s.Addr.IsValid() || s.Addr.Port() == 0 || len(next) >= limit.STUNServers || slices.ContainsFunc(next, same) {
			continue
		}
		if i := slices.IndexFunc(w.servers, same); i >= 0 {
			w.servers[i].Server = s
			next = append(next, w.servers[i])
		} else {
			next = append(next, &asked{Server: s})
		}
	}
	w.servers = next
}

// anew forgets what held for another network. Mapped endpoints stay until the servers report
// others, or nothing: peers may still reach them.
func (w *Watch) anew() {
	w.client.Forget(never())
	for _, s := range w.servers {
		s.due, s.tries, s.failed = time.Time{}, 0, time.Time{}
	}
}

func never() time.Time { return time.Unix(1<<40, 0) }

func (w *Watch) heard(e Event, now time.Time, d *Decision) {
	reply, err := w.client.Take(e.From, e.Packet, now)
	if err != nil {
		d.Err = err
		return
	}
	i := slices.IndexFunc(w.servers, func(s *asked) bool { return s.Addr == reply.Server })
	if i < 0 {
		return // it was taken off the list
	}
	s := w.servers[i]
	if s.mapped != reply.Mapped {
		if s.mapped.IsValid() {
			d.Rebound = append(d.Rebound, Rebinding{s.Server, s.mapped, reply.Mapped})
			w.askSoon(s)
		}
		s.mapped = reply.Mapped
	}
	s.rtt, s.at, s.tries, s.failed, s.due = reply.RTT, now, 0, time.Time{}, now.Add(w.interval())
}

// askSoon asks the other servers of a family at once: what changed for one of them has
// changed for all. One that answered just now waits for a moment.
func (w *Watch) askSoon(but *asked) {
	for _, s := range w.servers {
		if s != but && s.tries == 0 && s.Addr.Addr().Is4() == but.Addr.Addr().Is4() {
			if soon := s.at.Add(limit.STUNRecheck); soon.Before(s.due) {
				s.due = soon
			}
		}
	}
}

// interval is the time to the next request to a server that answered.
func (w *Watch) interval() time.Duration {
	if !w.needed {
		return limit.STUNSlow
	}
	random := w.client.random()
	spread := limit.STUNKeepLate - limit.STUNKeep
	extra := binary.BigEndian.Uint32(random[:]) % uint32(spread/time.Millisecond)
	return limit.STUNKeep + time.Duration(extra)*time.Millisecond
}

// late counts requests that timed out, and forgets endpoints that nobody has confirmed for long:
// they are not to be announced.
func (w *Watch) late(now time.Time) {
	for _, s := range w.servers {
		if s.tries >= limit.STUNTries && !now.Before(s.due) {
			if s.failed.IsZero() {
				s.failed = now
			}
			s.tries, s.due = 0, now.Add(w.again(s))
		}
		if !s.failed.IsZero() && s.mapped.IsValid() && !now.Before(s.at.Add(limit.STUNHold)) {
			s.mapped = netip.AddrPort{}
		}
	}
	w.client.Forget(now.Add(-4 * limit.STUNWait * (1 << limit.STUNTries)))
}

// again is the time to the next request to a server that does not answer: if no other of the family
// does either, the network may be at fault, and its return should be noticed.
func (w *Watch) again(s *asked) time.Duration {
	other := func(o *asked) bool {
		return o != s && o.failed.IsZero() && o.mapped.IsValid() && o.Addr.Addr().Is4() == s.Addr.Addr().Is4()
	}
	if w.needed && !slices.ContainsFunc(w.servers, other) {
		return w.interval()
	}
	return limit.STUNAgain
}

// used lists the servers to ask: of each family those that answer, in the order of the list. If
// there are too few, failing ones are asked too, each at its time.
func (w *Watch) used() []*asked {
	var out []*asked
	var n4, n6 int
	count := func(s *asked) *int {
		if s.Addr.Addr().Is4() {
			return &n4
		}
		return &n6
	}
	for _, s := range w.servers {
		if n := count(s); s.failed.IsZero() && *n < limit.STUNAsked {
			*n++
			out = append(out, s)
		}
	}
	for _, s := range w.servers {
		if n := count(s); !s.failed.IsZero() && *n < limit.STUNAsked {
			out = append(out, s)
		}
	}
	return out
}

func (w *Watch) ask(now time.Time, d *Decision) {
	for _, s := range w.used() {
		if !now.Before(s.due) {
			d.Send = append(d.Send, Packet{s.Addr, w.client.Ask(s.Addr, now)})
			s.due = now.Add(limit.STUNWait << s.tries)
			s.tries++
		}
		d.Wake = sooner(d.Wake, s.due)
		if !s.failed.IsZero() && s.mapped.IsValid() {
			d.Wake = sooner(d.Wake, s.at.Add(limit.STUNHold))
		}
	}
}

func sooner(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// tell returns what is mapped, and whether it has changed.
func (w *Watch) tell(d *Decision) {
	d.Mapped = w.Mapped()
	var addrs []netip.AddrPort
	for _, m := range d.Mapped {
		addrs = append(addrs, m.Addr)
	}
	slices.SortFunc(addrs, netip.AddrPort.Compare)
	d.Changed = !slices.Equal(addrs, w.known)
	w.known = addrs
}

// Mapped lists the socket's endpoints as seen from outside. From servers that are no longer asked
// it takes only what others confirm.
func (w *Watch) Mapped() []Mapped {
	var out []Mapped
	for _, s := range w.used() {
		if !s.mapped.IsValid() {
			continue
		}
		i := slices.IndexFunc(out, func(m Mapped) bool { return m.Addr == s.mapped })
		switch {
		case i < 0:
			out = append(out, Mapped{s.mapped, s.Server, s.at})
		case out[i].At.Before(s.at):
			out[i].At, out[i].Server = s.at, s.Server
		}
	}
	slices.SortStableFunc(out, func(a, b Mapped) int { return cmp.Or(b.At.Compare(a.At), a.Addr.Compare(b.Addr)) })
	return out
}

// Varies reports whether servers of one family see different endpoints: these are then of no use to
// others.
func (w *Watch) Varies(v4 bool) bool {
	var first netip.AddrPort
	for _, s := range w.used() {
		if !s.mapped.IsValid() || s.mapped.Addr().Is4() != v4 {
			continue
		}
		if first.IsValid() && first != s.mapped {
			return true
		}
		first = s.mapped
	}
	return false
}

// Servers returns what is known about each server.
func (w *Watch) Servers() []ServerState {
	used := w.used()
	out := make([]ServerState, 0, len(w.servers))
	for _, s := range w.servers {
		out = append(out, ServerState{s.Server, slices.Contains(used, s), s.mapped, s.rtt, s.at, s.failed})
	}
	return out
}
