// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"net"
	"net/http"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/hub/conns"
	"github.com/tombolo-io/tombolo/internal/stream/hub/frontend"
	"github.com/tombolo-io/tombolo/internal/stream/hub/quota"
	"github.com/tombolo-io/tombolo/internal/stream/hub/record"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// bindSocket serves a cluster's unix socket by the frontend of its protocol.
func (h *Hub) bindSocket(c id.Cluster, protocol string, ln net.Listener) (frontend.Frontend, net.Listener, frontend.DialFunc) {
	who := record.Party{Cluster: c, Frontend: protocol, Caller: "unix:" + c.String() + "/" + protocol}
	ln = h.sparing(ln)               // below what hides the descriptor
	if protocol == ProtocolConnect { // which counts its connections itself
		return connectFrontend{h, who}, ln, h.dialer(who)
	}
	return h.frontends[protocol], h.metered(who, ln), h.dialer(who)
}

// sparing wraps a listener whose connections may not use up the descriptors.
func (h *Hub) sparing(ln net.Listener) net.Listener {
	most := h.descriptors.Most()
	return conns.Reserve(ln, most, func(conn net.Conn) {
		h.record.LogPeer(record.Party{}, conn, fault.New(fault.CodeLimit, "the hub has no descriptor left for agents and callers").
			Whyf("%d are in use, the rest is kept for the admin port", most-listener.Reserve(most)))
	})
}

// metered wraps the listener of a frontend that does not count the connections of its
// caller itself. A connection that gets no answer is at least recorded.
func (h *Hub) metered(p record.Party, ln net.Listener) net.Listener {
	accounts := h.clusters.add(p.Cluster).accounts
	refuse := func(conn net.Conn, f *fault.Fault) {
		h.record.RefusedConnection(p, conn, carrier.UnixPeer(conn), f)
		conn.Close()
	}
	return quota.NewListener(ln, func() *quota.Account { return accounts.Caller(p.Caller) }, refuse,
		func(peer wire.Peer, err error) { h.record.RefusedWithin(p, peer, err) })
}

// callerOf is the account of who asks over a connection, nil if its cluster is not known.
func (h *Hub) callerOf(p record.Party) *quota.Account {
	c, err := h.clusters.get(p.Cluster)
	if err != nil {
		return nil
	}
	return c.accounts.Caller(p.Caller)
}

// operator is which operator asks: over the admin port one with a certificate, over the
// admin socket a user of this machine who may open it.
func (h *Hub) operator(r *http.Request, c id.Cluster) record.Party {
	p := record.Party{Cluster: c, Frontend: adminFrontend, Caller: operatorCaller}
	chain := peerOf(r.Context())
	if len(chain) == 0 {
		p.Peer, _ = r.Context().Value(socketPeerKey{}).(wire.Peer)
		return p
	}
	p.Serial, p.Source = trust.Serial(chain[0]), r.RemoteAddr
	if who, ours := h.credentials.Authentic(chain); ours {
		p.Operator = who.URI()
	}
	return p
}
