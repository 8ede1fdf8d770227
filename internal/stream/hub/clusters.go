// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/hub/frontend"
	"github.com/tombolo-io/tombolo/internal/stream/hub/relay"
	"github.com/tombolo-io/tombolo/internal/stream/hub/state"
)

// apiClusters lists the clusters, with what keeps them from being removed.
func (ap *api) apiClusters(*http.Request) (any, error) {
	records, err := ap.state.Clusters()
	if err != nil {
		return nil, err
	}
	created := map[string]state.Cluster{}
	for _, rec := range records {
		created[rec.Name] = rec
	}
	open, err := ap.openTokens()
	if err != nil {
		return nil, err
	}
	served, err := ap.servedByWireGuard()
	if err != nil {
		return nil, err
	}
	out := admin.ClusterList{Meta: meta("ClusterList"), Clusters: []admin.ClusterInfo{}}
	for _, c := range ap.clusters.all() {
		info := ap.clusterInfo(c, created[c.name.String()], open[c.name.String()])
		info.WireGuard = served[info.Name]
		out.Clusters = append(out.Clusters, info)
	}
	return out, nil
}

// servedByWireGuard are the addresses of the clusters that are on in the WireGuard network, by name.
func (ap *api) servedByWireGuard() (map[string]string, error) {
	all, err := ap.state.WireGuard()
	cfg, out := ap.settings.Load().wireguard, map[string]string{}
	for _, k := range all {
		if cfg.Serves(k) {
			out[k.Name] = addressOf(k)
		}
	}
	return out, err
}

// openTokens counts the tokens of each cluster that can be used still.
func (ap *api) openTokens() (map[string]int, error) {
	tokens, err := ap.state.Tokens()
	open := map[string]int{}
	for _, t := range tokens {
		if ap.now().Before(t.Expires) && len(t.Claims) < t.Uses {
			open[t.Cluster]++
		}
	}
	return open, err
}

func (ap *api) clusterInfo(c *cluster, rec state.Cluster, tokens int) admin.ClusterInfo {
	return admin.ClusterInfo{
		Name: c.name.String(), Created: rec.Created, Agents: c.connected(), Nodes: len(c.relay.All()), Tokens: tokens,
		Sockets: len(ap.sockets.Of(c.name)), Configured: ap.configures(c.name), Policies: ap.access.Naming(c.name.String()),
	}
}

// configures says whether the configuration names a cluster.
func (ap *api) configures(name id.Cluster) bool {
	return slices.ContainsFunc(ap.settings.Load().sockets.Clusters,
		func(c frontend.Cluster) bool { return c.Name == name })
}

// apiRemoveCluster unregisters a cluster. What is connected to it, or could join it,
// refuses that, unless it is forced.
func (ap *api) apiRemoveCluster(r *http.Request) (any, error) {
	name, err := parseCluster(r.PathValue("cluster"))
	if err != nil {
		return nil, err
	}
	c, err := ap.clusters.get(name)
	if err != nil {
		return nil, err
	}
	open, err := ap.openTokens()
	if err != nil {
		return nil, err
	}
	ap.wireguard.Lock() // what is stored of it meanwhile would outlive it
	defer ap.wireguard.Unlock()
	served, err := ap.servedByWireGuard()
	if err != nil {
		return nil, err
	}
	info := ap.clusterInfo(c, state.Cluster{}, open[name.String()])
	info.WireGuard = served[name.String()]
	if f := inUse(info, c.backendStreams()); f != nil && r.URL.Query().Get("force") != "true" {
		return nil, f
	}
	gone, err := ap.credentials.RemoveCluster(name) // from now on nobody of it comes in
	if err != nil {
		return nil, err
	}
	out := admin.ClusterRemoval{
		Meta: meta("ClusterRemoval"), Name: name.String(), Tokens: gone.Tokens, Agents: gone.Agents, Nodes: gone.Nodes,
		Clients:  len(gone.Clients),
		Warnings: stillNamed(info),
	}
	why := state.RemovedCluster(name.String())
	for _, n := range c.relay.All() {
		n.End(why)
		out.Connections++
	}
	for _, cert := range gone.Clients {
		out.Connections += ap.clients.CloseAll(cert.Serial, "")
	}
	out.Connections += c.endSessions(r.Context(), why, func(*session) bool { return true })
	ap.clusters.remove(name)
	out.Connections += ap.dials.endGone(c)
	if info.Configured {
		ap.clusters.add(name) // as after a restart
	}
	if err := ap.sockets.Forget(name, &ap.settings.Load().sockets); err != nil {
		out.Warnings = append(out.Warnings, fault.From(err).Error())
	}
	ap.log.Info("cluster removed", telemetry.AttrCluster, name, "agents", gone.Agents, "nodes", gone.Nodes,
		"tokens", gone.Tokens, "clients", len(gone.Clients),
		"connections", out.Connections)
	ap.record.Change(ap.operator(r, name), audit.KindRemoval, name.String(), fmt.Sprintf(
		"cluster %s was removed with %d agents, %d nodes, %d tokens and %d client certificates; connections that ended: %d",
		name, gone.Agents, gone.Nodes, gone.Tokens, len(gone.Clients), out.Connections))
	return out, nil
}

