// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/internal/mesh/attach"
	"github.com/tombolo-io/tombolo/internal/mesh/endpoint"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel"
	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
	"github.com/tombolo-io/tombolo/internal/mesh/routing"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// Config says which node this is.
type Config struct {
	meshconf.Config
	Version  string
	StateDir string
	RunDir   string
	// ClusterID is the cluster's configured name; empty: that of its oldest secret.
	ClusterID string
	// Sourceless says that no source of members is configured.
	Sourceless bool
	Keys       iter.Seq2[int, seal.Keys] // of the secrets, the newest first
	Announce   member.Facts              // what the configuration states about this node
	ID         string                    // the member id
	Lease      time.Duration             // of members
	PodsOf     string                    // the Node in Kubernetes whose ranges of pods are announced; empty: none are
	// STUN are servers beside those of hubs and of the configuration: the discovery services.
	Services []endpoint.Server
	// Needs are further services that the machine needs outside of the mesh: API servers.
	Needs    []topology.Service
	ReadJoin func(string) (string, error)

	chosen engineChoice // at the start, as mesh.engine says
}

// Members is what discovery knows of this node's cluster.
type Members interface {
	Result() (roster.Result, <-chan struct{})
	Merged() roster.Result
	AwaitSettled(ctx context.Context, most time.Duration) []string
	Under(member string) []seal.ClusterID
}

// Listed is what a file of members has beside their facts.
type Listed interface {
	PairKeys(file string) (seal.Keys, bool) // of a secret that a member shares with this node alone
	Suspect(down bool)                      // a member does not answer: names of endpoints may mean other addresses
}

// Announcer publishes this node's entry.
type Announcer interface {
	Announce(member.Facts) error
	Prove(seal.WireGuardPrivate)
}

// Services are the discovery services of this node.
type Services interface {
	Attending() []string      // the names of those that report members now
	Unopened() map[string]int // how many entries of this cluster each has that no secret opens
	Warnings() []string       // about sources: what does not pass by itself
	Shared() *fault.Fault     // another machine has this member's key
}

// Options are what a Mesh gets from its owner. The discovery client, which the owner runs,
// is Members, Listed, Announcer and Services.
type Options struct {
	Log       *slog.Logger
	Reg       prometheus.Registerer
	Members   Members
	Listed    Listed
	Announcer Announcer
	Services  Services
	Linked    Linked // nil: its cluster is not linked with others
}

// Mesh is a node of the mesh. Its loop owns the state; everything else reads what the loop has
// published, or asks it.
type Mesh struct {
	cfg     Config
	o       Options
	log     *slog.Logger
	since   time.Time
	metrics *telemetry.Mesh
	attach  *attach.Attach
	names   *kernelNames

	state   atomic.Pointer[state]
	parts   atomic.Pointer[parts]    // what runs; nil before the mesh is up
	pods    atomic.Pointer[assigned] // what Kubernetes last reported about this machine's Node
	reloads reloadLog

	noStates strays // of IPsec

	look  chan struct{} // a look may find something new
	moved chan struct{} // this machine has other addresses or routes, or slept
	files chan struct{} // the policy has other files
	asks  chan request
	over  chan struct{} // closed when the loop has ended
}

