// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/internal/mesh/attach"
	"github.com/tombolo-io/tombolo/internal/mesh/endpoint"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel"
	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
	"github.com/tombolo-io/tombolo/internal/mesh/peering"
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
	Announce   seal.Member               // what the configuration states of this node
	PodsOf     string                    // the Node in Kubernetes whose ranges of pods are announced; empty: none are
	// STUN are servers beside those of hubs and of the configuration: the discovery services.
	Services []endpoint.Server
	// Needs are further services that the machine needs outside of the mesh: API servers.
	Needs    []topology.Service
	ReadJoin func(string) (string, error)
}

// Finder is who knows the members: *finder.Finder, which somebody else runs.
type Finder interface {
	Announce(seal.Member) error
	Prove(seal.WireGuardPrivate)
	Result() (roster.Result, <-chan struct{})
	Merged() roster.Result
	AwaitSettled(ctx context.Context, most time.Duration) []string
	ID() (seal.MemberID, bool)
	Attending() []string // the names of the services that tell of members now
	Under(member string) []seal.ClusterID
	Shared() *fault.Fault // another machine has this member's key
	Warnings() []string   // of sources, of what does not pass by itself
	Lease() time.Duration
	Observed() []netip.Addr // where services see this node
	// Unopened is how many entries of this cluster a service tells of that no secret opens.
	Unopened() map[string]int
}

// Options are what a Mesh gets from its owner.
type Options struct {
	Log    *slog.Logger
	Reg    prometheus.Registerer
	Finder Finder
}

// Mesh is a node of the mesh.
type Mesh struct {
	cfg    Config
	log    *slog.Logger
	reg    prometheus.Registerer
	finder Finder
	since  time.Time
	id     string // member id
	before trace  // of an earlier run

	metrics *telemetry.Mesh
	applied routing.Applied // names in the kernel; of New, Preflight and Run alone, one after the other

	pods    *pods
	attach  *attach.Attach
	peering *peering.Peering
	parts   atomicParts                               // what there is once Run has made it
	keyring atomic.Pointer[iter.Seq2[int, seal.Keys]] // of the secrets; a reload makes them others

	say  chan struct{} // what this node says of itself may be another
	look chan struct{} // members, health or this machine's networks may be others

	reading  sync.Mutex    // held by who reads the policy and puts it into force
	files    chan struct{} // the policy has other files
	rotating sync.Mutex    // held by who begins a rotation
	learning sync.Mutex    // held by who changes ranges; taken before mu
	giving   sync.Mutex    // held by who gives peering its peers: what is newer is given later; taken before mu

	mu        sync.Mutex
	key       key
	overlay   overlay
	set       meshconf.Config // that are in force
	links     []netip.Prefix
	local     topology.Local // of this machine, as it was looked at last
	stated    []roster.Statement
	ranges    rangeMemory
	unwritten error // why the secrets beside the addresses are not
	peers     topology.Peers
	known     bool            // peers are: somebody has planned
	outside   []seal.Endpoint // where others see this node, without STUN
	members   map[string]*roster.Member
	disputed  []roster.Conflict
	own       topology.Member // as it was planned with last
	lazy      bool
	governed  *string        // the cluster for which the policy was read last
	uncleared error          // why names of before are in the kernel still
	refused   error          // why peers are left out
	silent    error          // why what is announced is not
	reloads   reloads        // of the configuration
	doubts    []*fault.Fault // that this is the cluster of the others
}

