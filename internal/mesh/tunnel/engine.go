// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"crypto/ecdh"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.zx2c4.com/wireguard/device"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
)

// Parts are what an Engine works with. The Socket stays its owner's.
type Parts struct {
	Socket *Socket
	Tun    Link  // closed with the engine
	Relay  Relay // may be nil
	Log    *slog.Logger
	// Wake is called with the first packet to or from a peer that was watched. It is called
	// by what carries packets: it must return at once, and call nothing of this package.
	Wake func(member.Key)
}

// Engine is WireGuard in this process. Its methods may be called by several
// goroutines.
type Engine struct {
	parts Parts
	log   *device.Logger
	peers *peers
	fork  *fork
	bind  atomic.Pointer[Bind] // of now: another device's packets it hands over

	mu      sync.Mutex
	now     *unit
	next    *unit               // of a new key pair, while there are two
	shifted map[member.Key]bool // peers to which next sends
}

// unit is a device: what has one key pair.
type unit struct {
	bind *Bind
	dev  *device.Device
	side *side
	key  Secret
	have map[member.Key]Peer
}

// Open starts an engine that has no key and no peers.
func Open(ctx context.Context, p Parts) (*Engine, error) {
	e := &Engine{
		parts: p, log: logger(context.WithoutCancel(ctx), p.Log), fork: newFork(ctx, p.Tun, &p.Socket.counts.Inject),
		peers: &peers{of: map[member.Key]*endpoint{}, wake: p.Wake},
	}
	u, err := e.unit()
	if err != nil {
		return nil, errors.Join(err, e.fork.close())
	}
	e.now = u
	e.bind.Store(u.bind)
	return e, nil
}

func (e *Engine) unit() (*unit, error) {
	u := &unit{bind: newBind(e.parts.Socket, e.peers, e.parts.Relay), side: e.fork.side(), have: map[member.Key]Peer{}}
	u.dev = device.NewDevice(u.side, u.bind, e.log)
	u.dev.DisableSomeRoamingForBrokenMobileSemantics() // for peers that are made with an endpoint
	if err := u.dev.Up(); err != nil {
		u.dev.Close()
		return nil, fmt.Errorf("WireGuard: %w", err)
	}
	return u, nil
}

// logger has wireguard-go write to ours. It shortens keys itself.
func logger(ctx context.Context, log *slog.Logger) *device.Logger {
	at := func(level slog.Level) func(string, ...any) {
		return func(format string, args ...any) {
			if log.Enabled(ctx, level) {
				log.Log(ctx, level, "wireguard", "text", fmt.Sprintf(format, args...))
			}
		}
	}
	return &device.Logger{Verbosef: at(slog.LevelDebug), Errorf: at(slog.LevelWarn)}
}

// Apply makes the peers those of cfg. Sessions of peers that stay go on. The key is
// that of the first Apply for good: for another one see Begin.
func (e *Engine) Apply(cfg Config) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.apply(e.now, cfg)
}

func (e *Engine) apply(u *unit, cfg Config) error {
	if cfg.Key.IsZero() {
		return fault.New(fault.CodeConfig, "WireGuard's key").Whyf("there is none")
	}
	public, err := cfg.Key.Public()
	if err != nil {
		return err
	}
	want, err := Checked(cfg, public)
	if err != nil {
		return err
	}
	if err := u.setKey(cfg.Key, public); err != nil {
		return err
	}
	for k, p := range want {
		e.peers.add(k).probes.Store(p.Probes)
	}
	if text := script(u.have, want); text != "" {
		if err := u.dev.IpcSet(text); err != nil {
			return fmt.Errorf("WireGuard's peers: %w", err)
		}
	}
	was := u.have
	u.have = want
	for k := range was {
		if _, ok := want[k]; ok {
			continue
		}
		e.parts.Socket.sessions.forget(u.bind, e.peers.get(k))
		if !e.has(k) {
			e.peers.remove(k)
		}
	}
	if e.next != nil {
		e.route()
	}
	return nil
}

