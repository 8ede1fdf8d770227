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
