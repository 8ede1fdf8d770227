// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
)

// Config is what a client needs. Its functions must be fit for use by several
// goroutines, and must not block. What may be nil is said.
type Config struct {
	Dial func(ctx context.Context, address string) (net.Conn, error) // TCP, through a proxy if need be
	// TLS is for a connection that begins: ALPN, certificate, and a verification that
	// nobody but a hub passes.
	TLS func() (*tls.Config, error)
	Log *slog.Logger
	// Changed is called when Names gives another answer than before; may be nil.
	Changed func()
	// Tried gets the result of each attempt to connect, nil of one that succeeded; Ended
	// that of each connection that was in use and that the other end closed. May be nil.
	Tried, Ended func(*fault.Fault)
	Random       func() float64 // in [0, 1), for the backoff
}

// Handlers take what hubs send. They must be fit for use by several goroutines, and must not block.
type Handlers struct {
	Receive func(hub, peer string, datagram []byte) // a datagram from a peer, good until it returns
	Absent  func(hub, peer string)                  // the peer is not at the hub
}

// Client keeps a connection to each hub that its addresses lead to.
type Client struct {
	cfg   Config
	to    Handlers // of Run
	total totals
	view  atomic.Pointer[map[string]*hub] // a copy of hubs
	wake  chan struct{}                   // one place

	mu    sync.Mutex
	links []*link // one for each address, in their order
	gone  []*link // of addresses that are not wanted any more, to be stopped
	hubs  map[string]*hub
	told  []string
}

// New makes a client without addresses; Run connects.
func New(cfg Config) *Client {
	c := &Client{cfg: cfg, wake: make(chan struct{}, 1), hubs: map[string]*hub{}}
	c.view.Store(&map[string]*hub{})
	return c
}

// Use takes the addresses (host:port) by which hubs are reached, at most
// limit.RelayHubs: what is beyond is not used. Connections by others end.
func (c *Client) Use(addresses []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.links
	c.links = nil
	for _, at := range addresses {
		if len(c.links) == limit.RelayHubs || slices.ContainsFunc(c.links, func(l *link) bool { return l.address == at }) {
			continue
		}
		i := slices.IndexFunc(was, func(l *link) bool { return l.address == at })
		if i < 0 {
			c.links = append(c.links, newLink(c, at))
			continue
		}
		c.links = append(c.links, was[i])
	}
	for _, l := range was {
		if !slices.Contains(c.links, l) {
			c.gone = append(c.gone, l)
		}
	}
	c.ring()
}

// Run keeps the connections until ctx ends.
func (c *Client) Run(ctx context.Context, to Handlers) error {
	c.to = to
	g := run.NewGroup(ctx)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		c.start(g)
		timer.Reset(c.look())
		select {
		case <-c.wake:
		case <-timer.C:
		case <-ctx.Done():
			return g.Wait()
		}
	}
}

// start has new addresses tried, and stops those that are not wanted.
func (c *Client) start(g *run.Group) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.gone {
		if l.stop != nil {
			l.stop()
		}
	}
	c.gone = nil
	for _, l := range c.links {
		if l.stop == nil {
			ctx, stop := context.WithCancel(g.Context())
			l.stop = stop
			g.Do(func(context.Context) {
				defer stop()
				l.keep(ctx)
			})
		}
	}
}

// look forgets hubs that are gone, reports if the names have changed, and says after which
// time to look again.
func (c *Client) look() time.Duration {
	c.mu.Lock()
	names, next := c.namesLocked(time.Now())
	c.forget()
	changed := !slices.Equal(names, c.told)
	c.told = names
	c.mu.Unlock()
	if changed && c.cfg.Changed != nil {
		c.cfg.Changed()
	}
	return next
}

func (c *Client) ring() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Names are the hubs at which this node is: those that it is connected to, and those
// from which a break of less than relayStable parts it. What is announced about them is
// sent to every member: it must not change with each hiccup.
func (c *Client) Names() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	names, _ := c.namesLocked(time.Now())
	return names
}

// namesLocked needs the lock; next is when the first of them may be none any more.
func (c *Client) namesLocked(now time.Time) (names []string, next time.Duration) {
	next = time.Hour
	for _, h := range c.sorted() {
		left := h.until.Sub(now)
		switch {
		case h.cur.Load() != nil:
		case left <= 0:
			continue
		default:
			next = min(next, left)
		}
		names = append(names, h.name)
	}
	return names[:min(len(names), limit.RelayHubs)], next
}

// sorted are the hubs in the order of the addresses that lead to them.
func (c *Client) sorted() []*hub {
	out := make([]*hub, 0, len(c.hubs))
	for _, h := range c.hubs {
		out = append(out, h)
	}
	place := func(h *hub) int {
		at := len(c.links)
		for i, l := range c.links {
			if l.hub == h {
				at = min(at, i)
			}
		}
		return at
	}
	slices.SortFunc(out, func(a, b *hub) int { return cmp.Or(place(a)-place(b), strings.Compare(a.name, b.name)) })
	return out
}

