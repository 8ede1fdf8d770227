// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"log/slog"
	"slices"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/wireguard"
	"github.com/tombolo-io/tombolo/internal/mesh/routing"
)

// kernelNames are the names that this node has, and had before, in the kernel. They belong to New,
// Preflight and Run, one after the other.
type kernelNames struct {
	applied routing.Applied
	dir     string
	log     *slog.Logger
}

func readNames(dir string, log *slog.Logger) *kernelNames {
	n := &kernelNames{dir: dir, log: log}
	var err error
	if n.applied, err = routing.ReadApplied(dir); err != nil {
		log.Warn("what an earlier start may have left in the kernel under other names is not known",
			telemetry.AttrCode, fault.From(err).Code, telemetry.AttrReason, err)
	}
	return n
}

// previous are names of earlier starts under which something is to be removed: that is in nobody's way.
func (n *kernelNames) previous(k *kernel.Kernel, names kernel.Names) ([]kernel.Names, error) {
	if !n.applied.Others(names) {
		return nil, nil
	}
	claims, err := k.Claims()
	if err != nil {
		return nil, err
	}
	out := n.applied.Former(names, claims)
	k.Overlook(out)
	return out, nil
}

// keep writes the names to disk, before anything bears them, and takes away the links of the
// kernel's WireGuard that bear previous ones: they have this node's port. What fails closed stays
// until the new names are in force.
func (n *kernelNames) keep(names kernel.Names, previous []kernel.Names) error {
	next, forgotten := n.applied.With(names)
	for _, old := range forgotten {
		n.log.Warn("too many earlier names are known: what has these is no longer looked for",
			"link", old.Link, "filter", old.Filter, "table", old.Table)
	}
	// What is on disk already is not written: a full disk keeps no node from starting. Names are
	// known from there alone, so what could not be read has none.
	if !slices.Equal(next.Names, n.applied.Names) {
		if err := next.Write(n.dir); err != nil {
			return err
		}
	}
	n.applied = next
	for _, old := range previous {
		if old.Link == "" {
			continue
		}
		was, err := wireguard.Leave(wireguard.System{}, old.Link)
		if err != nil {
			return err
		}
		if was {
			n.log.Info("the link of an earlier start is removed: it has another name now", "link", old.Link)
		}
	}
	return nil
}

// clear removes what has previous names, once the new ones are in force. What stays in spite of
// that is tried again at the next start.
func (n *kernelNames) clear(names kernel.Names) error {
	if !n.applied.Others(names) {
		return nil
	}
	steps, err := routing.Clear(n.applied, names)
	if len(steps) > 0 {
		n.log.Info("what an earlier start had in the kernel under other names is removed", "steps", len(steps))
	}
	if err == nil {
		next := n.applied.Only(names)
		if err = next.Write(n.dir); err == nil {
			n.applied = next
			return nil
		}
	}
	f := fault.From(err)
	n.log.Error("what an earlier start had in the kernel under other names stays; it is tried again at the next start",
		telemetry.AttrCode, f.Code, telemetry.AttrReason, f.Error())
	return err
}

// prepare checks that a state can be put into force, where what has previous names does not count.
func (n *kernelNames) prepare(k *kernel.Kernel, names kernel.Names, prepare func() error) ([]kernel.Names, error) {
	previous, unknown := n.previous(k, names)
	if err := prepare(); err != nil {
		return nil, err // also why claims could not be read
	}
	return previous, unknown
}
