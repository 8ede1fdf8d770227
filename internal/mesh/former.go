// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"slices"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/wireguard"
	"github.com/tombolo-io/tombolo/internal/mesh/routing"
)

// former are the names of before whose bearers are to go. They are in nobody's way.
func (m *Mesh) former(k *kernel.Kernel, names kernel.Names) ([]kernel.Names, error) {
	if !m.applied.Others(names) {
		return nil, nil
	}
	claims, err := k.Claims()
	if err != nil {
		return nil, err
	}
	out := m.applied.Former(names, claims)
	k.Overlook(out)
	return out, nil
}

// apply keeps the names on disk, before anything bears them, and takes away the links of the
// kernel's WireGuard that bear former ones: they have this node's port. What fails closed stays
// until the new names are in force.
func (m *Mesh) apply(names kernel.Names, former []kernel.Names) error {
	next, forgotten := m.applied.With(names)
	for _, n := range forgotten {
		m.log.Warn("too many names of before are known: what bears these is not looked for any more", "link", n.Link, "filter", n.Filter, "table", n.Table)
	}
	// What is on disk already is not written: a full disk keeps no node from starting. Names are
	// known from there alone, so what could not be read has none.
	if !slices.Equal(next.Names, m.applied.Names) {
		if err := next.Write(m.cfg.StateDir); err != nil {
			return err
		}
	}
	m.applied = next
	for _, n := range former {
		if n.Link == "" {
			continue
		}
		was, err := wireguard.Leave(wireguard.System{}, n.Link)
		if err != nil {
			return err
		}
		if was {
			m.log.Info("the link of an earlier start is removed: it has another name now", "link", n.Link)
		}
	}
	return nil
}

// clear removes what bears former names, once the new ones are in force. What stays in spite of
// that is tried again at the next start.
func (m *Mesh) clear(names kernel.Names) error {
	if !m.applied.Others(names) {
		return nil
	}
	steps, err := routing.Clear(m.applied, names)
	if len(steps) > 0 {
		m.log.Info("what an earlier start had in the kernel under other names is removed", "steps", len(steps))
	}
	if err == nil {
		next := m.applied.Only(names)
		if err = next.Write(m.cfg.StateDir); err == nil {
			m.applied = next
			return nil
		}
	}
	f := fault.From(err)
	m.log.Error("what an earlier start had in the kernel under other names stays; it is tried again at the next start", telemetry.AttrCode, f.Code, telemetry.AttrReason, f.Error())
	return err
}

// prepared is what stands in the way of a state, where former names stand in nobody's.
func (m *Mesh) prepared(k *kernel.Kernel, names kernel.Names, prepare func() error) ([]kernel.Names, error) {
	former, unknown := m.former(k, names)
	if err := prepare(); err != nil {
		return nil, err // also why claims could not be read
	}
	return former, unknown
}
