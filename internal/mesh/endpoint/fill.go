// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"net"
	"net/netip"

	"github.com/tombolo-io/tombolo/internal/mesh/netcheck"
	"github.com/tombolo-io/tombolo/internal/mesh/portmap"
)

// fill puts in what is usual where nothing is given.
func (p *Parts) fill() {
	none := func() {}
	if p.Servers == nil {
		p.Servers = func() []Server { return nil }
	}
	if p.Without == nil {
		p.Without = func() []string { return nil }
	}
	if p.Overlay == nil {
		p.Overlay = func() []netip.Prefix { return nil }
	}
	if p.Needed == nil {
		p.Needed = func() bool { return true }
	}
	if p.Relays == nil {
		p.Relays = func() []netcheck.Relay { return nil }
	}
	if p.Beside == nil {
		p.Beside = netcheck.OpenBeside
	}
	if p.Moved == nil {
		p.Moved = none
	}
	if p.Changed == nil {
		p.Changed = none
	}
	if p.Resolver == nil {
		p.Resolver = &net.Resolver{}
	}
	if p.Machine == nil {
		p.Machine = kernel{}
	}
	if p.Ways == nil {
		p.Ways = portmap.Mappers()
	}
}
