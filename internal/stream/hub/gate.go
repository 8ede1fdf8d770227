// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/hub/frontend"
	"github.com/tombolo-io/tombolo/internal/stream/hub/record"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// Gate is what a hub has around its dials, for a program that opens streams into one cluster by other means: policy,
// records, limits, spans, metrics and status. It has no state, no CA and no port; what is dialled is passed in.
//
//	frontend ──► Gate: limits, policy, record ──► Open ──► target
type Gate struct {
	*parts
	o     GateOptions
	dials *dialer
	of    id.Cluster
}

// GateOptions are what a gate needs beside its configuration.
type GateOptions struct {
	Options
	Open    frontend.DialFunc           // opens what was allowed
	By      string                      // what opens it, for records and metrics
	Dial    time.Duration               // bounds a dial; 0: as a hub
	Agents  func() []admin.AgentStatus  // for the status
	Sockets func() (out []admin.Socket) // for the status
}

// NewGate makes one of a configuration that ParseGateConfig gave.
func NewGate(cfg Config, o GateOptions) (*Gate, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	p, err := newParts(o.bound(cfg), o.Options, nil)
	if err != nil {
		return nil, err
	}
	g := &Gate{parts: p, o: o, of: cfg.sockets.Clusters[0].Name}
	g.clusters.add(g.of)
	g.dials = &dialer{parts: p, given: o.Open, by: o.By}
	return g, nil
}

// bound puts the time of a dial into a configuration.
func (o GateOptions) bound(cfg Config) Config {
	cfg.dialTimeout = cmp.Or(o.Dial, cfg.dialTimeout)
	return cfg
}

// Budget counts the bytes that came from agents and that no caller has read yet: what opens streams counts there, and
// its streams are carrier.Holder.
func (g *Gate) Budget() *carrier.Budget { return g.clusters.add(g.of).accounts.Budget }

// Bind names the program's own listeners, to which no dial may lead back under a policy.
func (g *Gate) Bind(listeners ...net.Listener) { g.own.Bind(nil, listeners...) }

// Listener bounds and counts the connections of each caller by a protocol; name is that of a connection's caller, as
// Dial has it.
func (g *Gate) Listener(ln net.Listener, protocol string, name func(net.Conn) string) net.Listener {
	return g.meteredBy(g.party(protocol, ""), ln, func(conn net.Conn) record.Party {
		who := g.party(protocol, clip(name(conn), 64))
		if at, err := netip.ParseAddrPort(addrText(conn)); err == nil {
			who.Source = at.Addr().Unmap().WithZone("").String()
		}
		return who
	})
}

// party is who calls: over a unix socket all are one, over TLS each has the common name of its certificate.
func (g *Gate) party(protocol, name string) record.Party {
	caller := "unix:"
	if name != "" {
		caller = "tls:" + name + "@"
	}
	return record.Party{Cluster: g.of, Frontend: protocol, Caller: caller + g.of.String() + "/" + protocol}
}

// Dial opens a stream for a caller, whose name is that of its certificate, empty over a unix socket.
func (g *Gate) Dial(ctx context.Context, d wire.Dial, protocol, name string) (carrier.Stream, error) {
	who := g.party(protocol, clip(name, 64))
	if d.Source.IsValid() {
		who.Source = d.Source.String()
	}
	d.EgressType = frontend.DefaultEgress
	return g.dials.forCaller(who)(ctx, d)
}

// Run watches the policies and serves the admin socket until ctx ends.
func (g *Gate) Run(ctx context.Context) error {
	work := run.NewGroup(ctx)
	if g.cfg.RunDir != "" {
		if err := frontend.PrivateDir(filepath.Dir(AdminSocket(g.cfg.RunDir))); err != nil {
			return err
		}
		ln, err := frontend.ListenUnix(frontend.SocketSpec{Path: AdminSocket(g.cfg.RunDir), Mode: 0o600, UID: -1, GID: -1})
		if err != nil {
			return err
		}
		g.serveHTTP(work, "admin socket", ln, g.handler())
	}
	work.Go("policy watcher", g.policies.Watch)
	work.Go("memory", g.memory.Run)
	work.Go("refusals", g.record.Run)
	err := work.Wait()
	g.record.Turn(time.Now())
	return err
}

