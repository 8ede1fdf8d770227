// SPDX-License-Identifier: Apache-2.0

package ipsectunnel

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/mesh/disco"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/ipsec"
	"github.com/tombolo-io/tombolo/internal/mesh/keyexchange"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// Kernel are the policies and states of the link: an *ipsec.Device. It is used by one goroutine at a time.
type Kernel interface {
	Apply([]ipsec.Peer) error
	Differs([]ipsec.Peer) (int, error) // how many policies Apply would change
	Add(ipsec.State) error
	Remove(ipsec.Name) error
	States() ([]ipsec.Seen, error)
}

// Link is the link itself: the same *ipsec.Device.
type Link interface {
	There() bool
	Close(keep bool) error // with its policies and states
}

// Conn is a connection of TLS 1.3 between two nodes, after its handshake: a *keyconn.Conn.
type Conn interface {
	keyexchange.Conn
	// Ends are the other end as this node sees it, which behind a NAT is the NAT's, and this machine's address.
	Ends() (to netip.AddrPort, local netip.Addr)
	Close() error
}

// Transport opens connections, and accepts those of peers. They end with their context, and are bounded in number and
// time by themselves: a *keyconn.Port.
type Transport interface {
	Dial(ctx context.Context, to netip.AddrPort, local netip.Addr, client *tls.Config) (Conn, error)
	// Run has each connection of a peer handled in a goroutine of its own, until ctx ends.
	Run(ctx context.Context, handle func(context.Context, Conn)) error
}

// Raw is where it is tried whether packets of protocol 50 pass: a *rawesp.Socket.
type Raw interface {
	Send(to, local netip.Addr, data []byte) error
	// Run hands over what comes, one at a time, until ctx ends.
	Run(ctx context.Context, take func(from, local netip.Addr, data []byte)) error
}

// Parts are what an Engine works with.
type Parts struct {
	Kernel    Kernel
	Link      Link
	Transport Transport
	Raw       Raw    // nil: ESP is in UDP always
	NoRaw     string // why that is so
	ChaCha    bool   // it asks for ChaCha20-Poly1305
	// Numbers is a secret of this node that stays when its keys change: the numbers of peers are made from it.
	Numbers [32]byte
	Port    uint16 // of ESP in UDP on this machine
	Limits  Limits // Default
	// Local is the address of this machine from which packets to another one leave.
	Local func(to netip.Addr) (netip.Addr, error)
	// Wake is called when a peer that was watched has traffic. It must return at once, and call nothing of this package.
	Wake func(member.Key) // may be nil
	Log  *slog.Logger     // may be nil
}

// Engine keeps the tunnels to all peers. Its methods may be called by several goroutines.
type Engine struct {
	parts Parts
	log   *slog.Logger
	alarm *run.Alarm
	gone  chan struct{}

	mu      sync.Mutex
	own     member.Key
	signer  tunnel.Signer
	id      keyexchange.Identity // of the signer
	peers   map[member.Key]*peer
	pins    map[member.Pin]int // how many peers state one
	ids     map[uint32]*peer
	hints   map[disco.Hint]*peer // of trials
	spis    map[uint32]bool      // by which this node receives
	work    *run.Group           // exchanges; nil: it does not run
	begun   int                  // how many of them are under way that this node has begun
	closed  bool
	adopted bool      // what an earlier run has left is known
	use     [2]uint64 // packets that were sent and received in all
	heard50 uint64    // packets of protocol 50 that try it, of anybody
	stale   bool      // the kernel refused policies
	lost    bool      // the link is gone
	missed  time.Time // since when there is no link; zero: there is one
	read    time.Time // when the kernel's policies were compared last
}

