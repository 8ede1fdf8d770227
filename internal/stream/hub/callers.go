// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"net"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/socket"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/hub/conns"
	"github.com/tombolo-io/tombolo/internal/stream/hub/frontend"
	"github.com/tombolo-io/tombolo/internal/stream/hub/quota"
	"github.com/tombolo-io/tombolo/internal/stream/hub/record"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// bindSocket serves a cluster's unix socket by the frontend of its protocol.
func (fr *front) bindSocket(c id.Cluster, protocol string,
	ln net.Listener) (frontend.Frontend, net.Listener, frontend.DialFunc) {
	who := record.Party{Cluster: c, Frontend: protocol, Caller: "unix:" + c.String() + "/" + protocol}
	ln = fr.sparing(ln)              // below what hides the descriptor
	if protocol == ProtocolConnect { // which counts its connections itself
		return connectFrontend{fr.connect, who}, ln, fr.dials.forCaller(who)
	}
	return fr.frontends[protocol], fr.metered(who, ln), fr.dials.forCaller(who)
}

// sparing wraps a listener whose connections may not use up the descriptors.
func (fr *front) sparing(ln net.Listener) net.Listener {
	most := fr.descriptors.Most()
	return conns.Reserve(ln, most, func(conn net.Conn) {
		fr.record.LogPeer(record.Party{}, conn, fault.
			New(fault.CodeLimit, "the hub has no descriptor left for agents and callers").
			Whyf("%d are in use, the rest is kept for the admin port", most-socket.Reserve(most)))
	})
}

// metered wraps the listener of a frontend that does not count the connections of its
// caller itself. A connection that gets no answer is at least recorded.
func (p *parts) metered(who record.Party, ln net.Listener) net.Listener {
	return p.meteredBy(who, ln, func(net.Conn) record.Party { return who })
}

// meteredBy is metered for callers that are told apart by their connections. all is who is
// refused where a frontend does not say which of them.
func (p *parts) meteredBy(all record.Party, ln net.Listener, of func(net.Conn) record.Party) net.Listener {
	accounts := p.clusters.add(all.Cluster).accounts
	refuse := func(conn net.Conn, f *fault.Fault) {
		p.record.RefusedConnection(of(conn), conn, carrier.UnixPeer(conn), f)
		conn.Close()
	}
	return quota.NewListener(ln, func(conn net.Conn) *quota.Account { return accounts.Caller(of(conn).Caller) }, refuse,
		func(peer wire.Peer, err error) { p.record.RefusedWithin(all, peer, err) })
}
