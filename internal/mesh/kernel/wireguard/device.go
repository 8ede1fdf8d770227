// SPDX-License-Identifier: Apache-2.0

package wireguard

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// Control reads and changes a link of WireGuard: *wgctrl.Client.
type Control interface {
	Device(name string) (*wgtypes.Device, error)
	ConfigureDevice(name string, cfg wgtypes.Config) error
	Close() error
}

// Kind says whose a link is.
type Kind int

// The kinds.
const (
	None    Kind = iota // there is no such link
	Ours                // of WireGuard, made by the mesh
	Foreign             // anything else
)

// Links makes and removes links: System.
type Links interface {
	Kind(name string) (Kind, error)
	Make(name string, mtu int) error
	Remove(name string) error
	// Free says why a port cannot be had; of 0 it finds one that can.
	Free(port uint16) (uint16, error)
}

// Parts are what a Device works with.
type Parts struct {
	Control Control // closed with the device
	Links   Links
	Log     *slog.Logger // may be nil
	// Wake is called when a peer that was watched has traffic. It must return at once, and
	// call nothing of this package. It may be nil.
	Wake func(member.Key)
}

// Settings are those of the link.
type Settings struct {
	Link string
	MTU  int
	Port uint16 // 0: the one that the link has, or any that is free
	Mark uint32 // of WireGuard's packets
}

// Device is a link of the kernel's WireGuard, as an engine of the mesh. Its methods may be
// called by several goroutines.
type Device struct {
	parts Parts
	name  string
	port  uint16
	made  bool // by this process
	gone  chan struct{}

	mu     sync.Mutex
	peers  map[member.Key]*seen
	looked time.Time
	missed time.Time // since when there is no link of the name; zero: there is one
	lost   bool
	closed bool
}

// Open makes the link, or takes over the one of ours that is there: its peers, their
// sessions and its port stay as they are. What is refused leaves everything as it was. The
// link is neither set up nor given addresses.
func Open(s Settings, p Parts) (_ *Device, err error) {
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	d := &Device{parts: p, name: s.Link, gone: make(chan struct{}), peers: map[member.Key]*seen{}}
	kind, err := p.Links.Kind(s.Link)
	if err != nil {
		return nil, err
	}
	switch kind {
	case Foreign:
		return nil, clash(s.Link)
	case None:
		if s.Port, err = p.Links.Free(s.Port); err != nil {
			return nil, err
		}
		if err := p.Links.Make(s.Link, s.MTU); err != nil {
			return nil, err
		}
		d.made = true
	}
	if err := d.adopt(s); err != nil {
		return nil, errors.Join(err, d.abandon())
	}
	return d, nil
}

func clash(link string) *fault.Fault {
	return fault.New(fault.CodeClash, "link "+link).Whyf("it is there, and the mesh has not made it").
		Hint("choose another mesh.link, or remove it with ip link delete %s", link)
}

// adopt has the link have its port and mark, and learns what it has.
func (d *Device) adopt(s Settings) error {
	have, err := d.parts.Control.Device(d.name)
	if err != nil {
		return d.failed("reading", err)
	}
	var cfg wgtypes.Config
	change := false
	if d.port = uint16(have.ListenPort); s.Port != 0 && d.port != s.Port {
		port := int(s.Port)
		cfg.ListenPort, d.port, change = &port, s.Port, true
	}
	if mark := int(s.Mark); have.FirewallMark != mark {
		cfg.FirewallMark, change = &mark, true
	}
	if change {
		if err := d.parts.Control.ConfigureDevice(d.name, cfg); err != nil {
			if errors.Is(err, unix.EADDRINUSE) {
				return busy(s.Port, err)
			}
			return d.failed("changing", err)
		}
	}
	now := time.Now()
	d.looked = now
	for _, p := range have.Peers {
		d.peers[member.Key(p.PublicKey)] = took(p, now)
	}
	if !d.made {
		d.parts.Log.Info("the link of an earlier run is taken over", "link", d.name, "peers", len(have.Peers), "port", d.port)
	}
	return nil
}

func busy(port uint16, err error) *fault.Fault {
	return fault.Newf(fault.CodeAddressBusy, "UDP port %d", port).Because(err).
		Hint("end the program that has it ('ss -ulpn sport = %d'), or choose another mesh.port", port)
}