// handler is the part of the admin API that has a meaning here.
func (g *Gate) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", answering(func(r *http.Request) (any, error) {
		return g.status(r.URL.Query().Get("cluster"))
	}))
	mux.HandleFunc("GET /v1/clusters/{cluster}/explain", answering(func(r *http.Request) (any, error) {
		return g.explain(r.PathValue("cluster"), r.URL.Query())
	}))
	mux.HandleFunc("/", noSuchRequest)
	return mux
}

// explain says what would be decided.
func (g *Gate) explain(cluster string, asked url.Values) (any, error) {
	q, err := Question(cluster, asked)
	if err != nil {
		return nil, err
	}
	out, hop := explanation(q), g.hubHop(q)
	if f := g.dials.byName(q); f != nil && hop.Verdict == admin.VerdictOpen {
		hop.Verdict, hop.Why = admin.VerdictDenied, f.What+": "+f.Why
	}
	if hop.Version == "" {
		hop.Why = "there is no policy: agents dial what they are asked for"
	}
	out.Hops, out.Verdict = []admin.Hop{hop}, hop.Verdict
	return out, nil
}

func (g *Gate) status(only string) (any, error) {
	out := admin.Status{Meta: meta("Status"), Hub: admin.HubStatus{Version: g.cfg.Version, Since: g.since.UTC()}}
	g.inForce(&out)
	c, err := g.clusters.get(g.of)
	if err != nil {
		return nil, err
	}
	cs := g.clusterStatus(c)
	cs.Agents, cs.Sockets, cs.Streams = g.o.Agents(), g.o.Sockets(), int(c.backendStreams())
	switch only {
	case "":
	case cs.Name:
		cs.Limits = c.accounts.Status()
	default:
		return nil, fault.Newf(fault.CodeClusterUnknown, "cluster %q is not served here", clip(only, 64)).
			Hint("the cluster is %s", cs.Name)
	}
	out.Clusters = []admin.ClusterStatus{cs}
	out.Warnings = g.memory.Advice()
	return out, nil
}

// Reload applies what may change of a new configuration. On an error the old one stays in force.
func (g *Gate) Reload(next Config) error {
	next = g.o.bound(next)
	fixed := fixedChanges(g.cfg, next)
	if next.sockets.Clusters[0].Name != g.of {
		fixed = append(fixed, "clusters")
	}
	if len(fixed) > 0 {
		g.log.Warn("these settings change only with a restart", "settings", fixed)
	}
	if err := g.policies.Judge(next.policies); err != nil { // before anything is applied
		return err
	}
	g.apply(&next.Reloadable)
	return nil
}

// byName refuses names under a policy: who opens the stream resolves them itself, and nobody could judge where one
// leads.
func (dl *dialer) byName(q policy.Request) *fault.Fault {
	if q.Name == "" || !dl.access.Configured() {
		return nil
	}
	return fault.Newf(fault.CodePolicyDenied, "the name %s is not dialled under a policy", q.Name).
		Whyf("konnectivity's agents resolve names themselves, and nobody could judge where one leads").
		Hint("have kube-apiserver dial addresses, such as with --kubelet-preferred-address-types=InternalIP")
}

// dialGiven opens a stream by other means than agents of this hub.
func (dl *dialer) dialGiven(ctx context.Context, c *cluster, d dialled) (*hubStream, error) {
	if f := dl.byName(d.policy); f != nil {
		return nil, f
	}
	u := c.by(dl.by)
	u.last.Store(dl.now().UnixNano())
	u.streams.Add(1)
	stream, err := dl.given(ctx, d.wire)
	if err != nil {
		u.streams.Add(-1)
		return nil, err
	}
	dl.metrics.Streams.Inc()
	return &hubStream{Stream: stream, parts: dl.parts, by: u, request: d.policy}, nil
}
