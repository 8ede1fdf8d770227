// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"math"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// Unbounded is a bound that is not there.
const Unbounded = math.MaxInt64

// Bounds are what one cluster, agent or caller may use.
type Bounds struct {
	Sessions, Streams, Pending int64
	Dials, Burst               int64 // each second, and at once
	In, Out                    int64 // bytes each second, into and out of the cluster
	Unread                     int64
}

// Limits are the bounds of a cluster, and of each agent and each caller of it.
type Limits struct {
	Cluster, Agent, Caller Bounds
	Relay                  RelayBounds
}

// RelayBounds are those of the relay between a cluster's nodes.
type RelayBounds struct {
	Nodes         int64 // connected
	Node, Cluster int64 // bytes each second, that one and that all of them send
}

// Table holds the limits of all clusters. It is not changed once it is made.
type Table struct {
	Memory int64 // of the process; 0: not configured
	All    Limits
	own    map[id.Cluster]Limits
}

// Of gives the limits of a cluster.
func (t *Table) Of(c id.Cluster) Limits {
	if own, ok := t.own[c]; ok {
		return own
	}
	return t.All
}

func Defaults() Limits {
	none := Bounds{
		Sessions: Unbounded, Streams: Unbounded, Pending: Unbounded, Dials: Unbounded, Burst: Unbounded,
		In: Unbounded, Out: Unbounded, Unread: Unbounded,
	}
	l := Limits{none, none, none, RelayBounds{relayNodes, limit.RelayNodeRate, limit.RelayClusterRate}}
	l.Cluster.Sessions, l.Cluster.Streams = limit.SessionsPerCluster, streamsPerCluster
	l.Cluster.Pending = limit.PendingDials
	l.Cluster.Dials, l.Cluster.Burst = dialsPerSecond, dialBurst*dialsPerSecond
	l.Cluster.Unread = limit.ClusterUnread
	l.Agent.Sessions, l.Agent.Streams = limit.SessionsPerAgent, limit.StreamsPerSession
	l.Caller.Sessions = limit.ConnectConnections
	return l
}

// Parse validates the limits of all clusters.
func Parse(raw v1alpha1.HubLimitsConfig, add conf.Report) *Table {
	t := &Table{own: map[id.Cluster]Limits{}, All: Defaults()}
	t.All.overlay(raw.LimitsConfig, "limits", add)
	switch m := raw.Memory; {
	case m == nil:
	case m.None:
		t.Memory = Unbounded
	case m.N < memoryLeast:
		add("limits.memory", "%s is less than %s", m.N, v1alpha1.Size(memoryLeast))
	default:
		t.Memory = int64(m.N)
	}
	return t
}

// Add takes the limits of one cluster that differ.
func (t *Table) Add(c id.Cluster, raw v1alpha1.LimitsConfig, at string, add conf.Report) {
	if raw == (v1alpha1.LimitsConfig{}) {
		return
	}
	own := t.All
	own.overlay(raw, at+".limits", add)
	t.own[c] = own
}

func (l *Limits) overlay(raw v1alpha1.LimitsConfig, at string, add conf.Report) {
	l.Cluster.overlay(raw.Cluster, at+".cluster", true, add)
	l.Agent.overlay(raw.Agent, at+".agent", false, add)
	l.Caller.overlay(raw.Caller, at+".caller", false, add)
	l.Relay.overlay(raw.Relay, at+".relay", add)
	// Frontends and the main port have no more places than that.
	if s := raw.Caller.Sessions; s != nil && (s.None || s.N > limit.ConnectConnections) {
		add(at+".caller.sessions", "a caller has at most %d connections", limit.ConnectConnections)
	}
}

