// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"crypto/tls"
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
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/otlp"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/base/stunserver"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/hub/authz"
	"github.com/tombolo-io/tombolo/internal/stream/hub/conns"
	"github.com/tombolo-io/tombolo/internal/stream/hub/credentials"
	"github.com/tombolo-io/tombolo/internal/stream/hub/frontend"
	"github.com/tombolo-io/tombolo/internal/stream/hub/memory"
	"github.com/tombolo-io/tombolo/internal/stream/hub/policyfile"
	"github.com/tombolo-io/tombolo/internal/stream/hub/quota"
	"github.com/tombolo-io/tombolo/internal/stream/hub/record"
	"github.com/tombolo-io/tombolo/internal/stream/hub/relay"
	"github.com/tombolo-io/tombolo/internal/stream/hub/state"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

// Hub is a running hub.
type Hub struct {
	cfg      Config
	log      *slog.Logger
	now      func() time.Time
	reg      *prometheus.Registry
	metrics  *telemetry.Hub
	mirrored *telemetry.Mirror
	mirror   *stunserver.Mirror // set before ready
	record   *record.Recorder
	trace    *otlp.Tracer // nil: no traces
	splicer  *splice.Splicer
	heads    sync.Pool // buffers for CONNECT requests

	access   *authz.Table
	own      *authz.OwnListeners
	policies *policyfile.Files
	memory   *memory.Guard

	state       *state.Store
	credentials *credentials.Credentials
	serving     *credentials.ServerCertificate
	clusters    *registry
	sockets     *frontend.Sockets
	clients     *conns.ByCertificate
	cores       int // that the scheduler may use
	descriptors *conns.Descriptors
	settings    atomic.Pointer[Reloadable]
	draining    atomic.Bool
	since       time.Time
	listen      string   // the bound address
	advertise   []string // host:port
	guessed     bool     // advertise was not configured

	joinHTTP, apiHTTP *listener.Handoff
	frontends         map[string]Frontend
	ready             chan struct{}
}

// Frontend serves the callers of one cluster.
type Frontend = frontend.Frontend

// Options are what a hub needs beside its configuration.
type Options struct {
	Log   *slog.Logger
	Now   func() time.Time // the clock for certificates and tokens; nil means time.Now
	Reg   *prometheus.Registry
	Audit *audit.Writer
	Trace *otlp.Tracer
	Extra map[string]Frontend // frontends of other packages, by protocol
	// Memory sets the collector's limit, debug.SetMemoryLimit; nil leaves it alone,
	// and of GOMEMLIMIT nothing is known.
	Memory func(int64) int64
}

