// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"crypto/tls"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/hub/credentials"
	"github.com/tombolo-io/tombolo/internal/stream/hub/relay"
)

// relays serves the connections of nodes to the relays of their clusters.
type relays struct{ *parts }

// admitRelay judges a peer that wants to use the relay.
func (rl *relays) admitRelay(conn *tls.Conn) (who id.Identity, c *cluster, err error) {
	if who, err = rl.identify(conn); err != nil {
		return who, nil, err
	}
	if who.Role != id.RoleNode {
		return who, nil, fault.Newf(fault.CodeUnauthorized, "%s may not use the relay", who).Whyf("only nodes may").
			Hint("join as a node: tombolo token create --cluster NAME --node")
	}
	if rl.draining.Load() {
		return who, nil, fault.New(fault.CodeDraining, "the hub is shutting down").Hint("the node tries again by itself")
	}
	c, err = rl.clusters.get(who.Cluster)
	return who, c, err
}

// serveRelay welcomes a node's connection, or tells it why not. What is to be done while
// it lives is returned, as with sessions.
func (rl *relays) serveRelay(ctx context.Context, conn *tls.Conn, known func()) (next func(context.Context)) {
	chain := conn.ConnectionState().PeerCertificates
	var n *relay.Node
	who, c, err := rl.admitRelay(conn)
	if err == nil {
		known()
		n, err = c.relay.Join(conn, who.Name, credentials.IssuedAt(chain[0]), rl.now())
	}
	if err != nil {
		if len(chain) > 0 {
			rl.record.RefusedPeer(relayFrontend, chain, addrText(conn), err)
		}
		rl.record.LogPeer(rl.proven(conn), conn, err)
		relay.Refuse(ctx, conn, err)
		return nil
	}
	// Revoked since it was judged, when the revocation did not see this connection.
	if f := rl.credentials.Refusal(who, n.Issued); f != nil {
		n.End(f)
	}
	if rl.draining.Load() {
		n.Drain()
	}
	return func(ctx context.Context) {
		rl.log.Debug("node connected to the relay", telemetry.AttrCluster, c.name, telemetry.AttrNode, n.Name,
			telemetry.AttrPeer, n.Peer)
		why := n.Serve(ctx, rl.now)
		rl.metrics.RelayEnds.WithLabelValues(outcome(orderly(why))).Inc()
		rl.log.Debug("node left the relay", telemetry.AttrCluster, c.name, telemetry.AttrNode, n.Name,
			telemetry.AttrPeer, n.Peer,
			telemetry.AttrCode, why.Code, telemetry.AttrReason, why.Explain())
	}
}

const relayFrontend = "relay"

// orderly is nil for an end that the node wanted.
func orderly(f *fault.Fault) *fault.Fault {
	if f.Code == fault.CodeInterrupted {
		return nil
	}
	return f
}

// endRelayed ends the connection of a node whose certificates are revoked, and counts it.
func (rl *relays) endRelayed(who id.Identity) int {
	c, err := rl.clusters.get(who.Cluster)
	if err != nil {
		return 0
	}
	n := c.relay.Find([]byte(who.Name))
	if n == nil {
		return 0
	}
	f := rl.credentials.Refusal(who, n.Issued)
	if f == nil {
		return 0
	}
	n.End(f)
	return 1
}

// drainRelays tells all nodes that the hub stops soon.
func (rl *relays) drainRelays() {
	for _, c := range rl.clusters.all() {
		for _, n := range c.relay.All() {
			n.Drain()
		}
	}
}