// inUse refuses the removal of a cluster that somebody uses, or can join; nil if nobody does.
func inUse(c admin.ClusterInfo, byProxies int64) *fault.Fault {
	var uses []string
	for _, one := range []struct {
		n    int
		what string
	}{{c.Agents, "agents connected"}, {c.Nodes, "nodes connected"}, {c.Tokens, "tokens that can be used"},
		{int(byProxies), "streams by a backend other than agents"}} {
		if one.n > 0 {
			uses = append(uses, fmt.Sprintf("%s: %d", one.what, one.n))
		}
	}
	if c.WireGuard != "" {
		uses = append(uses, "on in the WireGuard network, whose keys and address "+c.WireGuard+" would be lost")
	}
	if len(uses) == 0 {
		return nil
	}
	return fault.Newf(fault.CodeClusterInUse, "cluster %s is in use", c.Name).Whyf("%s", strings.Join(uses, ", ")).
		Hint("stop them, or revoke all of it with: tombolo cluster remove %s --force", c.Name)
}

// stillNamed warns of what still names a removed cluster.
func stillNamed(c admin.ClusterInfo) (out []string) {
	if c.Configured {
		out = append(out, fmt.Sprintf("the hub's configuration names cluster %s, which therefore stays registered, empty: "+
			"take it out of 'clusters', reload, and remove it again", c.Name))
	}
	for _, file := range c.Policies {
		out = append(out, fmt.Sprintf("the policy %s names cluster %s", file, c.Name))
	}
	return out
}

// connected counts the agents with a session.
func (c *cluster) connected() int {
	agents := map[id.Agent]bool{}
	for _, s := range c.live() {
		agents[s.agent] = true
	}
	return len(agents)
}

// past is what removed clusters have moved: counters do not go back.
type past struct {
	up, down int64
	refused  int64 // by the relay, for want of places
	relay    relay.Counts
}

// remove unregisters a cluster, whose connections have ended, and keeps its sums.
func (r *registry) remove(name id.Cluster) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.clusters[name]
	if !ok {
		return
	}
	delete(r.clusters, name)
	r.changedLocked()
	up, down := c.traffic()
	r.past.up += up
	r.past.down += down
	r.past.refused += c.relay.Refused()
	r.past.relay.Add(c.relay.Counts())
}

// sum adds up what clusters have moved, and what removed ones had.
func (r *registry) sum(of func(*cluster) int64, before func(*past) int64) func() float64 {
	return func() float64 {
		r.mu.RLock()
		defer r.mu.RUnlock()
		sum := before(&r.past)
		for _, c := range r.clusters {
			sum += of(c)
		}
		return float64(sum)
	}
}

func (r *registry) sumRelay(of func(*relay.Counts) int64) func() float64 {
	return r.sum(func(c *cluster) int64 { return of(c.relay.Counts()) }, func(p *past) int64 { return of(&p.relay) })
}