// forget drops hubs to which nothing leads any more.
func (c *Client) forget() {
	now := time.Now()
	before := len(c.hubs)
	for name, h := range c.hubs {
		led := slices.ContainsFunc(c.links, func(l *link) bool { return l.hub == h })
		if !led && h.holder == nil && h.cur.Load() == nil && !h.until.After(now) {
			delete(c.hubs, name)
		}
	}
	if len(c.hubs) != before {
		c.show()
	}
}

// show gives the datagrams' side the hubs as they are now.
func (c *Client) show() {
	view := make(map[string]*hub, len(c.hubs))
	for name, h := range c.hubs {
		view[name] = h
	}
	c.view.Store(&view)
}

// Send passes datagrams to a peer by a hub, and says how many were taken. It never
// waits: what does not fit into the queue is dropped, as by a network.
func (c *Client) Send(hub, peer string, datagrams ...[]byte) int {
	h := (*c.view.Load())[hub]
	if h == nil || h.cur.Load() == nil { // what waited for a hub that is away would be late
		c.total.away.Add(int64(len(datagrams)))
		if h != nil {
			h.dropped.Add(int64(len(datagrams)))
		}
		return 0
	}
	taken, odd, bytes := h.out.packets(peer, datagrams)
	lost := int64(len(datagrams) - taken)
	h.sent.add(int64(taken), bytes)
	h.dropped.Add(lost)
	c.total.sent.add(int64(taken), bytes)
	c.total.odd.Add(odd)
	c.total.full.Add(lost - odd)
	return taken
}

// Renew has all connections made again, with what Config.TLS gives now, before the
// ones that are in use are left: after a new certificate, or a change of addresses.
func (c *Client) Renew() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.links {
		l.renew()
	}
}

// Status shows one hub, or an address of which it is not known where it leads.
type Status struct {
	Hub                      string   // name of its certificate; empty: not known yet
	Address                  string   // that is in use, or was tried last
	Others                   []string // further addresses that lead there
	Connected                bool
	Since                    time.Time // of Connected
	Draining                 bool
	Observed                 netip.AddrPort // where the hub sees this node; not valid if unknown
	RTT                      time.Duration  // of the newest ping; 0: none came back yet
	Rate                     uint64         // bytes a second that the hub grants; 0: no bound
	Sent                     int64          // datagrams
	Received                 int64
	SentBytes, ReceivedBytes int64
	Dropped                  int64        // that found no room, or no connection
	Queued                   int          // bytes
	Fault                    *fault.Fault // why it is not connected, or has no newer connection
}

// Status shows all hubs, in the order of the addresses.
func (c *Client) Status() []Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Status
	for _, h := range c.sorted() {
		s, by := h.status(), h.cur.Load()
		var first *link
		for _, l := range c.links {
			if l.hub != h {
				continue
			}
			if own := by != nil && by.link == l; own || first == nil || by == nil && first.held && !l.held {
				first, l = l, first
			}
			if l != nil {
				s.Others = append(s.Others, l.address)
			}
		}
		if first == nil && by == nil {
			continue // its address is not wanted any more, or leads elsewhere now
		}
		if first != nil {
			s.Address, s.Fault = cmp.Or(s.Address, first.address), first.last
		}
		out = append(out, s)
	}
	for _, l := range c.links {
		if l.hub == nil {
			out = append(out, Status{Address: l.address, Fault: l.last})
		}
	}
	return out
}

// Totals are what the client has done since it was made, over all hubs.
type Totals struct {
	Connected                                     int // hubs
	Sent, Received, SentBytes, ReceivedBytes      int64
	DroppedAway, DroppedQueue, DroppedOdd, Absent int64 // no connection, no room, too large, reported absent
}

// Totals reads them.
func (c *Client) Totals() Totals {
	t := &c.total
	out := Totals{
		Sent: t.sent.datagrams.Load(), SentBytes: t.sent.bytes.Load(), Received: t.received.datagrams.Load(),
		ReceivedBytes: t.received.bytes.Load(),
		DroppedAway:   t.away.Load(), DroppedQueue: t.full.Load(), DroppedOdd: t.odd.Load(), Absent: t.absent.Load(),
	}
	for _, h := range *c.view.Load() {
		if h.cur.Load() != nil {
			out.Connected++
		}
	}
	return out
}

// totals count over all hubs, also over those that are forgotten.
type totals struct {
	sent, received          flow
	away, full, odd, absent atomic.Int64
}

// flow counts datagrams and their bytes.
type flow struct{ datagrams, bytes atomic.Int64 }

func (f *flow) add(datagrams, bytes int64) {
	if datagrams > 0 {
		f.datagrams.Add(datagrams)
		f.bytes.Add(bytes)
	}
}
