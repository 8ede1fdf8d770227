// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/demo/network"
)

// killAgent kills the agent of c1, shows what a caller sees meanwhile and
// that c2 does not notice, starts the agent again as systemd or Kubernetes
// would, and measures until the first answer.
func (p *play) killAgent(ctx context.Context) (string, error) {
	s, site, other := p.stage, p.stage.sites[0], p.stage.sites[1]
	killed := time.Now()
	if err := site.agent.process.Signal(syscall.SIGKILL); err != nil {
		return "", err
	}
	<-site.agent.process.Done()

	var told *refusal
	err := until(ctx, nil, fetchWithin, func(ctx context.Context) error {
		_, err := site.backend.fetch(ctx, site.through, fetchWithin)
		// A dial may use the session while it ends, and fails then: it is not yet
		// the answer that callers have from then on.
		if told = refused(err); told != nil && told.code == fault.CodeNoAgent {
			return nil
		}
		return errors.Join(errors.New("not told so yet"), err)
	})
	if err != nil {
		return "", fmt.Errorf("waiting to be told that c1 has no agent: %w", err)
	}
	toldAfter := time.Since(killed)
	if _, err := other.backend.fetch(ctx, other.through, fetchWithin); err != nil {
		return "", fmt.Errorf("c2 suffers from the loss of c1's agent: %w", err)
	}

	restarted := time.Now()
	if err := s.start(site.agent); err != nil {
		return "", err
	}
	err = until(ctx, site.agent, recoverWithin, func(ctx context.Context) error {
		_, err := site.backend.fetch(ctx, site.through, fetchWithin)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("waiting for c1 to answer again: %w", err)
	}
	return fmt.Sprintf("a caller gets its answer after %.2f s: HTTP %d\n%s\nc2 keeps answering\n"+
		"c1 answers again %.2f s after the agent's restart (its stored identity, no new token)",
		toldAfter.Seconds(), told.status, told.reason, time.Since(restarted).Seconds()), nil
}

// Throughput is measured in rounds that alternate between direct and tunnel, so that
// other work on the machine affects both. The medians are shown.
const (
	rounds  = 3
	warm    = 200 * time.Millisecond
	counted = 550 * time.Millisecond
)

// measure downloads from c1's backend through the hub and directly.
func (p *play) measure(ctx context.Context) (string, error) {
	site := p.stage.sites[0]
	direct, shut, err := p.openDirect(site)
	if err != nil {
		return "", err
	}
	var directs, tunnels []float64
	for range rounds {
		rate, err := site.backend.rate(ctx, direct, warm, counted)
		if err != nil {
			return "", errors.Join(fmt.Errorf("the direct link: %w", err), shut())
		}
		directs = append(directs, rate)
		if rate, err = site.backend.rate(ctx, site.through, warm, counted); err != nil {
			return "", errors.Join(fmt.Errorf("the tunnel: %w", err), shut())
		}
		tunnels = append(tunnels, rate)
	}
	if err := shut(); err != nil {
		return "", err
	}
	note := "direct: the same download without hub and agent"
	if p.stage.world != nil {
		note += ", gateway 1 opened for it and shut again"
	}
	fast, slow := median(directs), median(tunnels)
	return fmt.Sprintf("one https stream, median of %d rounds in turn\n"+
		"direct %6.0f MB/s\ntunnel %6.0f MB/s  (%.0f %%)\n%s", rounds, fast/1e6, slow/1e6, 100*slow/fast, note), nil
}

// median of an odd number of values.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// openDirect makes the backend of a site dialable from the control plane for a
// while: a route, and the gateway's firewall off. It returns the dialer and
// what shuts the way again.
func (p *play) openDirect(site *site) (dialer, func() error, error) {
	w := p.stage.world
	if w == nil {
		here := p.stage.network.Here()
		return tcp(here), func() error { return nil }, nil
	}
	if err := errors.Join(site.net.Firewall.Off(), w.Internet.Route(network.SiteRange, site.net.Public)); err != nil {
		return nil, nil, err
	}
	return tcp(w.Control), func() error {
		return errors.Join(site.net.Firewall.On(), w.Internet.Unroute(network.SiteRange, site.net.Public))
	}, nil
}