// has reports whether any device has a peer.
func (e *Engine) has(k member.Key) bool {
	_, ok := e.now.have[k]
	if !ok && e.next != nil {
		_, ok = e.next.have[k]
	}
	return ok
}

func (u *unit) setKey(s Secret, public member.Key) error {
	if !u.key.IsZero() {
		if u.key.Equal(s) {
			return nil
		}
		return fault.New(fault.CodeInternal, "WireGuard's key").Whyf("a device keeps the one that it began with")
	}
	k := s.bytes()
	mac := macKey(public)
	u.bind.mac.Store(&mac)
	u.bind.public.Store(&public)
	private, err := ecdh.X25519().NewPrivateKey(k[:])
	if err != nil {
		return fmt.Errorf("private key: %w", err)
	}
	u.bind.crossing.private.Store(private)
	if err := u.dev.IpcSet("private_key=" + hex.EncodeToString(k[:]) + "\n"); err != nil {
		return fmt.Errorf("WireGuard's key: %w", err)
	}
	u.key = s
	return nil
}

// Checked refuses what WireGuard would take and not do.
func Checked(cfg Config, own member.Key) (map[member.Key]Peer, error) {
	want := make(map[member.Key]Peer, len(cfg.Peers))
	for _, p := range cfg.Peers {
		_, twice := want[p.Key]
		switch {
		case p.Key == own:
			return nil, fault.Newf(fault.CodeSelf, "peer %s", p.Key.Short()).Whyf("it has this node's key")
		case p.Key == member.Key{}:
			return nil, fault.New(fault.CodeConfig, "peer without a key")
		case twice:
			return nil, fault.Newf(fault.CodeConfig, "peer %s", p.Key.Short()).Whyf("it is named twice")
		case p.Keepalive < 0 || p.Keepalive/time.Second > 1<<16-1:
			return nil, fault.Newf(fault.CodeConfig, "peer %s", p.Key.Short()).Whyf("its keepalive of %v is none", p.Keepalive)
		}
		for _, r := range p.Ranges {
			if !r.IsValid() || r.Addr().Is4In6() || r.Addr().Zone() != "" {
				return nil, fault.Newf(fault.CodeConfig, "peer %s", p.Key.Short()).Whyf("%v is no range", r)
			}
		}
		p.Ranges = slices.Clone(p.Ranges)
		want[p.Key] = p
	}
	return want, nil
}

// SetWay has packets to a peer go by a way from now on, and leave from an address of this
// machine if local is one. It says false of a peer that is not configured.
func (e *Engine) SetWay(k member.Key, w path.Way, local netip.Addr) bool {
	end := e.peers.get(k)
	if end == nil {
		return false
	}
	if w.Addr.IsValid() {
		w.Addr = netip.AddrPortFrom(w.Addr.Addr().Unmap(), w.Addr.Port())
	}
	end.take(&way{Way: w, local: local})
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, u := range []*unit{e.now, e.next} {
		if u == nil {
			continue
		}
		if p, ok := u.have[k]; ok && !p.Probes { // it may have roamed
			text := fmt.Sprintf("public_key=%x\nupdate_only=true\nendpoint=%s%s\n", k[:], endpointPrefix, k.String())
			if err := u.dev.IpcSet(text); err != nil {
				return false
			}
		}
	}
	return true
}

// Watch has Wake called with the next packet to or from a peer.
func (e *Engine) Watch(k member.Key) {
	if end := e.peers.get(k); end != nil {
		end.watched.Store(true)
	}
}

// Receive takes a packet that came from a peer by a relay, and says false if it
// is not for WireGuard. It never waits.
func (e *Engine) Receive(peer member.Key, packet []byte) bool {
	return e.bind.Load().Receive(peer, packet)
}

