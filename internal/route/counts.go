// SPDX-License-Identifier: Apache-2.0

package route

import (
	"net/netip"
	"sync"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// counts are the connections that are open, and those whose dial is under way.
type counts struct {
	mu       sync.Mutex
	all      int
	sources  map[netip.Addr]int
	clusters map[string]int
}

func newCounts() *counts { return &counts{sources: map[netip.Addr]int{}, clusters: map[string]int{}} }

// enter takes a place, if there is one.
func (c *counts) enter(l Reloadable, source netip.Addr, cluster string) *fault.Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.all >= l.Connections:
		return fault.Newf(fault.CodeLimit, "%d connections are open", c.all).Hint("raise limits.connections")
	case c.sources[source] >= l.PerSource:
		return fault.Newf(fault.CodeLimit, "%d connections of %s are open", c.sources[source], source).
			Hint("raise limits.perSource")
	}
	c.all++
	c.sources[source]++
	c.clusters[cluster]++
	return nil
}

// leave gives it back.
func (c *counts) leave(source netip.Addr, cluster string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.sources[source]--; c.sources[source] == 0 {
		delete(c.sources, source)
	}
	c.clusters[cluster]--
}

func (c *counts) total() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all
}

func (c *counts) of(cluster string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clusters[cluster]
}
