// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/ipsec"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/peering"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// checkDiversions is how often it is asked whether the kernel has the diversions yet: it tells of nothing by itself.
const checkDiversions = 10 * time.Second

// besideLink is the link of WireGuard beside that of IPsec. Nothing is routed into it: what is for its peers is
// diverted from the mesh's link to it.
func besideLink(link string) string { return kernel.Beside(link) }

// beside is WireGuard in this process, beside IPsec.
type beside struct {
	userspace
	divert *ipsec.Divert
	log    *slog.Logger
}

// Run reads the socket, and sees to it that packets find their way from one link to the other.
func (b beside) Run(ctx context.Context, to tunnel.Handlers) error {
	g := run.NewGroup(ctx)
	g.Go("WireGuard beside IPsec", func(ctx context.Context) error { return b.userspace.Run(ctx, to) })
	g.Go("diversions", func(ctx context.Context) error { return run.Every(ctx, checkDiversions, b.check) })
	return g.Wait()
}

func (b beside) check() {
	n, err := b.divert.Check()
	if n > 0 {
		b.log.Warn("filters that divert packets to WireGuard were removed by somebody else: they are set again", "filters", n)
	}
	if err != nil {
		b.log.Warn("packets to peers with WireGuard may be dropped", telemetry.AttrReason, err)
	}
}

// Apply gives it its peers. Packets to others do not come to it any more when it returns.
func (b beside) Apply(cfg tunnel.Config) error {
	err := b.userspace.Apply(cfg)
	return errors.Join(err, b.divert.Away(rangesOfPeers(cfg)))
}

// Close ends it. Packets to its peers are dropped from then on.
func (b beside) Close(keep bool) error { return errors.Join(b.userspace.Close(keep), b.divert.Close()) }

func (b beside) Abandon() error { return b.Close(false) }

// diverting is IPsec with another engine beside it, to which none of its packets go.
type diverting struct {
	peering.Engine
	divert *ipsec.Divert
}

func (d diverting) Apply(cfg tunnel.Config) error {
	err := d.divert.Stay(rangesOfPeers(cfg))
	return errors.Join(err, d.Engine.Apply(cfg))
}

func rangesOfPeers(cfg tunnel.Config) (out []netip.Prefix) {
	for _, p := range cfg.Peers {
		out = append(out, p.Ranges...)
	}
	return out
}

// openBeside makes WireGuard beside the main carrier, which is IPsec, and has the main one know of it.
func openBeside(ctx context.Context, cfg Config, log *slog.Logger, data *peering.Datapath, main carrier) (with,
	other carrier, err error) {
	link := cfg.Options.Link
	u, err := newUserspace(ctx, cfg, besideLink(link), log, data)
	if err != nil {
		return main, carrier{}, err
	}
	d, err := ipsec.OpenDivert(link, besideLink(link))
	if err != nil {
		return main, carrier{}, errors.Join(err, u.Close(false))
	}
	b := beside{u, d, log}
	main.Engine = diverting{main.Engine, d}
	return main, carrier{b, u.Engine, u.socket, b, b}, nil
}

// besideInto adds the engine beside that of mesh.engine to a status.
func (p *parts) besideInto(out *Status, s *state) {
	if p.beside == nil {
		return
	}
	out.Beside = &Beside{Engine: member.WireGuard.String(), Link: besideLink(s.cfg.Options.Link),
		Port: p.beside.carrier.Port()}
	for _, t := range s.peers {
		if s.carried(t.Engine).by == member.WireGuard {
			out.Beside.Peers++
		}
	}
}

// carried says which engine carries a peer's packets. One that does not answer at all may be strict.
func (p *Peer) carried(by carried) {
	p.Engine, p.EngineWhy = by.by.String(), by.why
	if by.why == ownWireGuard && p.State == string(path.Down) {
		p.Why = strings.TrimPrefix(p.Why+"; it runs ipsec, and with mesh.ipsec.only no WireGuard beside it", "; ")
	}
}

// explainEngine says why packets go to a peer by another engine than one of the two has; empty: both have it.
func (p *Peer) explainEngine() string {
	if p.EngineWhy == "" {
		return ""
	}
	return fmt.Sprintf("engine: %s: %s\n", p.Engine, p.EngineWhy)
}
