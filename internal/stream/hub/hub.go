// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/access/authz"
	"github.com/tombolo-io/tombolo/internal/access/policyfile"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/otlp"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/base/stunserver"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/hub/conns"
	"github.com/tombolo-io/tombolo/internal/stream/hub/credentials"
	"github.com/tombolo-io/tombolo/internal/stream/hub/frontend"
	"github.com/tombolo-io/tombolo/internal/stream/hub/memory"
	"github.com/tombolo-io/tombolo/internal/stream/hub/quota"
	"github.com/tombolo-io/tombolo/internal/stream/hub/record"
	"github.com/tombolo-io/tombolo/internal/stream/hub/relay"
	"github.com/tombolo-io/tombolo/internal/stream/hub/state"
	"github.com/tombolo-io/tombolo/internal/stream/hub/wireguard"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// Hub is a running hub: its servers, and the parts that they share.
type Hub struct {
	*parts
	reg         *prometheus.Registry
	stunMetrics *telemetry.STUN

	dials   *dialer
	agents  *agents
	relays  *relays
	connect *connect
	front   *front
	join    *join
	api     *api
	ready   chan struct{}
}

// parts is what the servers of a hub share: the packages below it, its settings and its
// identity. It decides nothing.
type parts struct {
	cfg      Config
	log      *slog.Logger
	now      func() time.Time
	since    time.Time
	settings atomic.Pointer[Reloadable]
	draining atomic.Bool
	moving   sync.Mutex // a backend is chosen, or the configuration changes

	metrics *telemetry.Hub
	trace   *otlp.Tracer // nil: no traces
	record  *record.Recorder

	state       *state.Store
	credentials *credentials.Credentials
	access      *authz.Table
	own         *authz.OwnListeners
	policies    *policyfile.Files
	clusters    *registry
	wireguard   sync.Mutex // held while addresses or their range change, or a cluster is removed
	memory      *memory.Guard
	clients     *conns.ByCertificate
	descriptors *conns.Descriptors
	cores       int // usable by the scheduler

	// Set by Run before anything is served.
	sockets   *frontend.Sockets
	stun      *stunserver.Server
	listen    string   // the bound address
	advertise []string // host:port
	guessed   bool     // advertise was not configured
}

// Frontend serves the callers of one cluster.
type Frontend = frontend.Frontend

// Options are what a hub needs in addition to its configuration.
type Options struct {
	Log   *slog.Logger
	Now   func() time.Time // the clock for certificates and tokens; nil means time.Now
	Reg   *prometheus.Registry
	Audit *audit.Writer
	Trace *otlp.Tracer
	Extra map[string]Frontend // frontends of other packages, by protocol
	// Memory sets the collector's limit, debug.SetMemoryLimit; nil leaves the
	// limit unchanged, and GOMEMLIMIT is ignored.
	Memory func(int64) int64
}

