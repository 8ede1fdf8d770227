// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/hub/quota"
	"github.com/tombolo-io/tombolo/internal/stream/hub/record"
	"github.com/tombolo-io/tombolo/internal/stream/hub/relay"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

// registry holds the clusters by name.
type registry struct {
	mu       sync.RWMutex
	clusters map[id.Cluster]*cluster
	others   chan struct{}   // closed when a cluster is added or removed
	unread   *carrier.Budget // the parent of the clusters' own
	limits   *quota.Table
	counted  func(quota.Scope, quota.Resource) // each time that a limit holds somebody up
	memory   atomic.Bool                       // all of it is in use: nobody gets more
	relayed  relay.Total
	past     past
}

// newRegistry has no clusters. counted is called each time that a limit holds somebody up.
func newRegistry(l *quota.Table, counted func(quota.Scope, quota.Resource)) *registry {
	if l == nil {
		l = quota.Parse(v1alpha1.HubLimitsConfig{}, func(string, string, ...any) {})
	}
	return &registry{clusters: map[id.Cluster]*cluster{}, others: make(chan struct{}),
		unread: carrier.NewBudget(limit.ClusterUnread), limits: l, counted: counted}
}

// bound puts other limits into force, for live clusters too.
func (r *registry) bound(l *quota.Table) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.limits = l
	for name, c := range r.clusters {
		own := l.Of(name)
		c.accounts.Bound(own)
		c.relay.Bound(own.Relay)
	}
}

// add registers a cluster if it is new.
func (r *registry) add(name id.Cluster) *cluster {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.clusters[name]
	if !ok {
		own := r.limits.Of(name)
		c = &cluster{
			name: name, sessions: map[*session]struct{}{}, gone: map[id.Agent]admin.AgentStatus{},
			accounts: quota.NewBook(name, own, r.unread.Another(own.Cluster.Unread), r.counted, &r.memory),
			relay:    relay.New(&r.relayed, own.Relay),
		}
		r.clusters[name] = c
		r.changedLocked()
	}
	return c
}

func (r *registry) changedLocked() {
	close(r.others)
	r.others = make(chan struct{})
}

// changed is closed when a cluster is added or removed after this call.
func (r *registry) changed() <-chan struct{} {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.others
}

func (r *registry) get(name id.Cluster) (*cluster, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if c, ok := r.clusters[name]; ok {
		return c, nil
	}
	return nil, fault.Newf(fault.CodeClusterUnknown, "cluster %q is not registered at this hub", name).
		Hint("'tombolo status' lists the clusters; 'tombolo token create --cluster %s' registers it", name)
}

// callerOf is the account of a caller, nil if its cluster is not known.
func (r *registry) callerOf(p record.Party) *quota.Account {
	c, err := r.get(p.Cluster)
	if err != nil {
		return nil
	}
	return c.accounts.Caller(p.Caller)
}

// all lists the clusters by name.
func (r *registry) all() []*cluster {
	r.mu.RLock()
	out := make([]*cluster, 0, len(r.clusters))
	for _, c := range r.clusters {
		out = append(out, c)
	}
	r.mu.RUnlock()
	slices.SortFunc(out, func(a, b *cluster) int { return strings.Compare(a.name.String(), b.name.String()) })
	return out
}

// each calls fn with every cluster, in no particular order.
func (r *registry) each(fn func(*cluster)) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, c := range r.clusters {
		fn(c)
	}
}

// memoryLimit is what is configured, 0 if nothing is.
func (r *registry) memoryLimit() int64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.limits.Memory
}

// books visits the accounts of all clusters, with the memory that their relays take.
func (r *registry) books(visit func(c id.Cluster, book *quota.Book, relay int64)) {
	r.each(func(c *cluster) { visit(c.name, c.accounts, c.relay.Holds()) })
}

// limitUse is the greatest share that anybody uses of one of its limits.
func (r *registry) limitUse(name string) (most float64) {
	r.each(func(c *cluster) { most = max(most, c.accounts.GreatestUse(name)) })
	return most
}

// cluster holds the live sessions of one cluster and remembers agents that left.
type cluster struct {
	name     id.Cluster
	accounts *quota.Book  // what it and its agents and callers use
	relay    *relay.Relay // between its nodes
	ports    portUse      // by its agents

	mu          sync.Mutex
	sessions    map[*session]struct{}
	gone        map[id.Agent]admin.AgentStatus // newest end of agents without a session
	retiredUp   int64                          // bytes of sessions that ended
	retiredDown int64
	backends    backendUses
}

// portUse is what goes to ports of the hub.
type portUse struct {
	streams atomic.Int64   // live ones, and dials under way
	in, out splice.Counter // bytes into and out of the cluster
}