// failed is the fault of what the kernel does not do.
func (d *Device) failed(what string, err error) error {
	f := fault.New(fault.CodeInternal, what+" the link "+d.name).Because(err)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ENODEV):
		return fault.New(fault.CodeNotFound, what+" the link "+d.name).Whyf("it is gone")
	case errors.Is(err, os.ErrPermission):
		return fault.New(fault.CodeUnsupported, what+" the link "+d.name).Because(err).
			Hint("run it as root, or give it CAP_NET_ADMIN")
	}
	return f
}

// Run looks at the link until ctx ends: what is known of peers is as new as that.
func (d *Device) Run(ctx context.Context) error {
	for {
		began := time.Now()
		d.mu.Lock()
		err := d.lookLocked()
		d.mu.Unlock()
		if err != nil {
			d.parts.Log.Debug("the link is not read", telemetry.AttrReason, err)
		}
		// What many peers cost stays a small part of the time.
		if !run.Wait(ctx, max(limit.WireGuardLook, limit.WireGuardRest*time.Since(began))) {
			return nil
		}
	}
}

// lookLocked reads what the kernel reports about the peers.
func (d *Device) lookLocked() error {
	have, err := d.parts.Control.Device(d.name)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			d.miss(time.Now())
		}
		return d.failed("reading", err)
	}
	d.missed = time.Time{}
	d.learn(have)
	return d.mendLocked()
}

// mendLocked has the kernel send where it was told to: it sends where it has heard a peer last, which may be by a path
// that the peer has left, or must not have.
func (d *Device) mendLocked() error {
	var cfg wgtypes.Config
	for k, s := range d.peers {
		if s.probes && s.to.IsValid() && s.heard != s.to {
			cfg.Peers = append(cfg.Peers, wgtypes.PeerConfig{PublicKey: wgtypes.Key(k), UpdateOnly: true, Endpoint: udp(s.to)})
			s.heard = s.to
		}
	}
	for peers := range slices.Chunk(cfg.Peers, wireGuardPeers) {
		if err := d.parts.Control.ConfigureDevice(d.name, wgtypes.Config{Peers: peers}); err != nil {
			return d.failed("changing", err)
		}
	}
	return nil
}

func (d *Device) learn(have *wgtypes.Device) {
	now := time.Now()
	d.looked = now
	for _, p := range have.Peers {
		s := d.peers[member.Key(p.PublicKey)]
		if s == nil {
			continue // it is to go
		}
		if s.learn(p, now) && s.watched {
			s.watched = false
			if d.parts.Wake != nil {
				d.parts.Wake(member.Key(p.PublicKey))
			}
		}
	}
}

// miss says that there is no link of the name. One that was renamed gets its name back
// (package kernel does that); who ended at once would leave it behind with port and peers.
func (d *Device) miss(now time.Time) {
	if d.missed.IsZero() {
		d.missed = now
	}
	if now.Sub(d.missed) >= limit.WireGuardGone {
		d.lose()
	}
}

// lose notes that the link was taken away.
func (d *Device) lose() {
	if !d.lost {
		d.lost = true
		close(d.gone)
	}
}

// Done is closed when the link is gone.
func (d *Device) Done() <-chan struct{} { return d.gone }

// Port is the one that WireGuard has.
func (d *Device) Port() uint16 { return d.port }

// Close ends the work with the link, and removes it unless it is to stay: it works on then.
func (d *Device) Close(keep bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	err := d.parts.Control.Close()
	if !keep && !d.lost {
		err = errors.Join(err, d.parts.Links.Remove(d.name))
	}
	return err
}

// Made reports whether this process has made the link.
func (d *Device) Made() bool { return d.made }

// Abandon is Close after a start that failed: a link that was there before stays.
func (d *Device) Abandon() error { return d.Close(!d.made) }

func (d *Device) abandon() error {
	if !d.made {
		return nil
	}
	return d.parts.Links.Remove(d.name)
}

// Watch has Wake called with the next packet to or from a peer that is seen.
func (d *Device) Watch(k member.Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.peers[k]; s != nil {
		s.watched = true
	}
}

// Activity is what was known of one peer at the last look.
func (d *Device) Activity(k member.Key) (tunnel.Activity, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.peers[k]
	if s == nil {
		return tunnel.Activity{}, false
	}
	return s.activity(), true
}

// Stats are those of all peers, by key.
func (d *Device) Stats() ([]tunnel.Stat, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.lookLocked(); err != nil {
		return nil, err
	}
	out := make([]tunnel.Stat, 0, len(d.peers))
	for k, s := range d.peers {
		out = append(out, s.stat(k))
	}
	return sorted(out), nil
}
