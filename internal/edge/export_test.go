// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"net"

	"github.com/tombolo-io/tombolo/internal/edge/tenant"
)

// Tenants is the table of an edge.
func (e *Edge) Tenants() *tenant.Table { return e.tenants }

// Ports waits until the edge listens.
func (e *Edge) Ports() []net.Listener { return <-e.listening }

// Open is the number of live tunnels.
func (e *Edge) Open() int { return e.counts.total() }
