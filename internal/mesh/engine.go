// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"cmp"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
)

// engineChoice is the engine that a node runs, and why.
type engineChoice struct{ name, why string }

// chooseEngine chooses the engine; lacks says what the kernel lacks for its own one.
func chooseEngine(configured string, lacks func() *fault.Fault) engineChoice {
	if configured != meshconf.Auto {
		return engineChoice{configured, "mesh.engine says so"}
	}
	if f := lacks(); f != nil {
		return engineChoice{meshconf.Userspace, "the kernel has no WireGuard: " + f.Error()}
	}
	return engineChoice{meshconf.Kernel, "the kernel has WireGuard"}
}

// encrypts is what members call the engine that this node runs: both of WireGuard reach each other.
func (c *Config) encrypts() member.Engine {
	if c.engine() == meshconf.IPsec {
		return member.IPsec
	}
	return member.WireGuard
}

// engine is the one that this node runs.
func (c *Config) engine() string { return cmp.Or(c.chosen.name, c.Engine) }

// besides reports whether this node runs WireGuard beside IPsec, for peers that do not run IPsec.
func (c *Config) besides() bool { return c.engine() == meshconf.IPsec && !c.ESP.Only }

// carried is the engine that carries packets to a peer, and why it is that one.
type carried struct {
	by  member.Engine
	why string // empty: both run it
}

// ownWireGuard is why WireGuard carries packets to a peer with IPsec.
const ownWireGuard = "it runs ipsec, and this node does not"

// carry decides by what a peer is reached: by IPsec if both run it, else by WireGuard, which a node with IPsec has
// beside it unless it must not. What this node cannot run stays as the peer states it, and is refused.
func carry(own, peer member.Engine, only bool) carried {
	switch {
	case own.Same(peer):
		return carried{member.Engine(own.String()), ""}
	case own.Same(member.WireGuard) && peer.Same(member.IPsec):
		return carried{member.WireGuard, ownWireGuard}
	case own.Same(member.IPsec) && peer.Same(member.WireGuard) && !only:
		return carried{member.WireGuard, "it does not run ipsec"}
	}
	return carried{peer, ""}
}

// carried is what carries packets to a peer that states an engine.
func (s *state) carried(peer member.Engine) carried {
	return carry(s.cfg.encrypts(), peer, s.cfg.ESP.Only)
}
