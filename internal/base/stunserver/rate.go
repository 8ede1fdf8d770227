// SPDX-License-Identifier: Apache-2.0

package stunserver

import (
	"container/list"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// rates bounds the answers: to each source, so that forged requests cannot flood an
// address, and in total.
type rates struct {
	mu      sync.Mutex
	total   *rate.Limiter
	sources map[netip.Addr]*list.Element
	recent  list.List // of *source, least recent first
}

type source struct {
	key   netip.Addr
	bound *rate.Limiter
}

func newRates() *rates {
	return &rates{total: rate.NewLimiter(stunServerTotal, stunServerTotalBurst), sources: map[netip.Addr]*list.Element{}}
}

// refuse returns the reason why an address gets no answer now, or "".
func (r *rates) refuse(a netip.Addr, now time.Time) string {
	key := site(a)
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.sources[key]
	if e == nil {
		if len(r.sources) >= stunServerSources {
			delete(r.sources, r.recent.Remove(r.recent.Front()).(*source).key)
		}
		e = r.recent.PushBack(&source{key, rate.NewLimiter(stunServerRate, stunServerBurst)})
		r.sources[key] = e
	} else {
		r.recent.MoveToBack(e)
	}
	switch {
	case !e.Value.(*source).bound.AllowN(now, 1):
		return dropSource
	case !r.total.AllowN(now, 1):
		return dropTotal
	}
	return ""
}

// site is the unit by which addresses are counted: an IPv4 address or a /64 of IPv6.
func site(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if !a.Is6() {
		return a
	}
	b := a.As16()
	clear(b[8:])
	return netip.AddrFrom16(b)
}
