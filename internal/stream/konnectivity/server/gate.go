// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"net"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// Gate is what every dial passes where a configuration file asks for it: a hub's policy, limits and records.
type Gate interface {
	// Listener bounds the connections of callers by a protocol; name is that of a connection's caller, for Dial too.
	Listener(ln net.Listener, protocol string, name func(net.Conn) string) net.Listener
	// Bind names the server's own listeners.
	Bind(listeners ...net.Listener)
	// Budget counts what came from agents and was not read yet.
	Budget() *carrier.Budget
	// Dial opens a stream for a caller with this name.
	Dial(ctx context.Context, d wire.Dial, protocol, name string) (carrier.Stream, error)
	// Run keeps what was configured in force until ctx ends.
	Run(ctx context.Context) error
}

// Behind is what a gate is put in front of.
type Behind struct {
	Open    func(context.Context, wire.Dial) (carrier.Stream, error)
	Agents  func() []admin.AgentStatus
	Sockets func() []admin.Socket
}

// protocol is the frontend's, by the words of a hub.
func (s *Server) protocol() string {
	if s.Mode == ModeGRPC {
		return "konnectivity"
	}
	return "connect"
}

// gated is the listener of the frontend behind the gate, if there is one.
func (s *Server) gated(ln net.Listener) net.Listener {
	if s.gate == nil {
		return ln
	}
	return s.gate.Listener(ln, s.protocol(), callerName)
}

// behind is what a gate is told.
func (s *Server) behind() Behind {
	return Behind{
		Open: s.agents.Dial,
		Agents: func() []admin.AgentStatus {
			out := []admin.AgentStatus{}
			for _, c := range s.agents.Connected() {
				out = append(out, admin.AgentStatus{ID: c.Agent, Connected: true, Draining: c.Draining, Since: c.Since.UTC(),
					Peer: cmp.Or(c.Holder, "-"), Software: "konnectivity", Connections: 1, Streams: c.Connections,
					Ranges: []string{"any"}})
			}
			return out
		},
		Sockets: func() []admin.Socket {
			if s.Socket == "" {
				return []admin.Socket{}
			}
			return []admin.Socket{{Protocol: s.protocol(), Path: s.Socket}}
		},
	}
}
