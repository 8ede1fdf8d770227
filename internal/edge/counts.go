// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// counts are the connections that are open, of each source and of each cluster.
type counts struct {
	mu       sync.Mutex
	sources  map[netip.Prefix]int
	clusters map[string]int
	tunnels  int
}

func newCounts() *counts {
	return &counts{sources: map[netip.Prefix]int{}, clusters: map[string]int{}}
}

// come counts a connection of a source, unless it has as many as it may.
func (c *counts) come(source netip.Prefix, most int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sources[source] >= most {
		return fault.New(fault.CodeLimit, "too many connections come from one source").Whyf("at most %d may", most)
	}
	c.sources[source]++
	return nil
}

func (c *counts) gone(source netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sources[source]--; c.sources[source] <= 0 {
		delete(c.sources, source)
	}
}

// enter counts a tunnel of a cluster, unless there are as many as there may be.
func (c *counts) enter(cluster string, most, all int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.tunnels >= all:
		return fault.New(fault.CodeLimit, "the edge has as many tunnels as it may").Whyf("at most %d are open", all)
	case c.clusters[cluster] >= most:
		return fault.New(fault.CodeLimit, "the cluster has as many tunnels as it may").Whyf("at most %d are open", most)
	}
	c.clusters[cluster]++
	c.tunnels++
	return nil
}

func (c *counts) leave(cluster string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tunnels--
	if c.clusters[cluster]--; c.clusters[cluster] <= 0 {
		delete(c.clusters, cluster)
	}
}

// most lists the clusters with most tunnels, at most n, and counts those that have any.
func (c *counts) most(n int) (out []admin.EdgeClusterTunnels, clusters int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	more := func(a, b admin.EdgeClusterTunnels) int {
		return cmp.Or(cmp.Compare(b.Open, a.Open), strings.Compare(a.Cluster, b.Cluster))
	}
	for name, open := range c.clusters {
		this := admin.EdgeClusterTunnels{Cluster: name, Open: open}
		if len(out) == n && more(this, out[n-1]) >= 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(out, this, more)
		out = slices.Insert(out, at, this)
		out = out[:min(n, len(out))]
	}
	return out, len(c.clusters)
}

func (c *counts) total() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tunnels
}
