// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

// Book holds the accounts of one cluster: its own, and one for each agent and each
// caller that has something open or had until a moment ago.
type Book struct {
	name    string
	Cluster *Account
	counted func(Scope, Resource)
	Budget  *carrier.Budget // bytes that came over all sessions and are not read yet

	pressed atomic.Bool  // memory is short, and this cluster uses most of it
	waits   atomic.Int64 // bytes that frontends hold for streams that do not take them
	memory  *atomic.Bool // of the hub: all of it is in use, nobody gets more

	mu      sync.Mutex
	limits  Limits
	agents  map[string]*Account
	callers map[string]*Account
}

// NewBook makes the accounts of a cluster. counted is called each time that a limit holds
// somebody up; memory says that all memory of the hub is in use.
func NewBook(name id.Cluster, l Limits, budget *carrier.Budget, counted func(Scope, Resource),
	memory *atomic.Bool) *Book {
	return &Book{
		Budget: budget, name: name.String(), Cluster: newAccount(ScopeCluster, name.String(), "", l.Cluster, counted),
		counted: counted,
		memory:  memory, limits: l, agents: map[string]*Account{}, callers: map[string]*Account{},
	}
}

// Bound puts other limits into force.
func (b *Book) Bound(l Limits) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.limits == l {
		return
	}
	b.limits = l
	b.Cluster.Bound(l.Cluster)
	b.Budget.Bound(l.Cluster.Unread)
	for _, one := range b.agents {
		one.Bound(l.Agent)
	}
	for _, one := range b.callers {
		one.Bound(l.Caller)
	}
}

// Agent is the account of an agent. See findLocked for how long it may be kept.
func (b *Book) Agent(who id.Agent) *Account {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.findLocked(b.agents, ScopeAgent, who.String(), b.limits.Agent)
}

// Caller is the account of a caller. See findLocked for how long it may be kept.
func (b *Book) Caller(who string) *Account {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.findLocked(b.callers, ScopeCaller, who, b.limits.Caller)
}

// findLocked gives an account, and makes it if it is new. The caller takes a place in it
// within callerKept or asks again: an idle account may be dropped, and a second one
// of the same name would not know what the first one granted.
func (b *Book) findLocked(in map[string]*Account, s Scope, who string, most Bounds) *Account {
	one, ok := in[who]
	if !ok {
		if len(in) >= callerRecords {
			now := time.Now()
			for name, other := range in {
				if other.idle(now, callerKept) {
					delete(in, name)
				}
			}
		}
		one = newAccount(s, b.name, who, most, b.counted)
		in[who] = one
	}
	one.newest.Store(time.Now().UnixNano())
	return one
}

// all lists the cluster's account, those of its agents and those of its callers.
func (b *Book) all() (out []*Account) {
	b.each(func(one *Account) { out = append(out, one) })
	return out
}

// each calls fn for the same accounts, the cluster's first.
func (b *Book) each(fn func(*Account)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fn(b.Cluster)
	for _, in := range [...]map[string]*Account{b.agents, b.callers} {
		for _, one := range in {
			fn(one)
		}
	}
}

// Enter takes a place for a session of an agent; Leave gives it back.
func (b *Book) Enter(agent *Account) error {
	if err := b.short(); err != nil {
		return err
	}
	if most := agent.bounds.Load().Sessions; !take(&agent.sessions, most) {
		return agent.refuse(Sessions, most, 0).
			Hint("give each agent its own identity: tombolo token create --cluster %s", b.name)
	}
	if most := b.Cluster.bounds.Load().Sessions; !take(&b.Cluster.sessions, most) {
		agent.sessions.Add(-1)
		return b.Cluster.refuse(Sessions, most, 0)
	}
	return nil
}

// Leave gives back what Enter took.
func (b *Book) Leave(agent *Account) {
	agent.sessions.Add(-1)
	agent.newest.Store(time.Now().UnixNano())
	b.Cluster.sessions.Add(-1)
}

