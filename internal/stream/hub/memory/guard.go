// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"log/slog"
	"math"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/hub/quota"
)

// Guard watches what the process uses of what it may use, and decides who gets no more
// and who gives back when it is short.
type Guard struct {
	Options
	first int64 // the collector's limit at the start, from GOMEMLIMIT
	group int64 // the cgroup's limit

	used, most atomic.Int64 // for status and metrics

	// Used by the goroutine of Run alone.
	cycle  uint64 // of the collector at the last look; 0: not counted then
	then   int64  // unread bytes at that time
	acting bool   // somebody gets no more
	cutAt  time.Time
	beyond map[id.Cluster]bool // more is unread than it may leave, since the last look
}

// Options are what memory needs.
type Options struct {
	Log        *slog.Logger
	Configured func() int64 // limits.memory; 0 if nothing is configured
	Full       *atomic.Bool // set while all of it is in use: nobody gets more
	// Clusters visits all clusters. more is what a cluster takes beside its sessions, streams
	// and callers.
	Clusters func(visit func(c id.Cluster, book *quota.Book, more int64))
	Streams  func(id.Cluster) []Stream
	Shed     func(streams int) // counts those that are cut because memory is short

	// SetLimit sets the collector's limit and gives the one before; below 0 it only gives it.
	// nil: nothing is known of GOMEMLIMIT, and nothing is set.
	SetLimit func(int64) int64
	Usage    func() Usage // nil: of this process
	// Collect has the collector run until what was freed is free: buffers in a pool survive
	// its first run. nil: it does.
	Collect func()
}

// Stream is a live stream.
type Stream interface {
	Begun() time.Time
	Held() int64        // bytes that it has in memory
	UnreadBytes() int64 // of them, those that nobody read
	Cut(why *fault.Fault)
}

// Usage is the memory of the process as the runtime knows it.
type Usage struct {
	Total int64  // mapped and not given back
	Live  int64  // found in use when the collector worked last
	Rest  int64  // stacks and what the runtime itself needs
	Cycle uint64 // of the collector
}

func New(o Options) *Guard {
	if o.SetLimit == nil {
		o.SetLimit = func(int64) int64 { return math.MaxInt64 }
	}
	if o.Usage == nil {
		o.Usage = readUsage
	}
	if o.Collect == nil {
		o.Collect = func() { runtime.GC(); runtime.GC() }
	}
	m := &Guard{Options: o, first: o.SetLimit(-1), group: groupLimit(ownGroup, groupRoot)}
	m.choose(o.Configured())
	m.Advise()
	return m
}

// choose gives the limit and puts it into force for the collector, which then works
// as hard as it must before anything is refused: what is configured; GOMEMLIMIT;
// most of what the cgroup allows.
func (m *Guard) choose(configured int64) {
	most := int64(quota.Unbounded)
	switch {
	case configured != 0:
		most = configured
	case m.first != math.MaxInt64:
		most = m.first
	case m.group != quota.Unbounded:
		most = percent(m.group, memoryOfGroup)
	}
	if m.most.Swap(most) != most {
		m.SetLimit(min(most, m.first))
	}
}

// measure measures. What came since the collector worked last is in use too, and what
// was read or cut since then is free.
func (m *Guard) measure(u Usage, unread int64) (used int64) {
	if u.Cycle != m.cycle {
		m.cycle, m.then = u.Cycle, unread
	}
	used = u.Live + u.Rest + unread - m.then
	if u.Live == 0 { // it has never worked
		used = u.Total
	}
	used = max(0, min(used, u.Total))
	m.used.Store(used)
	return used
}

// Run looks at the memory until ctx ends: it takes from clusters that stay beyond their
// bound, and from the largest consumers when memory is short.
func (m *Guard) Run(ctx context.Context) error {
	return run.Every(ctx, limit.MemoryLook, func() {
		m.LookAtUnread()
		m.Look(time.Now())
	})
}

// Look acts on how much memory is in use now.
func (m *Guard) Look(now time.Time) {
	m.choose(m.Configured())
	most, u := m.most.Load(), m.Usage()
	if !m.acting && u.Total <= percent(most, limit.MemoryCalm) { // garbage included: nobody needs to be counted
		m.cycle = 0
		m.measure(u, 0)
		m.cycle = 0
		return
	}
	consumers, unread := m.consumers()
	r := decide(m.measure(u, unread), most, consumers)
	if len(r.cut) > 0 && now.Sub(m.cutAt) >= limit.MemoryAgain {
		m.cutAt = now
		m.press(action{press: r.press}) // they do not come back; the others may not need to wait
		for c, need := range r.cut {
			m.shed(c, need)
		}
		m.Collect()
		consumers, unread = m.consumers()
		r = decide(m.measure(m.Usage(), unread), most, consumers)
	}
	m.acting = r.all || len(r.press) > 0
	m.press(r)
}

// shed cuts streams of a cluster until so many bytes are given back.
func (m *Guard) shed(c id.Cluster, need int64) {
	n := m.cutLargest(c, need, limit.StreamCost, Stream.Held, fault.New(fault.CodeLimit, "the hub is short of memory").
		Whyf("cluster %s uses the most of it, and this was among its newest and largest streams", c).
		Hint("read what you ask for, or ask for less at a time; 'tombolo status %s' shows what is used",
			c).After(limit.MemoryAgain))
	if n > 0 {
		m.Shed(n)
		m.Log.Warn("streams cut: the hub is short of memory", telemetry.AttrCluster, c, "streams", n,
			"used", m.used.Load(), "limit", m.most.Load())
	}
}

// Used is what was in use at the last look.
func (m *Guard) Used() int64 { return m.used.Load() }

// Status is what a status shows.
func (m *Guard) Status() admin.Memory {
	st := admin.Memory{Used: m.used.Load(), Full: m.Full.Load()}
	if most := m.most.Load(); most != quota.Unbounded {
		st.Limit = most
	}
	return st
}

// consumers lists the clusters with what they hold, and sums what is unread by callers or
// not taken by agents.
func (m *Guard) consumers() (out []consumer, unread int64) {
	m.Clusters(func(c id.Cluster, book *quota.Book, more int64) {
		holds, left := book.Holds()
		unread += left
		holds += more
		if pressed := book.Pressed(); holds > 0 || pressed {
			out = append(out, consumer{c, holds, pressed})
		}
	})
	return out, unread
}

// press puts into force who gets no more.
func (m *Guard) press(d action) {
	pressed := make(map[id.Cluster]bool, len(d.press))
	for _, c := range d.press {
		pressed[c] = true
	}
	m.Full.Store(d.all)
	m.Clusters(func(c id.Cluster, book *quota.Book, _ int64) { book.Press(pressed[c]) })
}
