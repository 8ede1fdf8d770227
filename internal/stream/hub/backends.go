// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/hub/backend"
	"github.com/tombolo-io/tombolo/internal/stream/hub/quota"
	"github.com/tombolo-io/tombolo/internal/stream/hub/record"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// backendUse is what one backend other than agents carries into a cluster.
type backendUse struct {
	cluster *cluster
	name    string
	streams atomic.Int64   // live ones, and dials under way
	last    atomic.Int64   // when one was dialled last, in nanoseconds since 1970; 0: never
	in, out splice.Counter // bytes into and out of the cluster
}

func (u *backendUse) of() *cluster { return u.cluster }

func (u *backendUse) counts() (written, read *splice.Counter) { return &u.in, &u.out }

func (u *backendUse) pays(s *hubStream) *quota.Account { return s.places.Start(&s.in, &s.out, nil) }

func (u *backendUse) start(s *hubStream) record.Start {
	out := record.Start{Backend: u.name}
	if by, ok := s.Stream.(interface{ Agent() string }); ok {
		out.Agent = by.Agent()
	}
	return out
}

func (u *backendUse) left() { u.streams.Add(-1) }

// backendUses are those of a cluster, by name. Its own choice is stored; empty: none.
type backendUses struct {
	own  string
	uses map[string]*backendUse
}

// own is the backend that was chosen for the cluster; empty: none.
func (c *cluster) ownBackend() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.backends.own
}

func (c *cluster) chooseBackend(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.backends.own = name
}

// by is what a backend carries into the cluster.
func (c *cluster) by(name string) *backendUse {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.backends.uses[name]
	if u == nil {
		u = &backendUse{cluster: c, name: name}
		if c.backends.uses == nil {
			c.backends.uses = map[string]*backendUse{}
		}
		c.backends.uses[name] = u
	}
	return u
}

// backendUse is what the cluster has of backends.
func (c *cluster) backendUse() backend.Use {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := backend.Use{Own: c.backends.own, Open: map[string]int{}}
	for name, u := range c.backends.uses {
		if n := u.streams.Load(); n > 0 {
			out.Open[name] = int(n)
		}
	}
	return out
}

// backendStreams are those that are live by backends other than agents.
func (c *cluster) backendStreams() (n int64) {
	for _, open := range c.backendUse().Open {
		n += int64(open)
	}
	return n
}

// backendUses is what all clusters have of the backends that are in force.
func (r *registry) backendUses(t backend.Table) map[string]backend.Use {
	out := map[string]backend.Use{}
	r.each(func(c *cluster) {
		u := c.backendUse()
		u.By, u.Ready = t.Of(u.Own), c.ready() > 0
		out[c.name.String()] = u
	})
	return out
}

// ready counts the sessions that take streams.
func (c *cluster) ready() (n int) {
	for _, s := range c.live() {
		if !s.draining.Load() {
			n++
		}
	}
	return n
}

// carry opens a stream by the backend of the cluster.
func (dl *dialer) carry(
	ctx context.Context, c *cluster, held *quota.Grant, d dialled,
) (stream *hubStream, err error) {
	t := dl.settings.Load().backends
	name := t.Of(c.ownBackend())
	switch {
	case dl.given != nil:
		name = dl.by
		stream, err = dl.dialGiven(ctx, c, d)
	case name == backend.Agents:
		stream, err = dl.dialAny(ctx, c, held, d)
	default:
		stream, err = dl.dialBackend(ctx, c.by(name), t, d)
	}
	dl.metrics.BackendDials.WithLabelValues(name, outcome(fault.From(err))).Inc()
	return stream, err
}

func (dl *dialer) dialBackend(ctx context.Context, u *backendUse, t backend.Table, d dialled) (*hubStream, error) {
	if d.wire.Network != wire.NetworkTCP {
		return nil, fault.Newf(fault.CodeRequest, "backend %s carries no datagrams", u.name).
			Hint("move the cluster to its agents: tombolo cluster backend %s %s", u.cluster.name, backend.Agents)
	}
	if err := dl.forProxy(u.name, d.policy); err != nil {
		return nil, err
	}
	p, err := t.Proxy(u.name, u.cluster.name)
	if err != nil {
		return nil, err
	}
	u.last.Store(dl.now().UnixNano())
	u.streams.Add(1) // before it dials: a change of the configuration sees it
	conn, err := p.Connect(ctx, keepingReserve(), d.wire.Address)
	if err != nil {
		u.streams.Add(-1)
		return nil, err
	}
	dl.metrics.Streams.Inc()
	return &hubStream{Stream: dl.splicer.Side(conn), parts: dl.parts, by: u, request: d.policy}, nil
}

// forProxy refuses what a proxy must not be asked for. It dials from its own network, and there is no list of an agent:
// names, which it would resolve by itself, and special addresses could lead to what is not the cluster's.
func (dl *dialer) forProxy(name string, q policy.Request) error {
	denied := fault.Newf(fault.CodePolicyDenied, "backend %s does not get this destination", name)
	q.Own = dl.own.FromHere()
	switch special := policy.Special(q.Addr); {
	case q.Name != "":
		return denied.Whyf("it would choose among the addresses of %s, and nobody would judge them", q.Name).
			Hint("dial an address, or move the cluster to its agents")
	case q.MeetsOwn():
		return denied.Whyf("it is a listener of the hub")
	case special != "":
		return denied.Whyf("it is %s", special)
	}
	return nil
}

