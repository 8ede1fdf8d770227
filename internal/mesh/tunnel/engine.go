// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
)

// Parts are what an Engine works with. The Socket stays its owner's.
type Parts struct {
	Socket *Socket
	Tun    tun.Device // closed with the engine
	Relay  Relay      // may be nil
	Log    *slog.Logger
	// Wake is called with the first packet to or from a peer that was watched. It is called
	// by what carries packets: it must return at once, and call nothing of this package.
	Wake func(member.Key)
}

// Engine is WireGuard in this process. Its methods may be called by several
// goroutines.
type Engine struct {
	socket *Socket
	peers  *peers
	bind   *Bind
	dev    *device.Device

	mu   sync.Mutex
	key  Secret
	have map[member.Key]Peer
}

// Open starts an engine that has no key and no peers.
func Open(ctx context.Context, p Parts) (*Engine, error) {
	e := &Engine{socket: p.Socket, peers: &peers{of: map[member.Key]*endpoint{}, wake: p.Wake},
		have: map[member.Key]Peer{}}
	e.bind = newBind(p.Socket, e.peers, p.Relay)
	e.dev = device.NewDevice(p.Tun, e.bind, logger(context.WithoutCancel(ctx), p.Log))
	e.dev.DisableSomeRoamingForBrokenMobileSemantics() // for peers that are made with an endpoint
	if err := e.dev.Up(); err != nil {
		e.dev.Close()
		return nil, fmt.Errorf("WireGuard: %w", err)
	}
	return e, nil
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

// Apply makes the key and the peers those of cfg. Sessions of peers that stay go on, but with
// another key: then each peer has to make a new one.
func (e *Engine) Apply(cfg Config) error {
	e.mu.Lock()
	defer e.mu.Unlock()
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
	if err := e.setKey(cfg.Key, public); err != nil {
		return err
	}
	for k := range want {
		e.peers.add(k)
	}
	if text := script(e.have, want); text != "" {
		if err := e.dev.IpcSet(text); err != nil {
			return fmt.Errorf("WireGuard's peers: %w", err)
		}
	}
	was := e.have
	e.have = want
	for k := range was {
		if _, ok := want[k]; !ok {
			e.socket.sessions.forget(e.peers.remove(k))
		}
	}
	return nil
}

// setKey gives the device its key. With another one it sends nothing by the old sessions any more.
func (e *Engine) setKey(s Secret, public member.Key) error {
	if e.key.Equal(s) && !e.key.IsZero() {
		return nil
	}
	k := s.bytes()
	if err := e.dev.IpcSet("private_key=" + hex.EncodeToString(k[:]) + "\n"); err != nil {
		return fmt.Errorf("WireGuard's key: %w", err)
	}
	e.socket.sessions.setKey(public)
	e.key = s
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

// SetPath has packets to a peer go by a path from now on, and leave from an address of this
// machine if local is one. It says false of a peer that is not configured.
func (e *Engine) SetPath(k member.Key, w path.Path, local netip.Addr) bool {
	end := e.peers.get(k)
	if end == nil {
		return false
	}
	if w.Addr.IsValid() {
		w.Addr = netip.AddrPortFrom(w.Addr.Addr().Unmap(), w.Addr.Port())
	}
	end.take(&via{Path: w, local: local})
	e.mu.Lock()
	defer e.mu.Unlock()
	if p, ok := e.have[k]; ok && !p.Probes { // it may have roamed
		text := fmt.Sprintf("public_key=%x\nupdate_only=true\nendpoint=%s%s\n", k[:], endpointPrefix, k.String())
		return e.dev.IpcSet(text) == nil
	}
	return true
}

// Watch has Wake called with the next packet to or from a peer.
func (e *Engine) Watch(k member.Key) {
	if end := e.peers.get(k); end != nil {
		end.watched.Store(true)
	}
}

// Receive takes a packet that came from a peer through a relay, and says false if it
// is not for WireGuard. It never waits.
func (e *Engine) Receive(peer member.Key, packet []byte) bool {
	return e.bind.Receive(peer, packet)
}

// TryPSK has a peer use another preshared key from its next handshake on. The session that there
// is carries on.
func (e *Engine) TryPSK(k member.Key, psk Secret) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	p, ok := e.have[k]
	if !ok {
		return fault.Newf(fault.CodeNotFound, "peer %s", k.Short())
	}
	next := p
	next.PSK = psk
	if text := script(map[member.Key]Peer{k: p}, map[member.Key]Peer{k: next}); text != "" {
		if err := e.dev.IpcSet(text); err != nil {
			return fmt.Errorf("preshared key of %v: %w", k, err)
		}
	}
	e.have[k] = next
	return e.handshake(k)
}

// Handshake begins one, unless the last one began less than 5 s ago.
func (e *Engine) Handshake(k member.Key) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.handshake(k)
}

func (e *Engine) handshake(k member.Key) error {
	p := e.dev.LookupPeer(device.NoisePublicKey(k))
	if p == nil {
		return fault.Newf(fault.CodeNotFound, "peer %s", k.Short())
	}
	return p.SendHandshakeInitiation(false)
}

// Done is closed when the engine has ended: by Close, or because the TUN is gone.
func (e *Engine) Done() <-chan struct{} { return e.dev.Wait() }

// Close ends the engine and its TUN. The Socket stays.
func (e *Engine) Close() error {
	e.dev.Close()
	return nil
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
	text, err := e.dev.IpcGet() // it has the keys too: it must not be printed
	if err != nil {
		return nil, fmt.Errorf("state of WireGuard: %w", err)
	}
	out := stats(text)
	for i := range out {
		if end := e.peers.get(out[i].Key); end != nil {
			out[i].Shakes = end.shook(out[i].Handshake)
			out[i].Activity = end.activity()
		}
	}
	return out, nil
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