// New opens the state and prepares a hub; Run serves.
func New(cfg Config, o Options) (*Hub, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if err := private.StateDir(cfg.StateDir, o.Log); err != nil {
		return nil, err
	}
	s, err := state.Open(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	p, err := newParts(cfg, o, s)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	h := &Hub{parts: p, reg: o.Reg, stunMetrics: telemetry.NewSTUN(o.Reg), ready: make(chan struct{})}
	splicer := splice.New()
	h.dials = &dialer{parts: p, splicer: splicer}
	h.agents, h.relays = &agents{p}, &relays{p}
	h.connect = &connect{parts: p, splicer: splicer}
	h.front = &front{parts: p, dials: h.dials, agents: h.agents, relays: h.relays, connect: h.connect, frontends: o.Extra}
	h.join = &join{p}
	h.api = &api{parts: p, dials: h.dials, agents: h.agents, relays: h.relays, connect: h.connect,
		backends: &backendAPI{p}, network: &wireGuardAPI{p}}
	return h, nil
}

// newParts builds what the servers share, bottom-up. Without a state there are no credentials.
func newParts(cfg Config, o Options, s *state.Store) (*parts, error) {
	p := &parts{
		cfg: cfg, log: o.Log, now: o.Now, since: o.Now(), trace: o.Trace, state: s, access: authz.NewTable(),
		own:     authz.NewOwnListeners(),
		clients: conns.NewByCertificate(), descriptors: conns.NewDescriptors(), cores: runtime.GOMAXPROCS(0),
	}
	p.settings.Store(&cfg.Reloadable)
	p.clusters = newRegistry(cfg.limits, func(s quota.Scope, k quota.Resource) {
		p.metrics.Limits.WithLabelValues(string(s), k.String()).Inc()
	})
	p.metrics = telemetry.NewHub(o.Reg, p.readings()) // called on each scrape; they read what is made below
	p.memory = memory.New(memory.Options{
		Log: o.Log, Configured: p.clusters.memoryLimit, Full: &p.clusters.memory, Clusters: p.clusters.books,
		Streams:  streamsOf(p.access),
		SetLimit: o.Memory, Shed: func(n int) { p.metrics.Shed.Add(float64(n)) },
	})
	authentic := func([]*x509.Certificate) (id.Identity, bool) { return id.Identity{}, false }
	if s != nil {
		if err := p.loadState(); err != nil {
			return nil, err
		}
		authentic = p.credentials.Authentic
	}
	p.record = record.New(record.Options{
		Audit: o.Audit, Log: o.Log, Now: o.Now, Hub: cfg.Name, Authentic: authentic,
		Count: func(err error) { p.metrics.Refused.WithLabelValues(outcome(fault.From(err))).Inc() },
	})
	p.policies = policyfile.New(policyfile.Options{
		Paths: func() []string { return p.settings.Load().policies }, Table: p.access, Log: o.Log, Now: o.Now,
		Reloaded: func(err error) { p.metrics.PolicyReloads.WithLabelValues(outcome(fault.From(err))).Inc() },
	})
	return p, p.policies.Load()
}

// loadState loads the CA, the clusters and the revocations.
func (p *parts) loadState() error {
	c, err := credentials.New(credentials.Options{
		Store: p.state, TrustDomain: p.cfg.TrustDomain, Now: p.now,
		Life: func() time.Duration { return p.settings.Load().agentLife },
	})
	if err != nil {
		return err
	}
	ca := c.CA()
	if ca.TrustDomain() != p.cfg.TrustDomain {
		if p.cfg.TrustDomain != id.DefaultTrustDomain {
			return fault.Newf(fault.CodeConfig, "the trust domain is fixed to %s", ca.TrustDomain()).
				Whyf("the CA in %s was made for it; the configuration says %s", p.cfg.StateDir, p.cfg.TrustDomain).
				Hint("correct trustDomain, or begin with a new state directory")
		}
		p.cfg.TrustDomain = ca.TrustDomain()
	}
	p.credentials = c
	// A copy for people and for scrapers; the original is in the state.
	if err := os.WriteFile(filepath.Join(p.cfg.StateDir, "ca.crt"), ca.CertificatePEM(), 0o644); err != nil {
		return fault.New(fault.CodeStateAccess, "write ca.crt").Because(err)
	}
	records, err := p.state.Clusters()
	if err != nil {
		return err
	}
	for _, rec := range records {
		name, err := id.ParseCluster(rec.Name)
		if err != nil {
			return fault.New(fault.CodeStateCorrupt, "a stored cluster has no usable name").Because(err)
		}
		p.clusters.add(name).chooseBackend(rec.Backend)
	}
	if err := p.cfg.backends.Replaces(p.clusters.backendUses(p.cfg.backends)); err != nil {
		return err
	}
	return p.fitWireGuard(p.cfg.wireguard)
}

// readings are the metrics that are measured on each scrape.
func (p *parts) readings() telemetry.HubReadings {
	count := func(fn func(c *cluster) float64) func() float64 {
		return func() (sum float64) {
			for _, c := range p.clusters.all() {
				sum += fn(c)
			}
			return sum
		}
	}
	sessions := func(fn func(i carrier.Info) int) func() float64 {
		return count(func(c *cluster) (sum float64) {
			for _, s := range c.live() {
				sum += float64(fn(s.link.Info()))
			}
			return sum
		})
	}
	return telemetry.HubReadings{
		Connections: sessions(func(i carrier.Info) int { return i.Connections }),
		Unread:      count(func(c *cluster) float64 { return float64(c.accounts.Budget.Unread()) }),
		LimitUse:    p.clusters.limitUse,
		MemoryUsed:  func() float64 { return float64(p.memory.Used()) },
		MemoryLimit: func() float64 { return float64(p.memory.Status().Limit) },
		Sessions:    count(func(c *cluster) float64 { return float64(len(c.live())) }),
		Clusters:    count(func(*cluster) float64 { return 1 }),
		PolicyFiles: func() float64 { return float64(p.policies.Status().Files) },
		PolicyRules: func() float64 { return float64(p.policies.Status().Rules) },
		ClustersConnected: count(func(c *cluster) float64 {
			if len(c.live()) > 0 {
				return 1
			}
			return 0
		}),
		BytesToCluster: p.clusters.sum(func(c *cluster) int64 { up, _ := c.traffic(); return up },
			func(q *past) int64 { return q.up }),
		BytesFromCluster: p.clusters.sum(func(c *cluster) int64 { _, down := c.traffic(); return down },
			func(q *past) int64 { return q.down }),
		RelayNodes: func() float64 { return float64(p.clusters.relayed.Nodes()) },
		RelayRefused: p.clusters.sum(func(c *cluster) int64 { return c.relay.Refused() },
			func(q *past) int64 { return q.refused }),
		RelayPackets: p.clusters.sumRelay(func(c *relay.Counts) int64 { return c.Packets() }),
		RelayBytes:   p.clusters.sumRelay(func(c *relay.Counts) int64 { return c.Bytes() }),
		RelayDropped: func(reason string) float64 {
			return p.clusters.sumRelay(func(c *relay.Counts) int64 { return c.DroppedFor(reason) })()
		},
		WireGuardClusters: p.ofWireGuard(wireguard.Config.Served),
		WireGuardFree:     p.ofWireGuard(wireguard.Config.Free),
		ClientCertificateEnd: func() float64 {
			if p.state == nil {
				return 0
			}
			certs, err := p.state.Certificates()
			if err != nil {
				return 0
			}
			return firstClientEnd(certs)
		},
	}
}

// streamsOf lists the live streams of a cluster.
func streamsOf(table *authz.Table) func(id.Cluster) []memory.Stream {
	return func(c id.Cluster) []memory.Stream {
		all := table.Streams(c)
		out := make([]memory.Stream, len(all))
		for i, s := range all {
			out[i] = s.(*hubStream)
		}
		return out
	}
}

// Dial opens a stream to d.Address through an agent of the cluster. See dialer.Dial.
func (h *Hub) Dial(ctx context.Context, c id.Cluster, d wire.Dial) (carrier.Stream, error) {
	return h.dials.Dial(ctx, c, d)
}

// Status describes the hub, its clusters and their agents.
func (h *Hub) Status() admin.Status { return h.api.statusOf("") }

// Ready is closed once every listener is open.
func (h *Hub) Ready() <-chan struct{} { return h.ready }

// Listen is the bound address of the main port, once ready.
func (h *Hub) Listen() string { return h.listen }

func addrText(peer interface{ RemoteAddr() net.Addr }) string {
	if a := peer.RemoteAddr(); a != nil {
		return a.String()
	}
	return ""
}

// addresses lists the hosts for the hub's certificate and, if none is
// configured, guesses the address to advertise.
func (h *Hub) addresses(port string) (hosts []string) {
	hosts = []string{"localhost", "127.0.0.1", "::1"}
	if name, err := os.Hostname(); err == nil {
		hosts = append(hosts, name)
	}
	best := ""
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		h.log.Warn("cannot list the machine's addresses", telemetry.AttrReason, err)
	}
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err != nil || !p.Addr().IsGlobalUnicast() {
			continue
		}
		hosts = append(hosts, p.Addr().String())
		if best == "" || p.Addr().Is4() && !netip.MustParseAddr(best).Is4() {
			best = p.Addr().String()
		}
	}
	if len(h.cfg.Advertise) == 0 {
		h.guessed = true
		if best == "" {
			best = "127.0.0.1"
		}
		h.advertise = []string{net.JoinHostPort(best, port)}
		return hosts
	}
	for _, a := range h.cfg.Advertise {
		host, p, err := net.SplitHostPort(a)
		if err != nil {
			continue // validated before
		}
		if p == "0" {
			p = port
		}
		h.advertise = append(h.advertise, net.JoinHostPort(host, p))
		hosts = append(hosts, host)
	}
	return hosts
}