// short is the refusal of what would take more memory when there is too little.
func (b *Book) short() error {
	pressed := b.pressed.Load()
	if !pressed && !b.memory.Load() {
		return nil
	}
	b.Cluster.Hit(Memory)
	f := fault.New(fault.CodeLimit, "the hub is short of memory").
		Hint("try again; 'tombolo status %s' shows what is used", b.name).After(limit.MemoryAgain)
	if pressed {
		return f.Whyf("cluster %s uses the most of it and gets no more", b.name)
	}
	return f.Whyf("all of limits.memory is in use")
}

// Press sets whether memory is short and this cluster, which uses most of it, gets no more.
func (b *Book) Press(on bool) {
	if b.pressed.Load() != on {
		b.pressed.Store(on)
	}
}

// Pressed says whether the cluster gets no more memory.
func (b *Book) Pressed() bool { return b.pressed.Load() }

// Holds is the memory that the cluster's sessions, streams and callers take, with the bytes
// in their buffers; unread counts those bytes alone.
func (b *Book) Holds() (n, unread int64) {
	unread = b.Unread(b.Cluster)
	return unread + b.Cluster.sessions.Load()*sessionCost + b.Cluster.streams.Load()*limit.StreamCost +
		b.idleCallers()*limit.CallerCost, unread
}

// idleCallers counts the callers' connections that carry no stream: the cost of a stream
// includes its connection.
func (b *Book) idleCallers() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := -b.Cluster.streams.Load()
	for _, one := range b.callers {
		n += one.sessions.Load()
	}
	return max(0, n)
}

// Admit takes places for a dial of a caller in the accounts of the caller and of the
// cluster, and waits for its turn under their rates. The refusal names the limit.
func (b *Book) Admit(ctx context.Context, caller string) (*Grant, error) {
	grant, who := &Grant{}, b.Caller(caller)
	of := [...]*Account{who, b.Cluster} // the caller first: what its own limits refuse costs the cluster nothing
	var turns [len(of)]reservation
	var longest time.Duration
	var err error
	for i, one := range of {
		turns[i], err = grant.Take(one, dialTurn)
		if longest = max(longest, turns[i].wait); err != nil {
			break
		}
	}
	if longest > 0 && !run.Wait(ctx, longest) && err == nil {
		for i, one := range of {
			one.giveBack(turns[i])
		}
		err = dialEnd(ctx)
	}
	if err == nil {
		err = b.Room(who)
	}
	if err != nil {
		grant.Cancel()
		return nil, err
	}
	return grant, nil
}

// Room is the refusal of a dial when too much is unread, or memory is short.
func (b *Book) Room(caller *Account) error {
	if err := b.short(); err != nil {
		return err
	}
	for _, one := range [...]*Account{b.Cluster, caller} {
		if most := one.bounds.Load().Unread; b.Unread(one) >= most {
			return one.refuse(UnreadBytes, most, 0)
		}
	}
	return nil
}

// TakeAt takes a place for a dial in the account of an agent. It does not wait for a turn:
// another agent may be free now.
func (b *Book) TakeAt(agent *Account, grant *Grant) error {
	if most := agent.bounds.Load().Unread; b.Unread(agent) >= most {
		return agent.refuse(UnreadBytes, most, 0)
	}
	_, err := grant.Take(agent, 0)
	return err
}

// Unread counts the bytes that came from agents and that callers have not read. For the
// cluster and for callers it includes what frontends hold for streams that do not take it.
// It is counted as it changes, because every dial asks.
func (b *Book) Unread(one *Account) int64 {
	if one.scope == ScopeCluster {
		return b.Budget.Unread() + b.waits.Load()
	}
	return one.unread.Load()
}

// Charge adds bytes that a frontend holds for a stream until it takes them.
func (b *Book) Charge(caller *Account, n int64) {
	b.waits.Add(n)
	if caller != nil {
		caller.unread.Add(n)
	}
}

// dialEnd is why a dial ended while it waited for its turn.
func dialEnd(ctx context.Context) *fault.Fault {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fault.New(fault.CodeDialTimeout, "the dial did not end in time").Whyf("it waited for its turn")
	}
	return fault.New(fault.CodeDialCanceled, "the caller gave up").Whyf("it waited for its turn")
}