// overlay takes the bounds that are given. Those of a cluster stand between it and
// its neighbours: what takes memory there needs a number.
func (b *Bounds) overlay(raw v1alpha1.BoundsConfig, at string, needed bool, add conf.Report) {
	for _, f := range []struct {
		name   string
		given  *v1alpha1.Amount
		into   *int64
		needed bool
	}{
		{"sessions", raw.Sessions, &b.Sessions, needed},
		{"streams", raw.Streams, &b.Streams, needed},
		{"pendingDials", raw.PendingDials, &b.Pending, needed},
		{"dialsPerSecond", raw.DialsPerSecond, &b.Dials, false},
	} {
		switch {
		case f.given == nil:
		case !f.given.None:
			*f.into = f.given.N
		case f.needed:
			add(at+"."+f.name, "a cluster needs a number here: without one it can take all of the hub")
		default:
			*f.into = Unbounded
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
		{"bytesInPerSecond", raw.BytesInPerSecond, &b.In, limit.RateLeast, false},
		{"bytesOutPerSecond", raw.BytesOutPerSecond, &b.Out, limit.RateLeast, false},
		{"unreadBytes", raw.UnreadBytes, &b.Unread, 1, needed},
	} {
		switch {
		case f.given == nil:
		case f.given.None && f.needed:
			add(at+"."+f.name, "a cluster needs a size here: without one it can take all of the hub")
		case f.given.None:
			*f.into = Unbounded
		case f.given.N < f.least:
			add(at+"."+f.name, "%s is less than %s", f.given.N, f.least)
		default:
			*f.into = int64(f.given.N)
		}
	}
}

// overlayBurst follows the rate, unless a burst is given of its own.
func (b *Bounds) overlayBurst(raw v1alpha1.BoundsConfig, at string, add conf.Report) {
	switch {
	case raw.DialBurst != nil && raw.DialBurst.None:
		add(at+".dialBurst", "a burst is a number; for no bound at all set dialsPerSecond: none")
	case raw.DialBurst != nil && b.Dials == Unbounded:
		add(at+".dialBurst", "is of no use without dialsPerSecond")
	case raw.DialBurst != nil:
		b.Burst = raw.DialBurst.N
	case raw.DialsPerSecond == nil:
	case b.Dials > Unbounded/dialBurst:
		b.Burst = Unbounded
	default:
		b.Burst = dialBurst * b.Dials
	}
}

// overlay takes the bounds of the relay that are given.
func (b *RelayBounds) overlay(raw v1alpha1.RelayLimitsConfig, at string, add conf.Report) {
	switch n := raw.Nodes; {
	case n == nil:
	case n.None || n.N > limit.RelayHub:
		add(at+".nodes", "a number of at most %d is needed", limit.RelayHub)
	default:
		b.Nodes = n.N
	}
	for _, f := range []struct {
		name  string
		given *v1alpha1.Bytes
		into  *int64
	}{{"nodeBytesPerSecond", raw.NodeBytesPerSecond, &b.Node}, {"bytesPerSecond", raw.BytesPerSecond, &b.Cluster}} {
		switch {
		case f.given == nil:
		case f.given.None:
			*f.into = Unbounded
		case f.given.N < limit.RateLeast:
			add(at+"."+f.name, "%s is less than %s", f.given.N, v1alpha1.Size(limit.RateLeast))
		default:
			*f.into = int64(f.given.N)
		}
	}
}

// Bounds and timings of this package alone.
const (
	// shapeTurn is what a stream that is held to a rate of bytes pays for at a time,
	// so that all streams of a cluster have equal shares: small beside a chunk.
	shapeTurn = 16 << 10
	// shapeSmall is what a stream may move in a second and still go ahead of those
	// that move more: keystrokes, an answer, a handshake with certificates.
	shapeSmall = 16 << 10
	// sessionCost is what a live session of an agent takes of the hub's memory
	// (docs/scaling.md).
	sessionCost = 60 << 10
	// memoryLeast is the least memory that may be configured: an idle hub has 20 MiB.
	memoryLeast = 64 << 20
	// streamsPerCluster bounds the live streams of one cluster: those of five
	// agents at their own bound. Idle ones cost the hub 64 MiB.
	streamsPerCluster = 50_000
	// dialBurst is how many seconds' worth of dials may come at once: a
	// kube-apiserver that has lost its connections opens them all again.
	dialBurst = 5
	// dialTurn is how long a dial beyond a rate waits for its turn. A dial whose turn
	// would come later is refused only after this time: immediate retries cost other callers.
	dialTurn = time.Second
	// callerRecords bounds the identities of callers and agents that a cluster
	// remembers while they have nothing open: each costs about 1 KiB.
	callerRecords = 1_024
	// shapeAhead is how far small streams may draw on a rate of bytes in advance.
	shapeAhead = time.Second
	// shapeLook is how often who waits for a rate, perhaps ten thousand, asks for its caller.
	shapeLook = 500 * time.Millisecond
	// callerKept is how long an identity is remembered after its last dial or
	// session, if there are many: its counts and what it has used up.
	callerKept = time.Minute
	// relayNodes bounds the nodes of one cluster that are connected, by default:
	// relaying is the last resort, but each keeps its connection.
	relayNodes = 5_000
	// dialsPerSecond bounds the sustained dials per second of one cluster: more than any
	// kube-apiserver was seen to make, since it keeps its connections, and a third of what two
	// cores did that also ran caller, agent and target (docs/performance.md), so that a cluster
	// that dials in a loop leaves most of the hub to the others.
	dialsPerSecond = 1_000
)
