// SPDX-License-Identifier: Apache-2.0

package vpn

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel"
	"github.com/tombolo-io/tombolo/internal/vpn/network"
)

// The folders of both ends in a run directory.
const serverDir, clientDir = "vpn-server", "vpn-client"

func dirOf(runDir, of string) string { return filepath.Join(runDir, of) }

// ServerSocket is where a server with this run directory serves its admin API.
func ServerSocket(runDir string) string { return filepath.Join(dirOf(runDir, serverDir), "vpn.sock") }

// ClientSocket is where a client with this run directory serves its admin API.
func ClientSocket(runDir string) string { return filepath.Join(dirOf(runDir, clientDir), "vpn.sock") }

// open refuses a tunnel that could not work or would harm others, and makes its link.
func open(h host, t network.Tunnel) (state, error) {
	if lacks := kernel.Able(true); len(lacks) > 0 {
		return nil, lacks[0]
	}
	k, err := h.openKernel(names(t))
	if err != nil {
		return nil, err
	}
	if clashes := k.Check(t.State()); len(clashes) > 0 {
		return nil, errors.Join(clashes[0], k.Close())
	}
	if err := alone(k, t.Routed); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	if err := h.makeTun(t.Link); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	if err := apply(k, t.State()); err != nil {
		return nil, errors.Join(err, apply(k, plan.State{}), k.Close())
	}
	return k, nil
}

// alone refuses ranges that another command of ours routes: one of two clusters would get the packets of both.
func alone(k state, ranges []netip.Prefix) error {
	others, err := k.Elsewhere()
	if err != nil {
		return err
	}
	for _, o := range others {
		for _, r := range ranges {
			if o.To.Overlaps(r) {
				return fault.Newf(fault.CodeConfig, "the range %s, and %s, which another Tombolo here routes (table %d), overlap",
					r, o.To, o.Table).
					Hint("reach one of them by other addresses with 'as', on both ends")
			}
		}
	}
	return nil
}

// shut takes back what open and what followed changed.
func shut(k state) error {
	if k == nil {
		return nil
	}
	return errors.Join(apply(k, plan.State{}), k.Close())
}

// Run serves until ctx ends. What it changed in the kernel goes with it. hard cuts the end short.
func (s *Server) Run(ctx, hard context.Context) (err error) {
	if s.version, err = s.host.version(ctx, s.cfg.Program); err != nil {
		return err
	}
	if s.who, err = s.cfg.read(id.RoleVPNServer); err != nil {
		return err
	}
	if err := s.host.apart([]string{s.cfg.OpenVPN.Link}, s.cfg.parts()); err != nil {
		return err
	}
	front, err := s.newConnect()
	if err != nil {
		return err
	}
	o := listener.Operations{Health: listener.Health{Metrics: s.reg, Log: s.log, Ready: s.unready}, API: s.api()}
	if err := o.Listen(ctx, s.cfg.HealthListen, ServerSocket(s.cfg.RunDir)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	s.healthAt = o.HealthAt()
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	if err := front.listen(ctx, inner); err != nil {
		return err
	}
	defer front.close()
	dir := filepath.Join(dirOf(s.cfg.RunDir, serverDir), "openvpn")
	if err := mkdirs(dir); err != nil {
		return err
	}
	k, err := open(s.host, s.cfg.tunnel())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shut(k)) }()
	s.kernel = k
	s.process = &process{program: s.cfg.Program, dir: dir, log: s.log,
		prepare: s.prepare, handle: s.handle, tick: s.tick, every: probeEvery, again: make(chan struct{}, 1),
		ended: func(f *fault.Fault) {
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, p := range s.peers {
				s.metrics.Up.DeleteLabelValues(p.name)
			}
			s.peers, s.down, s.state = nil, f, ""
		}}
	s.probes = run.NewGroup(inner)
	g := run.NewGroup(inner)
	g.Go("OpenVPN", s.process.run)
	g.Go("files", func(ctx context.Context) error {
		return follow(ctx, s.cfg.common, id.RoleVPNServer, s.log, s.process.restart)
	})
	g.Go("CONNECT", front.serve)
	s.log.Info("waiting for clients", "listen", s.cfg.Listen, "openvpn", s.version)
	defer func() {
		s.probes.Stop()
		_ = s.probes.Wait() // they return nothing
	}()
	return o.Until(ctx, g, func() {
		s.draining.Store(true)
		front.drain(hard)
		cancel()
	})
}

// Run dials until ctx ends. What it changed in the kernel goes with it.
func (c *Client) Run(ctx, _ context.Context) (err error) {
	if c.version, err = c.host.version(ctx, c.cfg.Program); err != nil {
		return err
	}
	if _, err = c.cfg.read(id.RoleVPNClient); err != nil {
		return err
	}
	if err := c.host.apart(c.links(), c.cfg.parts()); err != nil {
		return err
	}
	if err := c.cfg.outside(ctx, c.host.lookup); err != nil {
		return err
	}
	o := listener.Operations{Health: listener.Health{Metrics: c.reg, Log: c.log, Ready: c.unready}, API: c.api()}
	if err := o.Listen(ctx, c.cfg.HealthListen, ClientSocket(c.cfg.RunDir)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	c.healthAt = o.HealthAt()
	for _, e := range c.ends {
		if err := mkdirs(e.process.dir); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, shut(e.kernel)) }()
		if err := errors.Join(ctx.Err(), e.open()); err != nil {
			return err
		}
	}
	undo, err := c.host.forward(c.cfg.families())
	defer func() { err = errors.Join(err, undo()) }()
	if err != nil {
		return err
	}
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	g := run.NewGroup(inner)
	for _, e := range c.ends {
		g.Go("OpenVPN", e.process.run)
	}
	g.Go("files", func(ctx context.Context) error {
		return follow(ctx, c.cfg.common, id.RoleVPNClient, c.log, func() {
			for _, e := range c.ends {
				e.process.restart()
			}
		})
	})
	return o.Until(ctx, g, func() {
		c.draining.Store(true)
		cancel()
	})
}

// follow calls changed when files of an identity are others than they were, and go together: a certificate and its key
// may be replaced one after the other.
func follow(ctx context.Context, c common, role id.Role, log *slog.Logger, changed func()) error {
	seen, told := stampsOf(c.sources()), stamps(nil)
	for run.Wait(ctx, watchFiles) {
		now := stampsOf(c.sources())
		if !seen.changed(now) {
			continue
		}
		if _, err := c.read(role); err != nil {
			if f := fault.From(err); !slices.Equal(told, now) {
				told = now
				log.Warn("the new files of the identity cannot be used yet; what was read before stays", telemetry.AttrCode, f.Code,
					telemetry.AttrReason, f.Error())
			}
			continue
		}
		seen = now
		changed()
	}
	return nil
}

// mkdirs makes the folders of processes.
func mkdirs(dirs ...string) error {
	for _, dir := range dirs {
		if path := socketOf(dir); len(path) >= limit.SocketPath { // sun_path has one byte more
			return fault.Newf(fault.CodeSocketPath, "the path of the management socket is too long: %s", path).
				Whyf("it has %d bytes, and the kernel takes %d", len(path), limit.SocketPath-1).Hint("choose a shorter runDir")
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fault.New(fault.CodeConfig, "the folder "+dir+" cannot be made").Because(err).Hint("choose another runDir")
		}
	}
	return nil
}