// New reads who this node is. It changes nothing but the state directory.
func New(cfg Config, o Options) (*Mesh, error) {
	m := &Mesh{
		cfg: cfg, o: o, log: o.Log, since: time.Now(),
		look: make(chan struct{}, 1), moved: make(chan struct{}, 1), files: make(chan struct{}, 1),
		asks: make(chan request), over: make(chan struct{}),
	}
	if cfg.ID == "" {
		return nil, fault.New(fault.CodeInternal, "the node has no member id")
	}
	m.cfg.chosen = chooseEngine(cfg.Engine, ableInKernel)
	m.names = readNames(cfg.StateDir, m.log)
	m.cfg.Options.Owner = m.names.applied.Owner
	s, err := readState(&m.cfg, m.log)
	if err != nil {
		return nil, err
	}
	m.state.Store(&s)
	telemetry.NewPods(o.Reg, func(state string) float64 { return m.state.Load().pods.count(state) })
	m.ipsecErrors() // from now on they are counted
	m.metrics = telemetry.NewMesh(o.Reg, tunnel.DropReasons(), errorNames(m.cfg.engine()), m.readings())
	m.attach, err = attach.Open(attachConfig(cfg), attach.Options{
		Log: o.Log, Reg: o.Reg, ReadJoin: cfg.ReadJoin, Changed: func() { ring(m.look) },
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// readState reads what the state directory holds.
func readState(cfg *Config, log *slog.Logger) (s state, err error) {
	s = state{cfg: cfg, id: cfg.ID, set: cfg.Config, base: cfg.Announce, secrets: cfg.Keys}
	if s.key, err = readKey(cfg.StateDir); err != nil {
		return s, err
	}
	var broken error
	if s.pods, broken, err = readPods(cfg.StateDir, cfg.PodsOf); err != nil {
		return s, err
	}
	if broken != nil {
		log.Warn("the ranges of this node's pods are learned again", telemetry.AttrCode, fault.From(broken).Code,
			telemetry.AttrReason, broken)
	}
	s.before = readTrace(cfg.StateDir)
	if s.overlay, err = readOverlay(cfg.StateDir, s.id, s.clusters()); err != nil {
		log.Warn("the overlay addresses are chosen again", telemetry.AttrCode, fault.From(err).Code,
			telemetry.AttrReason, err)
	}
	if s.ranges.known, err = readKnownRanges(cfg.StateDir); err != nil {
		return s, err
	}
	s.ranges.onDisk = s.ranges.known
	return s, nil
}

func attachConfig(cfg Config) attach.Config {
	return attach.Config{
		StateDir: cfg.StateDir, Node: cfg.Announce.Node, Join: cfg.Join, Hubs: cfg.Hubs, Proxy: cfg.Proxy.Choose,
		Mark: cfg.Options.Marks.Own,
	}
}

// ring wakes the waiting loop; once is enough.
func ring(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run is the node until ctx ends. The discovery client must run already. What was made in the
// kernel is gone after it, unless the configuration keeps it.
func (m *Mesh) Run(ctx context.Context) (err error) {
	names := routing.Names(m.cfg.Options)
	k, err := kernel.New(names)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	if err := m.settle(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	p, err := m.make(ctx, k, names)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close(m.cfg.Keep)) }()
	m.parts.Store(p)
	if !p.carrier.Made() { // it works on without us: until the members are known nothing of it may go
		m.awaitMembers(ctx)
		m.o.Members.Merged()
	}
	g := run.NewGroup(ctx)
	g.Go("routing", p.routing.Run)
	p.run(g, m.attach, m.cfg.Options.Link)
	g.Go("state", func(ctx context.Context) error { return m.loop(ctx, p) })
	g.Go("policy", fileWatch{m.log, p.policy, p.routing.Governing, m.files, func() { m.ask(edited{}) }}.run)
	g.Do(func(ctx context.Context) {
		select {
		case <-p.routing.Up():
			m.ask(up{})
			if err := m.names.clear(names); err != nil {
				m.ask(kernelCleared{err})
			}
			o := m.state.Load().overlay
			m.log.Info("mesh is up", "link", m.cfg.Options.Link, "overlay6", o.Six, "overlay4", o.Four,
				"port", p.carrier.Port(), "engine", m.cfg.engine(), "because", m.cfg.chosen.why)
		case <-ctx.Done():
		}
	})
	return g.Wait()
}

// OwnNode takes what Kubernetes reports about this machine's Node, each time that it does, also if
// that is nothing new. Without a uid there is no such Node.
func (m *Mesh) OwnNode(uid string, ranges []string) {
	m.pods.Store(&assigned{UID: uid, Ranges: slices.Clone(ranges), Said: time.Now().Round(0)})
	ring(m.look)
}

// LinkedChanged has the node look at what is known of linked clusters.
func (m *Mesh) LinkedChanged() { ring(m.look) }

// Join gets the node's certificate where it has none yet, before anything is changed. Only a
// refusal for good is an error: everything else Run tries again.
func (m *Mesh) Join(ctx context.Context) error { return m.attach.Join(ctx) }