// peer is another node.
type peer struct {
	peerFacts
	situation
	life    uint32 // a number of this peer object, never 0
	lives   lives  // of this node at the peer
	epoch   uint64 // of the last exchange that this node has begun
	trial   trial
	pair    *disco.Pair  // of trials; nil: there are none
	replied [2]time.Time // when one of the peer was answered, from elsewhere and on the line
	id      uint32       // of its policies and states
	sends   Line         // of its policy; zero: nothing leaves
	seen    seen
	cancel  context.CancelFunc // of the exchange that this node has begun
	fault   error              // why the last one failed
	due     string             // why an exchange is to be begun; empty: none is
	warned  time.Time          // somebody was told of failures to replace the keys that were agreed then
	answers int                // exchanges under way that the peer has begun
	gone    bool

	left     []ipsec.Seen // states of an earlier run, whose keys are only in the kernel
	leftLine Line         // by which that has sent
	leftEnds time.Time    // when they go; zero: nothing has taken their place
}

// peerFacts are what is given.
type peerFacts struct {
	key    member.Key
	pin    member.Pin
	ranges []netip.Prefix
}

// New makes an engine of a link. What an earlier run has left there works on until new keys are agreed.
func New(p Parts) (*Engine, error) {
	if p.Kernel == nil || p.Link == nil || p.Transport == nil || p.Local == nil || p.Port == 0 {
		return nil, fault.New(fault.CodeInternal, "IPsec between nodes").Whyf("there is no link, no socket or no port")
	}
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	if p.Limits == (Limits{}) {
		p.Limits = Default
	}
	e := &Engine{parts: p, log: p.Log, gone: make(chan struct{}),
		peers: map[member.Key]*peer{}, pins: map[member.Pin]int{}, ids: map[uint32]*peer{},
		spis: map[uint32]bool{}, hints: map[disco.Hint]*peer{}}
	e.alarm = run.NewAlarm(e.tick)
	return e, nil
}

// newLife draws the number by which a peer sees that this node knows nothing of what was before: of an earlier run, or
// from before the peer was removed and added again.
func newLife() uint32 {
	var life [4]byte
	rand.Read(life[:]) // it has no errors (crypto/rand)
	return max(1, binary.BigEndian.Uint32(life[:]))
}

// lives are the numbers that a peer has drawn for this node, one after the other.
type lives struct {
	now   uint32
	ended []uint32 // the newest last
}

// take reports whether an exchange is of the present life, or of a new one, which then is the present one. One of an
// earlier life has been overtaken: the peer knows nothing of it any more.
func (l *lives) take(life uint32) bool {
	switch {
	case life == l.now:
		return true
	case slices.Contains(l.ended, life):
		return false
	case l.now != 0:
		l.ended = append(l.ended[max(0, len(l.ended)-mostLives+1):], l.now)
	}
	l.now = life
	return true
}

// Server is how peers connect to this node.
func (e *Engine) Server() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return e.identity().Server(e.knows), nil
	}}
}

func (e *Engine) identity() keyexchange.Identity {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.id
}

// knows reports whether a pin is that of a peer: nobody else is spoken to.
func (e *Engine) knows(pin member.Pin) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pins[pin] > 0
}

// Run keeps the tunnels until ctx ends.
func (e *Engine) Run(ctx context.Context) error {
	g := run.NewGroup(ctx)
	e.mu.Lock()
	e.work = g
	e.mu.Unlock()
	e.alarm.Start()
	g.Go("exchanges of peers", func(ctx context.Context) error { return e.parts.Transport.Run(ctx, e.answer) })
	g.Do(e.watch)
	if e.parts.Raw != nil {
		g.Go("trials of protocol 50", func(ctx context.Context) error { return e.parts.Raw.Run(ctx, e.hear) })
		g.Go("trials of protocol 50", func(ctx context.Context) error { return run.Every(ctx, trialEvery, e.ask) })
	}
	<-g.Context().Done()
	e.alarm.Stop() // it begins no exchange any more
	err := g.Wait()
	e.mu.Lock()
	e.work = nil
	e.mu.Unlock()
	return err
}

// Done is closed when the link is gone.
func (e *Engine) Done() <-chan struct{} { return e.gone }

// Close ends the work with the link. What is to be kept works on without new keys until the hard limits.
func (e *Engine) Close(keep bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	return e.parts.Link.Close(keep)
}
