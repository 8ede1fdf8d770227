// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/binary"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// Socket sends probes: a *tunnel.Socket.
type Socket interface {
	Send(to netip.AddrPort, local netip.Addr, packet []byte) error
	SendWhole(to netip.AddrPort, local netip.Addr, packet []byte) error
}

// Engine is WireGuard as peering controls it: a *tunnel.Engine.
type Engine interface {
	Apply(tunnel.Config) error
	SetPath(k member.Key, w path.Path, local netip.Addr) bool
	TryPSK(k member.Key, psk tunnel.Secret) error
	Handshake(member.Key) error
}

// Traffic is what WireGuard carries, and shows of it: the same *tunnel.Engine.
type Traffic interface {
	Receive(peer member.Key, packet []byte) bool // from a relay
	Watch(member.Key)                            // the next packet wakes the Datapath
	Activity(member.Key) (tunnel.Activity, bool)
	Stats() ([]tunnel.Stat, error)
}

// Parts are what a Peering works with.
type Parts struct {
	Private  *ecdh.PrivateKey // X25519
	Signer   tunnel.Signer    // of the certificate; WireGuard does without
	Encrypts member.Engine    // what kind Engine is
	Socket   Socket
	Engine   Engine
	Traffic  Traffic
	Datapath *Datapath // of the engine
	// Endpoints are those of this node, for calls. It may be nil, and must not call this package.
	Endpoints func() []netip.AddrPort
	// Changed is called, from a goroutine of its own and never twice at a time, when a peer went
	// up or down or its MTU changed. It may be nil.
	Changed func()
	// Lost is called likewise when a direct path was lost, and none took its place: what the world
	// sees of this node may be another endpoint. It may be nil.
	Lost    func()
	Log     *slog.Logger
	Metrics prometheus.Registerer // may be nil
	// Beside has the peers of another engine of this node, for which both share their metrics. It may be nil, and does
	// not run yet.
	Beside *Peering
}

// Peering is the owner of all paths. Its methods may be called by several goroutines.
type Peering struct {
	parts Parts
	log   *slog.Logger
	m     *telemetry.Peering
	alarm *run.Alarm
	news  *run.Alarm
	*Datapath
	bytes  traffic
	health atomic.Bool             // of which Changed is
	lost   atomic.Bool             // of which Lost is
	alone  atomic.Bool             // what this node says of itself
	beside atomic.Pointer[Peering] // whose readings are told with those of this one

	turn sync.Mutex // held by who changes the engine; taken before mu

	mu        sync.Mutex
	own       *own // changed under turn too
	peers     map[string]*peer
	refused   []Report
	elsewhere []Peer // of Set; changed under turn
	due       dueHeap
	touched   []*peer
	asked     time.Time // of Engine.Stats
	askAt     time.Time // when it is asked next
	stale     bool      // the engine refused what it was to be
	together  time.Time // when peers were last asked together
}

// own are the keys of this node.
type own struct {
	private *ecdh.PrivateKey
	signer  tunnel.Signer
	key     member.Key
}

func newOwn(private *ecdh.PrivateKey, signer tunnel.Signer) *own {
	return &own{private, signer, member.Key(private.PublicKey().Bytes())}
}

func (o *own) secret() tunnel.Secret { return tunnel.NewSecret([32]byte(o.private.Bytes())) }

// traffic counts bytes of WireGuard.
type traffic struct {
	sent, received  atomic.Uint64 // by any path
	relayedReceived atomic.Uint64
}

// New makes a Peering without peers.
func New(parts Parts) (*Peering, error) {
	if parts.Private == nil || parts.Private.Curve() != ecdh.X25519() {
		return nil, fault.New(fault.CodeConfig, "WireGuard's key").Whyf("it is no key of X25519")
	}
	if parts.Socket == nil || parts.Engine == nil || parts.Traffic == nil || parts.Datapath == nil {
		return nil, fault.New(fault.CodeInternal, "paths of the mesh").Whyf("there is no socket or no engine")
	}
	if parts.Log == nil {
		parts.Log = slog.New(slog.DiscardHandler)
	}
	if parts.Metrics == nil {
		parts.Metrics = prometheus.NewRegistry()
	}
	p := &Peering{
		parts: parts, log: parts.Log, Datapath: parts.Datapath,
		own: newOwn(parts.Private, parts.Signer), peers: map[string]*peer{},
	}
	p.alarm, p.news = run.NewAlarm(p.tick), run.NewAlarm(p.tellNews)
	if first := parts.Beside; first != nil {
		p.m = first.m
		first.beside.Store(p)
	} else {
		p.m = telemetry.NewPeering(parts.Metrics, p.readings())
	}
	return p, nil
}

// Run keeps the paths until ctx ends.
func (p *Peering) Run(ctx context.Context) error {
	p.news.Start()
	p.alarm.Start()
	for {
		select {
		case <-p.bell:
			p.alarm.Ring()
			continue
		case <-ctx.Done():
		}
		p.alarm.Stop()
		p.news.Stop()
		return nil
	}
}

// tellNews calls who wants to know.
func (p *Peering) tellNews() time.Duration {
	if p.lost.Swap(false) && p.parts.Lost != nil {
		p.parts.Lost()
	}
	if p.health.Swap(false) && p.parts.Changed != nil {
		p.parts.Changed()
	}
	return -1
}

// Moved says that this machine has other addresses, or slept: every path must prove itself.
func (p *Peering) Moved() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, x := range p.peers {
		x.path.Moved(now)
		x.locals = map[path.Path]*local{}
		p.touch(x)
	}
}

// Alone has peers know whether this node, a gateway of its cluster, reaches no other node of it: those with a path get
// a ping at once, if that is new.
func (p *Peering) Alone(is bool) {
	if p.alone.Swap(is) == is {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, x := range p.peers {
		x.path.Ask(now)
		p.touch(x)
	}
}

// Want wakes a lazy peer, as a packet to it would. It says false of a peer that is not there.
func (p *Peering) Want(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.peers[id]
	if x == nil {
		return false
	}
	now := time.Now()
	x.path.Traffic(now)
	x.wanted = now
	p.touch(x)
	return true
}

// Absent says that a hub does not know a peer.
func (p *Peering) Absent(hub, name string) {
	x, ok := p.seen.Load().by[name]
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	x.path.Absent(time.Now(), hub)
	p.touch(x.peer)
}

// touch has a peer looked at soon. The caller holds mu.
func (p *Peering) touch(x *peer) {
	if x.gone {
		return
	}
	if !x.touched {
		x.touched = true
		p.touched = append(p.touched, x)
	}
	p.alarm.Ring()
}

// number is one that nobody can guess.
func number() uint64 {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic("peering: " + err.Error()) // it never fails: crypto/rand ends the process first
	}
	return binary.BigEndian.Uint64(b[:])
}