// New opens the state and prepares a hub; Run serves.
func New(cfg Config, o Options) (*Hub, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	h := &Hub{
		cfg: cfg, log: o.Log, now: o.Now, reg: o.Reg, trace: o.Trace, splicer: splice.New(), clusters: newRegistry(cfg.limits),
		access: authz.NewTable(), own: authz.NewOwnListeners(),
		clients: conns.NewByCertificate(), cores: runtime.GOMAXPROCS(0), descriptors: conns.NewDescriptors(), since: o.Now(), ready: make(chan struct{}),
	}
	h.policies = policyfile.New(policyfile.Options{
		Paths: func() []string { return h.settings.Load().policies }, Table: h.access, Log: h.log, Now: h.now,
		Reloaded: func(err error) { h.metrics.PolicyReloads.WithLabelValues(outcome(fault.From(err))).Inc() },
	})
	h.clusters.counted = func(s quota.Scope, k quota.Resource) { h.metrics.Limits.WithLabelValues(string(s), k.String()).Inc() }
	h.memory = memory.New(memory.Options{
		Log: h.log, Configured: h.clusters.memoryLimit, Full: &h.clusters.memory, Clusters: h.clusters.books, Streams: h.streamsOf, SetLimit: o.Memory,
		Shed: func(n int) { h.metrics.Shed.Add(float64(n)) },
	})
	h.record = record.New(record.Options{
		Audit: o.Audit, Log: h.log, Now: h.now, Hub: cfg.Name,
		Authentic: func(chain []*x509.Certificate) (id.Identity, bool) { return h.credentials.Authentic(chain) },
		Count:     func(err error) { h.metrics.Refused.WithLabelValues(outcome(fault.From(err))).Inc() },
	})
	h.settings.Store(&cfg.Reloadable)
	h.frontends = map[string]Frontend{}
	for name, f := range o.Extra {
		h.frontends[name] = f
	}
	if err := private.StateDir(cfg.StateDir, o.Log); err != nil {
		return nil, err
	}
	s, err := state.Open(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	h.state = s
	if err := h.loadState(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	h.metrics, h.mirrored = telemetry.NewHub(o.Reg, h.readings()), telemetry.NewMirror(o.Reg)
	if err := h.policies.Load(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return h, nil
}

// loadState takes over the CA, the clusters and the revocations.
func (h *Hub) loadState() error {
	c, err := credentials.New(credentials.Options{
		Store: h.state, TrustDomain: h.cfg.TrustDomain, Now: h.now, Life: func() time.Duration { return h.settings.Load().agentLife },
	})
	if err != nil {
		return err
	}
	ca := c.CA()
	if ca.TrustDomain() != h.cfg.TrustDomain {
		if h.cfg.TrustDomain != id.DefaultTrustDomain {
			return fault.Newf(fault.CodeConfig, "the trust domain is fixed to %s", ca.TrustDomain()).
				Whyf("the CA in %s was made for it; the configuration says %s", h.cfg.StateDir, h.cfg.TrustDomain).
				Hint("correct trustDomain, or begin with a new state directory")
		}
		h.cfg.TrustDomain = ca.TrustDomain()
	}
	h.credentials = c
	// A copy for people and for scrapers; the original is in the state.
	if err := os.WriteFile(filepath.Join(h.cfg.StateDir, "ca.crt"), ca.CertificatePEM(), 0o644); err != nil {
		return fault.New(fault.CodeStateAccess, "write ca.crt").Because(err)
	}
	records, err := h.state.Clusters()
	if err != nil {
		return err
	}
	for _, rec := range records {
		name, err := id.ParseCluster(rec.Name)
		if err != nil {
			return fault.New(fault.CodeStateCorrupt, "a stored cluster has no usable name").Because(err)
		}
		h.clusters.add(name)
	}
	return nil
}

func (h *Hub) readings() telemetry.HubReadings {
	count := func(fn func(c *cluster) float64) func() float64 {
		return func() (sum float64) {
			for _, c := range h.clusters.all() {
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
		LimitUse:    h.clusters.limitUse,
		MemoryUsed:  func() float64 { return float64(h.memory.Used()) },
		MemoryLimit: func() float64 { return float64(h.memory.Status().Limit) },
		Sessions:    count(func(c *cluster) float64 { return float64(len(c.live())) }),
		Clusters:    count(func(*cluster) float64 { return 1 }),
		PolicyFiles: func() float64 { return float64(h.policies.Status().Files) },
		PolicyRules: func() float64 { return float64(h.policies.Status().Rules) },
		ClustersConnected: count(func(c *cluster) float64 {
			if len(c.live()) > 0 {
				return 1
			}
			return 0
		}),
		BytesToCluster:   h.clusters.sum(func(c *cluster) int64 { up, _ := c.traffic(); return up }, func(p *past) int64 { return p.up }),
		BytesFromCluster: h.clusters.sum(func(c *cluster) int64 { _, down := c.traffic(); return down }, func(p *past) int64 { return p.down }),
		RelayNodes:       func() float64 { return float64(h.clusters.relayed.Nodes()) },
		RelayRefused:     h.clusters.sum(func(c *cluster) int64 { return c.relay.Refused() }, func(p *past) int64 { return p.refused }),
		RelayPackets:     h.clusters.sumRelay(func(c *relay.Counts) int64 { return c.Packets() }),
		RelayBytes:       h.clusters.sumRelay(func(c *relay.Counts) int64 { return c.Bytes() }),
		RelayDropped: func(reason string) float64 {
			return h.clusters.sumRelay(func(c *relay.Counts) int64 { return c.DroppedFor(reason) })()
		},
		ClientCertificateEnd: func() float64 {
			certs, err := h.state.Certificates()
			if err != nil {
				return 0
			}
			return firstClientEnd(certs)
		},
	}
}

// streamsOf lists the live streams of a cluster.
func (h *Hub) streamsOf(c id.Cluster) []memory.Stream {
	all := h.access.Streams(c)
	out := make([]memory.Stream, len(all))
	for i, s := range all {
		out[i] = s.(*hubStream)
	}
	return out
}

// Ready is closed when everything listens.
func (h *Hub) Ready() <-chan struct{} { return h.ready }

// Listen is the bound address of the main port, once ready.
func (h *Hub) Listen() string { return h.listen }

// proven is who a peer is by its certificate, if that is one of ours.
func (h *Hub) proven(conn *tls.Conn) record.Party {
	who, ours := h.credentials.Authentic(conn.ConnectionState().PeerCertificates)
	if !ours {
		return record.Party{}
	}
	return record.Party{Cluster: who.Cluster, Caller: who.URI()}
}

func addrText(peer interface{ RemoteAddr() net.Addr }) string {
	if a := peer.RemoteAddr(); a != nil {
		return a.String()
	}
	return ""
}

// Reload takes over the part of a new configuration that may change while the
// hub runs. On an error the old one stays in force. A mistake in a policy file that is
// known is no error: its last good content stays, if it has any, and the rest is
// taken over.
func (h *Hub) Reload(next Config) error {
	select {
	case <-h.ready:
	default:
		return fault.New(fault.CodeConfig, "the hub is still starting").Hint("reload once it is ready")
	}
	if fixed := fixedChanges(h.cfg, next); len(fixed) > 0 {
		h.log.Warn("these settings change only with a restart", "settings", fixed)
	}
	if err := h.policies.Judge(next.policies); err != nil { // before anything is applied
		return err
	}
	if err := h.sockets.Apply(&next.sockets); err != nil {
		return err
	}
	before := h.clusters.memoryLimit()
	h.clusters.bound(next.limits)
	if h.clusters.memoryLimit() != before {
		h.memory.Advise()
	}
	for _, c := range next.sockets.Clusters {
		h.clusters.add(c.Name)
	}
	h.settings.Store(&next.Reloadable)
	if err := h.policies.Load(); err != nil { // counted there, and told by the status
		h.policies.LogRefused(err, "; the rest of the configuration is in force")
	}
	h.policies.Moved()
	return nil
}

// CountReload counts the outcome of a reload, whoever found it.
func (h *Hub) CountReload(err error) {
	h.metrics.Reloads.WithLabelValues(outcome(fault.From(err))).Inc()
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