// join adds a session and returns the older ones of the same process of the same
// agent: they are either about to be drained after a renewal, or dead without
// the hub's knowledge. Two processes with one identity both stay, and both are
// seen in status.
func (c *cluster) join(s *session) (older []*session, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for old := range c.sessions {
		if old.agent == s.agent && old.instance == s.instance {
			older = append(older, old)
		}
	}
	if err := c.accounts.Enter(s.account); err != nil {
		return nil, err
	}
	c.sessions[s] = struct{}{}
	delete(c.gone, s.agent)
	return older, nil
}

// leave removes a session and remembers why it ended.
func (c *cluster) leave(s *session, why *fault.Fault, now time.Time) {
	st := s.status()
	st.Connected, st.Streams, st.Connections = false, 0, 0
	st.LastDisconnect = &admin.Disconnect{Code: string(why.Code), Reason: why.Explain(), At: now.UTC()}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sessions, s)
	c.accounts.Leave(s.account)
	c.retiredUp += s.up.Load()
	c.retiredDown += s.down.Load()
	for other := range c.sessions {
		if other.agent == s.agent {
			return
		}
	}
	c.gone[s.agent] = st
	for len(c.gone) > agentRecords {
		delete(c.gone, oldest(c.gone))
	}
}

func oldest(gone map[id.Agent]admin.AgentStatus) (out id.Agent) {
	var at time.Time
	for a, st := range gone {
		if at.IsZero() || st.LastDisconnect.At.Before(at) {
			out, at = a, st.LastDisconnect.At
		}
	}
	return out
}

// others says whether a session other than s takes streams.
func (c *cluster) others(s *session) bool {
	for _, o := range c.live() {
		if o != s && !o.draining.Load() {
			return true
		}
	}
	return false
}

// live lists the sessions in no particular order.
func (c *cluster) live() []*session {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]*session, 0, len(c.sessions))
	for s := range c.sessions {
		out = append(out, s)
	}
	return out
}

// traffic sums the bytes of all sessions, past ones included.
func (c *cluster) traffic() (up, down int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	up, down = c.retiredUp+c.ports.in.Load(), c.retiredDown+c.ports.out.Load()
	for s := range c.sessions {
		up += s.up.Load()
		down += s.down.Load()
	}
	for _, u := range c.backends.uses {
		up += u.in.Load()
		down += u.out.Load()
	}
	return up, down
}

// agents lists live and remembered agents by name.
func (c *cluster) agents() []admin.AgentStatus {
	c.mu.Lock() // once for both: an agent that comes or goes meanwhile is one of either
	live, out := slices.Collect(maps.Keys(c.sessions)), slices.Collect(maps.Values(c.gone))
	c.mu.Unlock()
	for _, s := range live {
		out = append(out, s.status())
	}
	slices.SortFunc(out, func(a, b admin.AgentStatus) int {
		if n := strings.Compare(a.ID, b.ID); n != 0 {
			return n
		}
		return a.Since.Compare(b.Since)
	})
	return out
}

// noAgent explains why a dial finds no session: which agents were seen, when
// they left and why, and what to run next.
func noAgent(name id.Cluster, agents []admin.AgentStatus, now time.Time) *fault.Fault {
	f := fault.Newf(fault.CodeNoAgent, "cluster %s has no live agent", name)
	var seen []string
	draining := false
	for _, a := range agents {
		switch {
		case a.Connected && a.Draining:
			draining = true
			seen = append(seen, a.ID+" is draining")
		case a.Connected && !now.Before(a.CertificateEnd):
			seen = append(seen, fmt.Sprintf("%s is connected, but its certificate ended %s ago", a.ID,
				ago(now.Sub(a.CertificateEnd))))
		case a.Connected:
			seen = append(seen, a.ID+" is connected but does not answer")
		case a.LastDisconnect != nil:
			seen = append(seen, fmt.Sprintf("%s left %s ago (%s)", a.ID, ago(now.Sub(a.LastDisconnect.At)),
				a.LastDisconnect.Reason))
		}
	}
	const most = 3
	switch {
	case len(seen) == 0:
		f.Why = "the cluster is registered, but no agent has connected since this hub started"
	case len(seen) > most:
		f.Why = fmt.Sprintf("%s and %d more", strings.Join(seen[:most], "; "), len(seen)-most)
	default:
		f.Why = strings.Join(seen, "; ")
	}
	if draining && len(agents) == len(seen) && allDraining(agents) {
		f.Code = fault.CodeDraining
	}
	return f.Hint("look at the agent's log and at 'tombolo status %s'; a new agent joins with the line of 'tombolo "+
		"token create --cluster %s'", name, name)
}

func allDraining(agents []admin.AgentStatus) bool {
	for _, a := range agents {
		if !a.Connected || !a.Draining {
			return false
		}
	}
	return true
}

func ago(d time.Duration) time.Duration {
	if d < time.Minute {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Second)
}
