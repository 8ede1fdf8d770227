// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"container/list"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// callers knows what each address uses: how many calls it made lately, and what
// it holds open. Of addresses that hold nothing so many are remembered, and the one that
// has been quiet for longest is forgotten first; of what is held there is a bound anyway.
type callers struct {
	most int // in quiet

	draining <-chan struct{} // closed when calls that wait are let go ahead
	waiting  atomic.Int64    // calls of all, also in holds

	mu    sync.Mutex
	rates Rates
	known map[netip.Addr]*caller
	quiet list.List               // of *caller that hold nothing
	nets  map[area]*[holdings]int // what the parties of a network hold together
}

type caller struct {
	key   netip.Addr
	calls allowance
	holds [holdings]int
	place *list.Element // in quiet; nil while it holds something
}

// holding is a thing that an address may have so many of.
type holding int

const (
	holdConnection holding = iota
	holdWatch
	holdWait   // a call that waits for its turn, or for the store
	holdUnread // bytes of answers
	holdings   = iota
)

func newCallers(most int, r Rates) *callers {
	return &callers{most: most, rates: r, known: make(map[netip.Addr]*caller), nets: make(map[area]*[holdings]int)}
}

// party is whom an address counts with: a site has a /64 of IPv6, and uses all of it.
func party(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if !a.Is6() {
		return a
	}
	b := a.As16()
	clear(b[8:])
	return netip.AddrFrom16(b)
}

// bound changes the rates of all addresses.
func (c *callers) bound(r Rates) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rates = r
}

// find is the caller of an address.
func (c *callers) find(a netip.Addr) *caller {
	key := party(a)
	one := c.known[key]
	switch {
	case one == nil:
		one = &caller{key: key}
		c.known[key] = one
		c.rest(one)
	case one.place != nil:
		c.quiet.MoveToBack(one.place)
	}
	return one
}

// rest puts a caller among those that hold nothing.
func (c *callers) rest(one *caller) {
	one.place = c.quiet.PushBack(one)
	for c.quiet.Len() > c.most {
		delete(c.known, c.quiet.Remove(c.quiet.Front()).(*caller).key)
	}
}

// hold counts more of a thing with an address, which may have each of all that there may be, and
// with the networks around it, which have the same shares as of members. An address that holds
// none is given any number. release must follow.
func (c *callers) hold(a netip.Addr, what holding, more, each, all int) (release func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.find(a)
	for i, bits := range around(one.key) {
		net, has := areaOf(one.key, bits), 0
		if i == 0 {
			has = one.holds[what]
		} else if n := c.nets[net]; n != nil {
			has = n[what]
		}
		if bound := most(bits, each, all); has > 0 && has+more > bound {
			return nil, tooMuch(net, what, has, bound)
		}
	}
	c.count(one, what, more)
	if one.place != nil {
		c.quiet.Remove(one.place)
		one.place = nil
	}
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.count(one, what, -more); one.holds == [holdings]int{} {
			c.rest(one)
		}
	}), nil
}

func tooMuch(net area, what holding, has, bound int) error {
	f := fault.New(fault.CodeLimit, "the call is not taken")
	if what == holdUnread {
		return f.Whyf("%v has not read %d bytes of earlier answers, and its bound is %d", net, has, bound).
			Hint("read them, or end those calls; watch in place of listing").After(time.Second)
	}
	thing := [...]string{"connections", "watches", "calls that wait"}[what]
	f = f.Whyf("%v has %d %s, and its bound is %d", net, has, thing, bound)
	if what == holdWait {
		return f.Hint("make fewer calls at once")
	}
	return f.Hint("close some, or raise limits.%sPerAddress of the service", thing)
}

// count counts in what a caller holds, with it and with the networks around it.
func (c *callers) count(one *caller, what holding, more int) {
	one.holds[what] += more
	for _, bits := range around(one.key)[1:] {
		net := areaOf(one.key, bits)
		has := c.nets[net]
		if has == nil {
			has = new([holdings]int)
			c.nets[net] = has
		}
		if has[what] += more; *has == [holdings]int{} {
			delete(c.nets, net)
		}
	}
}

// addrOf is the address and the port of a connection's other end.
func addrOf(a net.Addr) netip.AddrPort {
	if tcp, ok := a.(*net.TCPAddr); ok {
		at := tcp.AddrPort()
		return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
	}
	return netip.AddrPort{} // of a test's pipe: all of those are one
}

// forwarded are the headers in which a proxy says for whom it speaks.
type forwarded struct {
	realIP []string // X-Real-IP
	chain  []string // X-Forwarded-For
}

// realCaller is the address of the caller. Only a trusted proxy is believed about it: of a chain, the
// last address that is not such a proxy counts, as each proxy appends the address it saw. If a chain
// and an X-Real-IP disagree, both are ignored: the caller sent one of them, through a proxy that
// only sets the other. The port is known only for direct connections.
func realCaller(peer netip.AddrPort, trusted []netip.Prefix, f forwarded) netip.AddrPort {
	if !within(trusted, peer.Addr()) {
		return peer
	}
	chain, inChain := last(trusted, f.chain)
	single, isSingle := netip.Addr{}, false
	if len(f.realIP) == 1 {
		a, err := netip.ParseAddr(strings.TrimSpace(f.realIP[0]))
		single = a.Unmap().WithZone("")
		isSingle = err == nil && !within(trusted, single)
	}
	switch {
	case inChain && isSingle && chain != single:
		return peer
	case inChain:
		return netip.AddrPortFrom(chain, 0)
	case isSingle && len(f.chain) == 0:
		return netip.AddrPortFrom(single, 0)
	}
	return peer
}

// last is the last address of a chain that is not trusted. An unreadable one ends the search: it is
// unknown who wrote the rest.
func last(trusted []netip.Prefix, headers []string) (netip.Addr, bool) {
	seen := 0
	for i := len(headers) - 1; i >= 0; i-- {
		for rest, more := headers[i], true; more; {
			var item string
			if at := strings.LastIndexByte(rest, ','); at >= 0 {
				rest, item = rest[:at], rest[at+1:]
			} else {
				item, more = rest, false
			}
			if seen++; seen > discoveryHops {
				return netip.Addr{}, false
			}
			a, err := netip.ParseAddr(strings.TrimSpace(item))
			if err != nil {
				return netip.Addr{}, false
			}
			if a = a.Unmap().WithZone(""); !within(trusted, a) {
				return a, true
			}
		}
	}
	return netip.Addr{}, false
}

func within(networks []netip.Prefix, a netip.Addr) bool {
	for _, p := range networks {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