// backendAPI serves operators who ask what carries dials, and who move clusters.
type backendAPI struct{ *parts }

// list says what carries the dials of each cluster, and what keeps a backend from being removed.
func (bk *backendAPI) list(*http.Request) (any, error) {
	t := bk.settings.Load().backends
	out := admin.BackendList{Meta: meta("BackendList"), Default: t.Default(), Clusters: []admin.ClusterBackend{}}
	uses := map[string]int{}
	for _, c := range bk.clusters.all() {
		one := bk.backendOf(c, t)
		uses[one.Backend]++
		for name := range one.Open {
			if name != one.Backend {
				uses[name]++
			}
		}
		out.Clusters = append(out.Clusters, one)
	}
	for _, name := range t.Names() {
		out.Backends = append(out.Backends, admin.Backend{Name: name, Clusters: uses[name]})
	}
	return out, nil
}

// backendOf is what carries the dials of a cluster, and what holds it back.
func (bk *backendAPI) backendOf(c *cluster, t backend.Table) admin.ClusterBackend {
	u := c.backendUse()
	out := admin.ClusterBackend{Name: c.name.String(), Backend: t.Of(u.Own), Own: u.Own != "", Open: u.Open}
	streams := int64(0)
	for _, s := range c.live() {
		streams += s.streams.Load()
	}
	if streams > 0 {
		out.Open[backend.Agents] = int(streams)
	}
	c.mu.Lock()
	for _, b := range c.backends.uses {
		if at := b.last.Load(); at > 0 && b.name != backend.Agents && time.Unix(0, at).After(out.LastByProxy) {
			out.LastByProxy = time.Unix(0, at).UTC()
		}
	}
	c.mu.Unlock()
	out.Constraints = constraintsOf(out, c.ready())
	return out
}

// constraintsOf says of a cluster whether its agents could carry its dials, and whether they carry all.
func constraintsOf(b admin.ClusterBackend, agents int) []admin.Constraint {
	ready := admin.Constraint{Type: admin.AgentsReady, Status: agents > 0, Reason: "Connected",
		Message: fmt.Sprintf("connected agents that take streams: %d", agents)}
	if agents == 0 {
		ready.Reason, ready.Message = "NoAgent", "no agent is connected"
	}
	uses := admin.Constraint{Type: admin.UsesAgents, Status: true, Reason: "AgentsOnly", Message: "agents carry all dials"}
	others := 0
	for name, n := range b.Open {
		if name != backend.Agents {
			others += n
		}
	}
	switch {
	case b.Backend != backend.Agents:
		uses.Status, uses.Reason, uses.Message = false, "OtherBackend", "backend "+b.Backend+" carries its dials"
	case others > 0:
		uses.Status, uses.Reason = false, "OpenStreams"
		uses.Message = fmt.Sprintf("open streams by other backends: %d", others)
	}
	return []admin.Constraint{ready, uses}
}

// choose moves a cluster to another backend. Streams that are open stay where they are. What would not carry
// its dials is refused, unless it is forced.
func (bk *backendAPI) choose(r *http.Request) (any, error) {
	name, err := parseCluster(r.PathValue("cluster"))
	if err != nil {
		return nil, err
	}
	c, err := bk.clusters.get(name)
	if err != nil {
		return nil, err
	}
	var q admin.BackendChoice
	if err := readJSON(r, limit.AdminBody, &q); err != nil {
		return nil, err
	}
	t := bk.settings.Load().backends
	if next := t.Of(q.Backend); next != t.Of(c.ownBackend()) && !q.Force {
		if err := bk.carries(r.Context(), c, t, next); err != nil { // it may take its time
			return nil, err
		}
	}
	bk.moving.Lock() // against a reload that takes the backend away
	defer bk.moving.Unlock()
	t = bk.settings.Load().backends
	if err := t.Choose(name, q.Backend, bk.clusters.backendUses(t)); err != nil {
		return nil, err
	}
	before := t.Of(c.ownBackend())
	if err := bk.state.SetBackend(name, q.Backend, bk.now()); err != nil {
		return nil, err
	}
	c.chooseBackend(q.Backend)
	out := bk.backendOf(c, t)
	out.Meta = meta("ClusterBackend")
	if before != out.Backend {
		bk.log.Info("cluster moved", telemetry.AttrCluster, name, "from", before, "to", out.Backend)
		bk.record.Change(bk.operator(r, name), audit.KindMove, name.String(),
			fmt.Sprintf("cluster %s was moved from backend %s to %s", name, before, out.Backend))
	}
	return out, nil
}

// carries says why a backend would not carry the dials of a cluster.
func (bk *backendAPI) carries(ctx context.Context, c *cluster, t backend.Table, name string) error {
	const force = "repeat with --force to move it all the same"
	if name == backend.Agents {
		if c.ready() > 0 {
			return nil
		}
		return noAgent(c.name, c.agents(), bk.now()).Hint(force)
	}
	p, err := t.Proxy(name, c.name)
	if err != nil {
		return err
	}
	if err := p.Check(ctx, keepingReserve()); err != nil {
		return fault.From(err).Hint(force)
	}
	return nil
}
