// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"net"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/hub/conns"
	"github.com/tombolo-io/tombolo/internal/stream/hub/frontend"
	"github.com/tombolo-io/tombolo/internal/stream/hub/quota"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// bindSocket serves a cluster's unix socket by the frontend of its protocol.
func (h *Hub) bindSocket(ctx context.Context, c id.Cluster, protocol string, ln net.Listener) (context.Context, frontend.Frontend, net.Listener, frontend.DialFunc) {
	caller := "unix:" + c.String() + "/" + protocol
	ctx = withParty(ctx, party{cluster: c, frontend: protocol, caller: caller})
	ln = h.sparing(ln)               // below what hides the descriptor
	if protocol != ProtocolConnect { // which counts its connections itself
		ln = h.metered(ctx, ln)
	}
	return ctx, h.frontends[protocol], ln, h.dialer(c, protocol, caller)
}

// sparing wraps a listener whose connections may not use up the descriptors.
func (h *Hub) sparing(ln net.Listener) net.Listener {
	most := h.descriptors.Most()
	return conns.Reserve(ln, most, func(conn net.Conn) {
		h.refused(party{}, conn, fault.New(fault.CodeLimit, "the hub has no descriptor left for agents and callers").
			Whyf("%d are in use, the rest is kept for the admin port", most-listener.Reserve(most)))
	})
}

// metered wraps the listener of a frontend that does not count connections itself;
// whose they are is known in ctx. Who gets no answer is at least recorded.
func (h *Hub) metered(ctx context.Context, ln net.Listener) net.Listener {
	p, _ := ctx.Value(partyKey{}).(party)
	accounts := h.clusters.add(p.cluster).accounts
	refuse := func(conn net.Conn, f *fault.Fault) {
		h.refuseKnown(ctx, conn, carrier.UnixPeer(conn), f)
		conn.Close()
	}
	return quota.NewListener(ln, func() *quota.Account { return accounts.Caller(p.caller) }, refuse,
		func(peer wire.Peer, err error) { h.refusedWithin(ctx, peer, err) })
}

// callerOf is the account of who asks over a connection, nil if nobody is known.
func (h *Hub) callerOf(ctx context.Context) *quota.Account {
	p, ok := ctx.Value(partyKey{}).(party)
	if !ok {
		return nil
	}
	c, err := h.clusters.get(p.cluster)
	if err != nil {
		return nil
	}
	return c.accounts.Caller(p.caller)
}
