// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// Reload applies the part of a new configuration that may change while the hub runs.
// On an error the old configuration stays in force. A mistake in a policy file that is
// already in use is no error: its last good content stays, if there is any, and the rest
// is applied.
func (h *Hub) Reload(next Config) error {
	select {
	case <-h.ready:
	default:
		return fault.New(fault.CodeConfig, "the hub is still starting").Hint("reload once it is ready")
	}
	if fixed := fixedChanges(h.cfg, next); len(fixed) > 0 {
		h.log.Warn("these settings change only with a restart", "settings", fixed)
	}
	if err := h.policies.Judge(next.policies); err != nil { // before anything is applied
		return err
	}
	h.moving.Lock()
	defer h.moving.Unlock()
	if err := next.backends.Replaces(h.clusters.backendUses(h.settings.Load().backends)); err != nil {
		return err
	}
	h.wireguard.Lock() // no cluster gets an address of a range that is going
	defer h.wireguard.Unlock()
	if err := h.fitWireGuard(next.wireguard); err != nil {
		return err
	}
	if err := next.ports.checkOwn(h.own.FromHere()); err != nil {
		return err
	}
	if err := h.sockets.Apply(&next.sockets); err != nil {
		return err
	}
	for _, c := range next.sockets.Clusters {
		h.clusters.add(c.Name)
	}
	h.apply(&next.Reloadable)
	h.dials.judgePorts()
	return nil
}

// apply puts limits, settings and policies into force.
func (p *parts) apply(next *Reloadable) {
	before := p.clusters.memoryLimit()
	p.clusters.bound(next.limits)
	if p.clusters.memoryLimit() != before {
		p.memory.Advise()
	}
	p.settings.Store(next)
	if err := p.policies.Load(); err != nil { // counted there, and shown by the status
		p.policies.LogRefused(err, "; the rest of the configuration is in force")
	}
	p.policies.Moved()
}

// CountReload counts the outcome of a reload.
func (p *parts) CountReload(err error) {
	p.metrics.Reloads.WithLabelValues(outcome(fault.From(err))).Inc()
}