// New reads who this node is. It changes nothing but the state directory.
func New(cfg Config, o Options) (*Mesh, error) {
	m := &Mesh{
		cfg: cfg, log: o.Log, reg: o.Reg, finder: o.Finder, since: time.Now(), set: cfg.Config,
		say: make(chan struct{}, 1), look: make(chan struct{}, 1), files: make(chan struct{}, 1),
	}
	id, ok := o.Finder.ID()
	if !ok {
		return nil, fault.New(fault.CodeInternal, "the node has no member id")
	}
	m.id = id.String()
	m.keyring.Store(&cfg.Keys)
	m.cfg.Keys = func(yield func(int, seal.Keys) bool) { (*m.keyring.Load())(yield) }
	var err error
	if m.key, err = readKey(cfg.StateDir); err != nil {
		return nil, err
	}
	var broken error
	if m.pods, broken, err = readPods(cfg.StateDir, cfg.PodsOf); err != nil {
		return nil, err
	}
	if broken != nil {
		m.log.Warn("the ranges of this node's pods are learned anew", telemetry.AttrCode, fault.From(broken).Code, telemetry.AttrReason, broken)
	}
	telemetry.NewPods(o.Reg, m.pods.count)
	m.metrics = telemetry.NewMesh(o.Reg, tunnel.DropReasons(), m.readings())
	m.before = readTrace(cfg.StateDir)
	if m.overlay, err = readOverlay(cfg.StateDir, m.id, m.clusters()); err != nil {
		m.log.Warn("the overlay addresses are chosen anew", telemetry.AttrCode, fault.From(err).Code, telemetry.AttrReason, err)
	}
	if m.ranges.known, err = readKnownRanges(cfg.StateDir); err != nil {
		return nil, err
	}
	m.ranges.onDisk = m.ranges.known
	if m.applied, err = routing.ReadApplied(cfg.StateDir); err != nil {
		m.log.Warn("what an earlier start may have left in the kernel under other names is not known", telemetry.AttrCode, fault.From(err).Code, telemetry.AttrReason, err)
	}
	m.cfg.Options.Owner = m.applied.Owner
	private, err := m.key.private()
	if err != nil {
		return nil, err
	}
	m.peering, err = peering.New(peering.Parts{
		Private: private, Endpoints: m.called, Changed: m.stir, Lost: m.lost, Log: o.Log, Metrics: o.Reg,
	})
	if err != nil {
		return nil, err
	}
	m.attach, err = attach.Open(attachConfig(cfg), attach.Options{
		Log: o.Log, Reg: o.Reg, ReadJoin: cfg.ReadJoin, Receive: m.peering.Relayed, Absent: m.peering.Absent,
		Changed: func() { ring(m.say); ring(m.look) },
	})
	if err != nil {
		return nil, err
	}
	m.peering.UseRelay(m.attach)
	return m, nil
}

func attachConfig(cfg Config) attach.Config {
	return attach.Config{
		StateDir: cfg.StateDir, Node: cfg.Announce.Node, Join: cfg.Join, Hubs: cfg.Hubs, Proxy: cfg.Proxy.Choose, Mark: cfg.Options.Marks.Own,
	}
}

func (m *Mesh) clusters() []string {
	var out []string
	for _, k := range m.cfg.Keys {
		out = append(out, k.Cluster().String())
	}
	return out
}

func (m *Mesh) stir() { ring(m.look) }

// lost is told that a direct way went.
func (m *Mesh) lost() {
	if p := m.parts.Load(); p != nil {
		p.endpoints.Suspect()
	}
}

// ring tells who waits; once is enough.
func ring(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run is the node until ctx ends. The finder must run already. What was made in the
// kernel is gone after it, unless the configuration keeps it.
func (m *Mesh) Run(ctx context.Context) (err error) {
	names := routing.Names(m.cfg.Options)
	k, err := kernel.New(names)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	if err := m.choose(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	p, err := m.make(ctx, k, names)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.carrier.Close(m.cfg.Keep)) }()
	m.parts.Store(p)
	g := run.NewGroup(ctx)
	g.Go("routing", p.routing.Run)
	g.Go("socket", p.carrier.Run)
	g.Go("paths", m.peering.Run)
	g.Go("endpoints", p.endpoints.Run)
	g.Go("hubs", m.attach.Run)
	g.Go("members", m.followMembers)
	g.Go("announcement", m.followSelf)
	g.Go("policy", m.followPolicies)
	g.Go("link", func(ctx context.Context) error {
		select {
		case <-p.carrier.Done():
			return fault.New(fault.CodeClash, "the link "+m.cfg.Options.Link+" was taken away").Hint("whoever removes it must leave it; the mesh makes it anew when it starts again")
		case <-ctx.Done():
			return nil
		}
	})
	g.Do(func(ctx context.Context) {
		select {
		case <-p.routing.Up():
			m.had(m.announcing(m.saying()).Ranges)
			m.clear(names)
			m.log.Info("mesh is up", "link", m.cfg.Options.Link, "overlay6", m.overlayNow().Six, "overlay4", m.overlayNow().Four, "port", p.carrier.Port(), "engine", m.cfg.Engine)
		case <-ctx.Done():
		}
	})
	return g.Wait()
}

