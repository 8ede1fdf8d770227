// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// accounts are those of one cluster: its own, and one for each identity of an agent
// or a caller that has something open or had a moment ago.
type accounts struct {
	name    string
	cluster *account
	counted func(scope, resource)

	pressed atomic.Bool  // short of memory, and this cluster has the most of it
	waits   atomic.Int64 // bytes that frontends hold for streams that do not take them
	memory  *atomic.Bool // of the hub: it is used up, and nobody gets more

	mu      sync.Mutex
	limits  limits
	agents  map[string]*account
	callers map[string]*account
}

func newAccounts(name id.Cluster, l limits, counted func(scope, resource), memory *atomic.Bool) *accounts {
	return &accounts{
		name: name.String(), cluster: newAccount(scopeCluster, name.String(), "", l.cluster, counted), counted: counted,
		memory: memory, limits: l, agents: map[string]*account{}, callers: map[string]*account{},
	}
}

// bound puts other limits into force.
func (a *accounts) bound(l limits) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.limits == l {
		return
	}
	a.limits = l
	a.cluster.bound(l.cluster)
	for _, one := range a.agents {
		one.bound(l.agent)
	}
	for _, one := range a.callers {
		one.bound(l.caller)
	}
}

func (a *accounts) agent(who id.Agent) *account {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.find(a.agents, scopeAgent, who.String(), a.limits.agent)
}

func (a *accounts) caller(who string) *account {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.find(a.callers, scopeCaller, who, a.limits.caller)
}

// find needs the lock. Who has found an account takes a place in it within
// limit.CallerKept, or looks again: one that has nothing open gives way to others, and
// bounds do not hold over two.
func (a *accounts) find(in map[string]*account, s scope, who string, b bounds) *account {
	one, ok := in[who]
	if !ok {
		if len(in) >= limit.CallerRecords {
			now := time.Now()
			for name, other := range in {
				if other.idle(now, limit.CallerKept) {
					delete(in, name)
				}
			}
		}
		one = newAccount(s, a.name, who, b, a.counted)
		in[who] = one
	}
	one.newest.Store(time.Now().UnixNano())
	return one
}

// all lists the cluster's account, those of its agents and those of its callers.
func (a *accounts) all() (out []*account) {
	a.each(func(one *account) { out = append(out, one) })
	return out
}

// each calls fn with the same, the cluster's first.
func (a *accounts) each(fn func(*account)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	fn(a.cluster)
	for _, in := range [...]map[string]*account{a.agents, a.callers} {
		for _, one := range in {
			fn(one)
		}
	}
}

// enter takes places for a session; leave gives them back.
func (a *accounts) enter(s *session) error {
	if err := a.short(); err != nil {
		return err
	}
	if s.account == nil {
		s.account = a.agent(s.agent)
	}
	if b := s.account.bounds.Load(); !take(&s.account.sessions, b.sessions) {
		return s.account.refuse(ofSessions, b.sessions, 0).Hint("give each agent its own identity: tombolo token create --cluster %s", a.name)
	}
	if b := a.cluster.bounds.Load(); !take(&a.cluster.sessions, b.sessions) {
		s.account.sessions.Add(-1)
		return a.cluster.refuse(ofSessions, b.sessions, 0)
	}
	return nil
}

func (a *accounts) leave(s *session) {
	s.account.sessions.Add(-1)
	s.account.newest.Store(time.Now().UnixNano())
	a.cluster.sessions.Add(-1)
}

// short refuses what would take more memory, where there is too little.
func (a *accounts) short() error {
	pressed := a.pressed.Load()
	if !pressed && !a.memory.Load() {
		return nil
	}
	a.cluster.hit(ofMemory)
	f := fault.New(fault.CodeLimit, "the hub is short of memory").Hint("try again; 'tombolo status %s' shows what is used", a.name).After(limit.MemoryAgain)
	if pressed {
		return f.Whyf("cluster %s uses the most of it and gets no more", a.name)
	}
	return f.Whyf("all of limits.memory is in use")
}

// idleCallers counts the callers' connections beyond the streams, whose cost has a
// connection in it.
func (a *accounts) idleCallers() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := -a.cluster.streams.Load()
	for _, one := range a.callers {
		n += one.sessions.Load()
	}
	return max(0, n)
}

// places are the accounts in which a dial, and then its stream, counts as one: of its
// cluster, its agent and its caller, as far as it has come.
type places struct {
	of [3]*account
	n  int
}

// take takes a place, which is held with a wait even if there is an error.
func (p *places) take(a *account, patience time.Duration) (t turn, err error) {
	if t, err = a.begin(patience); err == nil || t.wait > 0 {
		p.of[p.n] = a
		p.n++
	}
	return t, err
}

// drop gives the newest back.
func (p *places) drop() {
	p.n--
	p.of[p.n].end()
	p.of[p.n] = nil
}

// end gives all of a dial back that became no stream.
func (p *places) end() {
	for p.n > 0 {
		p.drop()
	}
}

// begun says that the dial has become a stream; leave that this one has ended.
func (p *places) begun() {
	for _, a := range p.of[:p.n] {
		a.pending.Add(-1)
	}
}

func (p *places) leave() {
	for _, a := range p.of[:p.n] {
		a.streams.Add(-1)
	}
}

