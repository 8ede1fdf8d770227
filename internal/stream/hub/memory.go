// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
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

// memory is what the process uses of what it may use.
type memory struct {
	usage func() usage
	// collect has the collector work until what was freed is free: buffers that lie
	// in a pool outlive it once.
	collect func()
	bound   func(int64) int64 // sets the collector's limit, and gives the one before; below 0 only gives
	first   int64             // the collector's limit at the begin, from GOMEMLIMIT
	group   int64             // the cgroup's limit

	used, most atomic.Int64 // for status and metrics

	// Of who looks.
	cycle  uint64 // of the collector, when it was looked at last; 0: not counted then
	then   int64  // unread bytes at that time
	acting bool   // somebody gets no more
	cutAt  time.Time
	beyond map[id.Cluster]bool // more is unread than it may leave, since this look
}

// usage is the memory of the process as the runtime knows it.
type usage struct {
	total int64  // mapped and not given back
	live  int64  // found in use when the collector worked last
	rest  int64  // stacks and what the runtime itself needs
	cycle uint64 // of the collector
}

func newMemory(bound func(int64) int64) *memory {
	m := &memory{usage: readUsage, collect: func() { runtime.GC(); runtime.GC() }, bound: bound, first: math.MaxInt64, group: groupLimit(ownGroup, groupRoot)}
	if bound == nil {
		m.bound = func(int64) int64 { return math.MaxInt64 }
	}
	m.first = m.bound(-1)
	return m
}

// choose gives the limit and puts it into force for the collector, which then works
// as hard as it must before anything is refused: what is configured; GOMEMLIMIT;
// most of what the cgroup allows.
func (m *memory) choose(configured int64) {
	most := int64(quota.Unbounded)
	switch {
	case configured != 0:
		most = configured
	case m.first != math.MaxInt64:
		most = m.first
	case m.group != quota.Unbounded:
		most = percent(m.group, limit.MemoryOfGroup)
	}
	if m.most.Swap(most) != most {
		m.bound(min(most, m.first))
	}
}

// look measures. What came since the collector worked last is in use too, and what
// was read or cut since then is free.
func (m *memory) look(u usage, unread int64) (used int64) {
	if u.cycle != m.cycle {
		m.cycle, m.then = u.cycle, unread
	}
	used = u.live + u.rest + unread - m.then
	if u.live == 0 { // it has never worked
		used = u.total
	}
	used = max(0, min(used, u.total))
	m.used.Store(used)
	return used
}

// keepMemory looks at the memory until ctx ends: it takes from clusters that stay
// beyond their bound, and from the largest consumers when it is short.
func (h *Hub) keepMemory(ctx context.Context) error {
	return run.Every(ctx, limit.MemoryLook, func() {
		h.lookAtUnread()
		h.lookAtMemory(time.Now())
	})
}

func (h *Hub) lookAtMemory(now time.Time) {
	m := h.memory
	m.choose(h.clusters.memoryLimit())
	most, u := m.most.Load(), m.usage()
	if !m.acting && u.total <= percent(most, limit.MemoryCalm) { // garbage included: nobody needs to be counted
		m.cycle = 0
		m.look(u, 0)
		m.cycle = 0
		return
	}
	consumers, unread := h.clusters.consumers()
	r := relieve(m.look(u, unread), most, consumers)
	if len(r.cut) > 0 && now.Sub(m.cutAt) >= limit.MemoryAgain {
		m.cutAt = now
		h.clusters.press(relief{press: r.press}) // they do not come back; the others may not need to wait
		for c, need := range r.cut {
			h.shed(c, need)
		}
		m.collect()
		consumers, unread = h.clusters.consumers()
		r = relieve(m.look(m.usage(), unread), most, consumers)
	}
	m.acting = r.all || len(r.press) > 0
	h.clusters.press(r)
}

// shed cuts streams of a cluster until so many bytes are given back.
func (h *Hub) shed(c id.Cluster, need int64) {
	n := h.cutLargest(c, need, limit.StreamCost, (*hubStream).holds, fault.New(fault.CodeLimit, "the hub is short of memory").
		Whyf("cluster %s uses the most of it, and this was among its newest and largest streams", c).
		Hint("read what you ask for, or ask for less at a time; 'tombolo status %s' shows what is used", c).After(limit.MemoryAgain))
	if n > 0 {
		h.metrics.Shed.Add(float64(n))
		h.log.Warn("streams cut: the hub is short of memory", telemetry.AttrCluster, c, "streams", n,
			"used", h.memory.used.Load(), "limit", h.memory.most.Load())
	}
}

func (h *Hub) memoryStatus() *admin.Memory {
	m := &admin.Memory{Used: h.memory.used.Load(), Full: h.clusters.memory.Load()}
	if most := h.memory.most.Load(); most != quota.Unbounded {
		m.Limit = most
	}
	return m
}

func (h *Hub) memoryLimit() float64 { return float64(h.memoryStatus().Limit) }

// memoryLimit is what is configured, 0 if nothing is.
func (r *registry) memoryLimit() int64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.limits.Memory
}

// consumers lists the clusters with what they hold, and sums what is unread by
// callers or not taken from them.
func (r *registry) consumers() (out []consumer, unread int64) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for name, c := range r.clusters {
		holds, left := c.accounts.Holds()
		unread += left
		holds += c.relay.Holds()
		if pressed := c.accounts.Pressed(); holds > 0 || pressed {
			out = append(out, consumer{name, holds, pressed})
		}
	}
	return out, unread
}

// press puts into force who gets no more.
func (r *registry) press(d relief) {
	pressed := make(map[id.Cluster]bool, len(d.press))
	for _, c := range d.press {
		pressed[c] = true
	}
	r.memory.Store(d.all)
	r.mu.RLock()
	defer r.mu.RUnlock()
	for name, c := range r.clusters {
		c.accounts.Press(pressed[name])
	}
}

// readUsage asks the runtime (runtime/metrics). The limit of the collector counts
// what total counts.
func readUsage() usage {
	s := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}, {Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"}, {Name: "/gc/cycles/total:gc-cycles"},
	}
	metrics.Read(s)
	n := func(i int) int64 {
		if s[i].Value.Kind() != metrics.KindUint64 {
			return 0
		}
		return int64(s[i].Value.Uint64())
	}
	total := n(0) - n(1)
	return usage{total: total, live: n(2), rest: max(0, total-n(3)-n(4)-n(5)), cycle: uint64(n(6))}
}

// groupLimit is the least memory limit of the process's cgroup and those above it,
// of version 2 or 1 (cgroups(7)); unbounded if there is none.
func groupLimit(self, root string) int64 {
	most := int64(quota.Unbounded)
	data, err := os.ReadFile(self)
	if err != nil {
		return most
	}
	for line := range strings.Lines(string(data)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		top, file := root, "memory.max"
		if parts[1] != "" {
			if !strings.Contains(","+parts[1]+",", ",memory,") {
				continue
			}
			top, file = filepath.Join(root, "memory"), "memory.limit_in_bytes"
		}
		// In a container the path may be that of the host, and only the top is there.
		for dir := filepath.Join("/", parts[2]); ; dir = filepath.Dir(dir) {
			if text, err := os.ReadFile(filepath.Join(top, dir, file)); err == nil {
				// Version 1 says "none" with the largest number of pages.
				if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 && n < 1<<60 {
					most = min(most, n)
				}
			}
			if dir == "/" {
				break
			}
		}
	}
	return most
}