// TryPSK has a peer use another preshared key from its next handshake on, which is
// begun now, unless the last one began less than 5 s ago. The session that there is
// carries on.
func (e *Engine) TryPSK(k member.Key, psk Secret) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	found := false
	for _, u := range []*unit{e.now, e.next} {
		if u == nil {
			continue
		}
		p, ok := u.have[k]
		if !ok || p.PSK.Equal(psk) {
			found = found || ok
			continue
		}
		found = true
		next := p
		next.PSK = psk
		if err := u.dev.IpcSet(script(map[member.Key]Peer{k: p}, map[member.Key]Peer{k: next})); err != nil {
			return fmt.Errorf("preshared key of %v: %w", k, err)
		}
		u.have[k] = next
	}
	if !found {
		return fault.Newf(fault.CodeNotFound, "peer %s", k.Short())
	}
	return e.handshake(k)
}

// Handshake begins one, unless the last one began less than 5 s ago.
func (e *Engine) Handshake(k member.Key) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.handshake(k)
}

func (e *Engine) handshake(k member.Key) error {
	var errs []error
	found := false
	for _, u := range []*unit{e.now, e.next} {
		if u == nil {
			continue
		}
		if p := u.dev.LookupPeer(device.NoisePublicKey(k)); p != nil {
			found = true
			errs = append(errs, p.SendHandshakeInitiation(false))
		}
	}
	if !found {
		return fault.Newf(fault.CodeNotFound, "peer %s", k.Short())
	}
	return errors.Join(errs...)
}

// Done is closed when the engine has ended: by Close, or because the TUN is gone.
func (e *Engine) Done() <-chan struct{} { return e.fork.dead }

// Close ends the engine and its TUN. The Socket stays.
func (e *Engine) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now.dev.Close()
	if e.next != nil {
		e.next.dev.Close()
	}
	return e.fork.close()
}

// Stat is what is known of a peer.
type Stat struct {
	Key       member.Key
	Handshake time.Time // the newest, by the wall clock; zero: none yet
	Shakes    uint64    // how often it was seen to be another one: this clock cannot jump
	// Age is that of the newest one when it was first seen, if it was made before this
	// process began: with the kernel's WireGuard only.
	Age      time.Duration
	Sent     uint64 // bytes on the socket or the relay
	Received uint64
	Heard    netip.AddrPort // where WireGuard roamed to; of peers without probes only
	Activity
}

// Activity is what is known of one peer without asking WireGuard.
func (e *Engine) Activity(k member.Key) (Activity, bool) {
	end := e.peers.get(k)
	if end == nil {
		return Activity{}, false
	}
	return end.activity(), true
}

// Stats are those of all peers, by key.
func (e *Engine) Stats() ([]Stat, error) {
	e.mu.Lock()
	u := e.now
	e.mu.Unlock()
	out, err := u.stats()
	for i := range out {
		if end := e.peers.get(out[i].Key); end != nil {
			out[i].Shakes = end.shook(out[i].Handshake)
			out[i].Activity = end.activity()
		}
	}
	return out, err
}

func (u *unit) stats() ([]Stat, error) {
	text, err := u.dev.IpcGet() // it has the keys too: it must not be printed
	if err != nil {
		return nil, fmt.Errorf("state of WireGuard: %w", err)
	}
	return stats(text), nil
}

// stats reads wireguard-go's own text.
func stats(text string) (out []Stat) {
	var s *Stat
	var seconds int64
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if name == "public_key" {
			k, err := hex.DecodeString(value)
			if err != nil || len(k) != len(member.Key{}) {
				return out
			}
			out = append(out, Stat{Key: member.Key(k)})
			s = &out[len(out)-1]
			continue
		}
		if s == nil {
			continue
		}
		n, _ := strconv.ParseInt(value, 10, 64) // of those that are numbers
		switch name {
		case "last_handshake_time_sec":
			seconds = n
		case "last_handshake_time_nsec":
			if seconds != 0 || n != 0 {
				s.Handshake = time.Unix(seconds, n)
			}
		case "tx_bytes":
			s.Sent = uint64(n)
		case "rx_bytes":
			s.Received = uint64(n)
		case "endpoint":
			if at, err := netip.ParseAddrPort(value); err == nil {
				s.Heard = at
			}
		}
	}
	slices.SortFunc(out, func(a, b Stat) int { return strings.Compare(string(a.Key[:]), string(b.Key[:])) })
	return out
}