// admitDial takes places for a dial of a caller and waits for its turn, or says what
// bound it is beyond.
func (h *Hub) admitDial(ctx context.Context, c *cluster, caller string) (*places, error) {
	p, who := &places{}, c.accounts.caller(caller)
	of := [...]*account{who, c.accounts.cluster} // whom its own bounds refuse costs its cluster nothing
	var turns [len(of)]turn
	var longest time.Duration
	var err error
	for i, a := range of {
		turns[i], err = p.take(a, limit.DialTurn)
		if longest = max(longest, turns[i].wait); err != nil {
			break
		}
	}
	if longest > 0 && !run.Wait(ctx, longest) && err == nil {
		for i, a := range of {
			a.letGo(turns[i])
		}
		err = dialEnd(ctx)
	}
	if err == nil && h.draining.Load() { // meanwhile
		err = fault.New(fault.CodeDraining, "the hub is shutting down").Hint("try again")
	}
	if err == nil {
		err = h.roomFor(c, who)
	}
	if err != nil {
		p.end()
		return nil, err
	}
	return p, nil
}

// dialEnd says why a dial ended that waited for its turn.
func dialEnd(ctx context.Context) *fault.Fault {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fault.New(fault.CodeDialTimeout, "the dial did not end in time").Whyf("it waited for its turn")
	}
	return fault.New(fault.CodeDialCanceled, "the caller gave up").Whyf("it waited for its turn")
}

// roomFor refuses a caller when there is too much unread already.
func (h *Hub) roomFor(c *cluster, caller *account) error {
	if err := c.accounts.short(); err != nil {
		return err
	}
	for _, a := range [...]*account{c.accounts.cluster, caller} {
		if b := a.bounds.Load(); c.unreadOf(a) >= b.unread {
			return a.refuse(ofUnread, b.unread, 0)
		}
	}
	return nil
}

// placeAt takes a place for a dial at an agent.
func (s *session) placeAt(p *places) error {
	a := s.account
	if b := a.bounds.Load(); s.cluster.unreadOf(a) >= b.unread {
		return a.refuse(ofUnread, b.unread, 0)
	}
	_, err := p.take(a, 0) // another agent may have its turn now
	return err
}

// unreadOf is what one of a cluster's accounts has unread: bytes that came from agents
// and were not read by callers, and with that, of a cluster or a caller, what frontends
// hold for streams that do not take it. It is counted as it changes, for every dial asks.
func (c *cluster) unreadOf(a *account) int64 {
	if a.scope == scopeCluster {
		return c.unread.Unread() + c.accounts.waits.Load()
	}
	return a.unread.Load()
}

// metered is a listener that gives a caller so many connections at a time and no
// more; refuse answers the others, and closes them.
type metered struct {
	net.Listener
	account func() *account // as it is when a connection comes
	refuse  func(net.Conn, *fault.Fault)
	refused func(wire.Peer, error)
}

// metered wraps the listener of a frontend that does not count connections itself;
// whose they are is known in ctx. Who gets no answer is at least recorded.
func (h *Hub) metered(ctx context.Context, ln net.Listener) net.Listener {
	p, _ := ctx.Value(partyKey{}).(party)
	accounts := h.clusters.add(p.cluster).accounts
	return &metered{
		Listener: ln, account: func() *account { return accounts.caller(p.caller) },
		refuse: func(conn net.Conn, f *fault.Fault) {
			h.refuseKnown(ctx, conn, carrier.UnixPeer(conn), f)
			conn.Close()
		},
		refused: func(peer wire.Peer, err error) { h.refusedWithin(ctx, peer, err) },
	}
}

// Refused takes what a frontend itself refuses to a caller, within a connection and
// before a dial: it is counted and recorded.
func (l *metered) Refused(peer wire.Peer, err error) { l.refused(peer, err) }

func (l *metered) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		a := l.account()
		if f := a.connect(); f != nil {
			l.refuse(conn, f)
			continue
		}
		return &meteredConn{conn, sync.OnceFunc(a.disconnect)}, nil
	}
}

// meteredConn gives its place back when it is closed.
type meteredConn struct {
	net.Conn
	gone func()
}

func (c *meteredConn) Close() error {
	defer c.gone()
	return c.Conn.Close()
}

// ReadThrough says that its bytes are those of the connection.
func (c *meteredConn) ReadThrough() net.Conn { return c.Conn }

// callerOf is the account of who asks over a connection, nil if nobody is known.
func (h *Hub) callerOf(ctx context.Context) *account {
	p, ok := ctx.Value(partyKey{}).(party)
	if !ok {
		return nil
	}
	c, err := h.clusters.get(p.cluster)
	if err != nil {
		return nil
	}
	return c.accounts.caller(p.caller)
}

// connect takes a place for a connection of a caller.
func (a *account) connect() *fault.Fault {
	if a == nil {
		return nil
	}
	a.newest.Store(time.Now().UnixNano())
	if b := a.bounds.Load(); !take(&a.sessions, b.sessions) {
		return a.refuse(ofSessions, b.sessions, 0)
	}
	return nil
}

func (a *account) disconnect() {
	if a != nil {
		a.sessions.Add(-1)
	}
}