// Preflight says why the node cannot run here, before anybody hears of it and before
// anything is changed: what the kernel lacks, or somebody else uses.
func (m *Mesh) Preflight() (err error) {
	names := routing.Names(m.cfg.Options)
	k, err := kernel.New(names)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	r, err := routing.New(routing.Parts{
		Kernel: k, Able: m.able, Options: m.cfg.Options, Log: m.log,
		Local: m.around,
	})
	if err != nil {
		return err
	}
	if err := r.Reload(m.cfg.Policies, m.attach.Cluster()); err != nil {
		return err
	}
	in := m.input(roster.Result{})
	o := m.overlayNow().choose(m.choice(roster.Result{}), time.Now())
	in.Options.Overlay6, in.Self.Overlay6, in.Self.Overlay4 = o.Prefix, o.Six, o.Four
	_, err = m.prepared(k, names, func() error { return r.Prepare(in) })
	return err
}

// choose makes sure that there are overlay addresses, in the cluster of the others. Who has
// none yet, or was of another cluster, looks first who is there, for a moment.
func (m *Mesh) choose(ctx context.Context) error {
	o := m.overlayNow()
	var waiting []string
	if !m.wasHere() || !o.Six.IsValid() || m.cfg.Options.Overlay4.IsValid() && !o.Four.IsValid() {
		if waiting = m.finder.AwaitSettled(ctx, limit.MeshSettle); len(waiting) > 0 {
			m.log.Warn("the node starts before all members are known", "sources", waiting)
		}
	}
	m.finder.Merged() // what was told while we waited is not gathered any longer
	result, more := m.finder.Result()
	for result.Self.ID == "" { // not even the cache has been read: what a killed run left fails closed would open
		select {
		case <-more:
		case <-ctx.Done():
			return nil
		}
		result, more = m.finder.Result()
	}
	if err := m.assure(result, waiting); err != nil {
		return err
	}
	_, err := m.reconsider(result)
	return err
}

// reconsider chooses overlay addresses by what is known of the others, and reports
// whether they are others than before.
func (m *Mesh) reconsider(result roster.Result) (changed bool, err error) {
	o := m.overlayNow()
	next := o.choose(m.choice(result), time.Now())
	moved := !next.sameAddresses(o)
	m.mu.Lock()
	unwritten := m.unwritten
	m.mu.Unlock()
	if !moved && unwritten == nil && slices.Equal(next.Clusters, o.Clusters) {
		return false, nil
	}
	err = next.write(m.cfg.StateDir)
	if err != nil && moved {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil && unwritten == nil { // the addresses are on disk: a full one keeps no node from starting with them
		m.log.Warn("the secrets of this node are not kept beside its overlay addresses", telemetry.AttrReason, err)
	}
	m.overlay, m.unwritten = next, err
	return moved, nil
}

func (m *Mesh) choice(r roster.Result) choice {
	m.mu.Lock()
	base := m.cfg.Announce
	m.mu.Unlock()
	return choice{
		clusters: m.clusters(), named: namedPrefix(m.cfg.ClusterID), derived: member.Overlay6(m.derivedName()),
		pool: m.cfg.Options.Overlay4, six: base.Overlay6, four: base.Overlay4, others: r.Members,
	}
}

func namedPrefix(id string) netip.Prefix {
	if id == "" {
		return netip.Prefix{}
	}
	return member.Overlay6(id)
}

// derivedName is the name of a cluster that has none: its oldest secret's id.
func (m *Mesh) derivedName() string {
	all := m.clusters()
	return all[len(all)-1]
}

func (m *Mesh) overlayNow() overlay {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.overlay
}
