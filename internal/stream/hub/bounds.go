// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"math"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// unbounded is a bound that is not there.
const unbounded = math.MaxInt64

// bounds are what one cluster, agent or caller may use.
type bounds struct {
	sessions, streams, pending int64
	dials, burst               int64 // each second, and at once
	in, out                    int64 // bytes each second, into and out of the cluster
	unread                     int64
}

// limits are the bounds of a cluster, and of each agent and each caller of it.
type limits struct {
	cluster, agent, caller bounds
	relay                  relayBounds
}

// relayBounds are those of the relay between a cluster's nodes.
type relayBounds struct {
	nodes         int64 // connected
	node, cluster int64 // bytes each second, that one and that all of them send
}

// limitTable holds the limits of all clusters. It is not changed once it is made.
type limitTable struct {
	memory int64 // of the process; 0: not configured
	all    limits
	own    map[id.Cluster]limits
}

// of gives the limits of a cluster.
func (t *limitTable) of(c id.Cluster) limits {
	if own, ok := t.own[c]; ok {
		return own
	}
	return t.all
}

func defaultLimits() limits {
	none := bounds{
		sessions: unbounded, streams: unbounded, pending: unbounded, dials: unbounded, burst: unbounded,
		in: unbounded, out: unbounded, unread: unbounded,
	}
	l := limits{none, none, none, relayBounds{limit.RelayNodes, limit.RelayNodeRate, limit.RelayClusterRate}}
	l.cluster.sessions, l.cluster.streams, l.cluster.pending = limit.SessionsPerCluster, limit.StreamsPerCluster, limit.PendingDials
	l.cluster.dials, l.cluster.burst = limit.DialsPerSecond, limit.DialBurst*limit.DialsPerSecond
	l.cluster.unread = limit.ClusterUnread
	l.agent.sessions, l.agent.streams = limit.SessionsPerAgent, limit.StreamsPerSession
	l.caller.sessions = limit.ConnectConnections
	return l
}

// parseLimits validates the limits of all clusters.
func parseLimits(raw v1alpha1.HubLimitsConfig, add conf.Report) *limitTable {
	t := &limitTable{own: map[id.Cluster]limits{}, all: defaultLimits()}
	t.all.overlay(raw.LimitsConfig, "limits", add)
	switch m := raw.Memory; {
	case m == nil:
	case m.None:
		t.memory = unbounded
	case m.N < limit.MemoryLeast:
		add("limits.memory", "%s is less than %s", m.N, v1alpha1.Size(limit.MemoryLeast))
	default:
		t.memory = int64(m.N)
	}
	return t
}

// add takes the limits of one cluster that differ.
func (t *limitTable) add(c id.Cluster, raw v1alpha1.LimitsConfig, at string, add conf.Report) {
	if raw == (v1alpha1.LimitsConfig{}) {
		return
	}
	own := t.all
	own.overlay(raw, at+".limits", add)
	t.own[c] = own
}

func (l *limits) overlay(raw v1alpha1.LimitsConfig, at string, add conf.Report) {
	l.cluster.overlay(raw.Cluster, at+".cluster", true, add)
	l.agent.overlay(raw.Agent, at+".agent", false, add)
	l.caller.overlay(raw.Caller, at+".caller", false, add)
	l.relay.overlay(raw.Relay, at+".relay", add)
	// Frontends and the main port have no more places than that.
	if s := raw.Caller.Sessions; s != nil && (s.None || s.N > limit.ConnectConnections) {
		add(at+".caller.sessions", "a caller has at most %d connections", limit.ConnectConnections)
	}
}

// overlay takes the bounds that are given. Those of a cluster stand between it and
// its neighbours: what takes memory there needs a number.
func (b *bounds) overlay(raw v1alpha1.BoundsConfig, at string, needed bool, add conf.Report) {
	for _, f := range []struct {
		name   string
		given  *v1alpha1.Amount
		into   *int64
		needed bool
	}{
		{"sessions", raw.Sessions, &b.sessions, needed},
		{"streams", raw.Streams, &b.streams, needed},
		{"pendingDials", raw.PendingDials, &b.pending, needed},
		{"dialsPerSecond", raw.DialsPerSecond, &b.dials, false},
	} {
		switch {
		case f.given == nil:
		case !f.given.None:
			*f.into = f.given.N
		case f.needed:
			add(at+"."+f.name, "a cluster needs a number here: without one it can take all of the hub")
		default:
			*f.into = unbounded
		}
	}
	b.overlayBurst(raw, at, add)
	for _, f := range []struct {
		name   string
		given  *v1alpha1.Bytes
		into   *int64
		least  v1alpha1.Size
		needed bool
	}{
		{"bytesInPerSecond", raw.BytesInPerSecond, &b.in, limit.RateLeast, false},
		{"bytesOutPerSecond", raw.BytesOutPerSecond, &b.out, limit.RateLeast, false},
		{"unreadBytes", raw.UnreadBytes, &b.unread, 1, needed},
	} {
		switch {
		case f.given == nil:
		case f.given.None && f.needed:
			add(at+"."+f.name, "a cluster needs a size here: without one it can take all of the hub")
		case f.given.None:
			*f.into = unbounded
		case f.given.N < f.least:
			add(at+"."+f.name, "%s is less than %s", f.given.N, f.least)
		default:
			*f.into = int64(f.given.N)
		}
	}
}

// overlayBurst follows the rate, unless a burst is given of its own.
func (b *bounds) overlayBurst(raw v1alpha1.BoundsConfig, at string, add conf.Report) {
	switch {
	case raw.DialBurst != nil && raw.DialBurst.None:
		add(at+".dialBurst", "a burst is a number; for no bound at all set dialsPerSecond: none")
	case raw.DialBurst != nil && b.dials == unbounded:
		add(at+".dialBurst", "is of no use without dialsPerSecond")
	case raw.DialBurst != nil:
		b.burst = raw.DialBurst.N
	case raw.DialsPerSecond == nil:
	case b.dials > unbounded/limit.DialBurst:
		b.burst = unbounded
	default:
		b.burst = limit.DialBurst * b.dials
	}
}

// overlay takes the bounds of the relay that are given.
func (b *relayBounds) overlay(raw v1alpha1.RelayLimitsConfig, at string, add conf.Report) {
	switch n := raw.Nodes; {
	case n == nil:
	case n.None || n.N > limit.RelayHub:
		add(at+".nodes", "a number of at most %d is needed", limit.RelayHub)
	default:
		b.nodes = n.N
	}
	for _, f := range []struct {
		name  string
		given *v1alpha1.Bytes
		into  *int64
	}{{"nodeBytesPerSecond", raw.NodeBytesPerSecond, &b.node}, {"bytesPerSecond", raw.BytesPerSecond, &b.cluster}} {
		switch {
		case f.given == nil:
		case f.given.None:
			*f.into = unbounded
		case f.given.N < limit.RateLeast:
			add(at+"."+f.name, "%s is less than %s", f.given.N, v1alpha1.Size(limit.RateLeast))
		default:
			*f.into = int64(f.given.N)
		}
	}
}
