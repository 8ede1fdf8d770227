// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/mesh/relayproto"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

// relayed is a node's connection to the relay.
type relayed struct {
	relay   *relay
	name    string // of the node, as its certificate has it
	conn    *tls.Conn
	out     *queue
	peer    string
	since   time.Time
	certEnd time.Time
	certBeg time.Time // when the certificate was issued

	gone  atomic.Bool // it is in the relay no more
	ended atomic.Pointer[fault.Fault]
	lost  atomic.Int64 // packets to it that its queue did not take
	rate  allowance

	// Of its reader alone.
	known  map[string]*relayed
	lease  int64
	absent allowance
	rung   []*queue // that have got packets of what is being read

	moved relayCount // what came from it
}

// admitRelay judges who wants to use the relay.
func (h *Hub) admitRelay(conn *tls.Conn) (who id.Identity, c *cluster, err error) {
	if who, err = h.identify(conn, 0); err != nil {
		return who, nil, err
	}
	if who.Role != id.RoleNode {
		return who, nil, fault.Newf(fault.CodeUnauthorized, "%s may not use the relay", who).Whyf("only nodes may").
			Hint("join as a node: tombolo token create --cluster NAME --node")
	}
	if h.draining.Load() {
		return who, nil, fault.New(fault.CodeDraining, "the hub is shutting down").Hint("the node tries again by itself")
	}
	c, err = h.clusters.get(who.Cluster)
	return who, c, err
}

// serveRelay welcomes a node's connection, or tells why not. What is to be done while
// it lives is given back, as with sessions.
func (h *Hub) serveRelay(ctx context.Context, conn *tls.Conn, known func()) (next func(context.Context)) {
	who, c, err := h.admitRelay(conn)
	if err != nil {
		if chain := conn.ConnectionState().PeerCertificates; len(chain) > 0 {
			h.recordKnock(relayFrontend, chain, addrText(conn), err)
		}
		h.refused(h.proven(conn), conn, err)
		endRelay(ctx, conn, err)
		return nil
	}
	known()
	leaf := conn.ConnectionState().PeerCertificates[0]
	n := &relayed{
		relay: c.relay, name: who.Name, conn: conn, out: newQueue(c.relay.pool), peer: addrText(conn), since: h.now(),
		certEnd: leaf.NotAfter, certBeg: issuedAt(leaf), known: map[string]*relayed{},
	}
	n.absent.set(limit.RelayAbsent)
	n.rate.set(c.relay.nodeRate())
	greeting := relayproto.Greeting{Observed: observed(conn), Largest: limit.RelayDatagram, Rate: uint64(n.rate.granted())}
	n.out.put(func(q []byte) []byte { return relayproto.AppendWelcome(q, greeting) }, limit.RelayKept) // before any packet
	older, err := c.relay.enter(n)
	if err != nil {
		h.recordKnock(relayFrontend, conn.ConnectionState().PeerCertificates, addrText(conn), err)
		h.refused(h.proven(conn), conn, err)
		endRelay(ctx, conn, err)
		return nil
	}
	if older != nil {
		older.end(fault.New(fault.CodeSessionLost, "a newer connection of this node has taken the place of this one").
			Hint("if two machines have one state directory, give each its own"))
	}
	if f := h.holders.refusal(who, n.certBeg); f != nil { // since it was judged: the revocation did not see this connection
		n.end(f)
	}
	if h.draining.Load() {
		n.drain()
	}
	return func(ctx context.Context) { h.relayFor(ctx, c, n) }
}

const relayFrontend = "relay"

// relayFor serves a connection until it ends.
func (h *Hub) relayFor(ctx context.Context, c *cluster, n *relayed) {
	h.log.Debug("node connected to the relay", telemetry.AttrCluster, c.name, telemetry.AttrNode, n.name, telemetry.AttrPeer, n.peer)
	stop := run.OnDone(ctx, func() {
		n.end(fault.New(fault.CodeDraining, "the hub was stopped").Hint("the node tries again by itself"))
	})
	g := run.NewGroup(context.WithoutCancel(ctx))
	g.Do(func(context.Context) { n.write() })
	err := n.read(h.now)
	stop()
	c.relay.leave(n)
	f := n.ended.Load()
	if f == nil {
		f = readFault(err)
	}
	n.end(f)
	g.Wait()
	n.conn.Close()
	h.metrics.RelayEnds.WithLabelValues(outcome(orderly(f))).Inc()
	h.log.Debug("node left the relay", telemetry.AttrCluster, c.name, telemetry.AttrNode, n.name, telemetry.AttrPeer, n.peer,
		telemetry.AttrCode, f.Code, telemetry.AttrReason, f.Explain())
}

// orderly is nil for an end that the node wanted.
func orderly(f *fault.Fault) *fault.Fault {
	if f.Code == fault.CodeInterrupted {
		return nil
	}
	return f
}

func readFault(err error) *fault.Fault {
	var f *fault.Fault
	var timeout net.Error
	switch {
	case errors.As(err, &f):
		return f
	case errors.Is(err, io.EOF):
		return fault.New(fault.CodeInterrupted, "the node has closed the connection")
	case errors.As(err, &timeout) && timeout.Timeout():
		return fault.New(fault.CodeSessionLost, "the node is silent").Whyf("nothing came for %v", limit.RelayDead)
	}
	return fault.New(fault.CodeSessionLost, "the connection of the node broke").Because(err)
}

func observed(conn net.Conn) netip.AddrPort {
	at, err := netip.ParseAddrPort(addrText(conn))
	if err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
}

// read takes the frames of a node until its connection ends.
func (n *relayed) read(clock func() time.Time) error {
	buf := make([]byte, limit.RelayRead)
	have := 0
	var alive time.Time
	for {
		if now := time.Now(); now.Sub(alive) > time.Second {
			if n.ended.Load() == nil { // else its deadline is another
				n.conn.SetReadDeadline(now.Add(limit.RelayDead))
				if n.ended.Load() != nil {
					n.conn.SetReadDeadline(now)
				}
			}
			alive = now
			if !clock().Before(n.certEnd) {
				return fault.New(fault.CodeCertExpired, "the certificate of the node has run out").Hint("the node renews it by itself; look at its log")
			}
		}
		got, err := n.conn.Read(buf[have:])
		if have += got; got > 0 {
			rest, ferr := n.take(buf[:have], time.Now())
			if ferr != nil {
				return fault.New(fault.CodeFrameInvalid, "a frame of the node cannot be read").Because(ferr)
			}
			have = copy(buf, rest)
		}
		if err != nil {
			return err
		}
	}
}

// take serves all whole frames of b and gives the rest.
func (n *relayed) take(b []byte, now time.Time) (rest []byte, err error) {
	var counted batch
	defer func() {
		counted.into(&n.moved)
		counted.into(&n.relay.moved)
		for i, q := range n.rung {
			q.ring()
			n.rung[i] = nil
		}
		n.rung = n.rung[:0]
	}()
	for {
		kind, body, rest, need, err := relayproto.Next(b)
		if err != nil || need > 0 {
			return rest, err
		}
		switch kind {
		case relayproto.Packet:
			err = n.forward(body, now, &counted)
		case relayproto.Ping:
			var ping uint64
			if ping, err = relayproto.ParsePing(body); err == nil {
				n.out.put(func(q []byte) []byte { return relayproto.AppendPing(q, relayproto.Pong, ping) }, relayproto.Head+8)
			}
		}
		if err != nil {
			return rest, err
		}
		b = rest
	}
}

// write empties the queue until it is closed or the connection breaks.
func (n *relayed) write() {
	for {
		pile, more := n.out.take()
		if !more {
			return
		}
		b := pile.b
		for at := 0; at < len(b); at += limit.RelayWrite {
			piece := b[at:min(at+limit.RelayWrite, len(b))]
			n.conn.SetWriteDeadline(time.Now().Add(limit.RelayDead))
			if n.ended.Load() != nil { // its deadline may have been set just before
				n.conn.SetWriteDeadline(time.Now().Add(limit.RelayEnd))
			}
			if err := n.give(piece); err != nil {
				n.out.close(nil)
				n.conn.NetConn().Close() // the reader ends, too
				return
			}
			n.out.wrote(len(piece))
		}
		n.out.give(pile)
	}
}

// give writes a piece, of which all records leave at once.
func (n *relayed) give(piece []byte) (err error) {
	write := func() error {
		_, err := n.conn.Write(piece)
		return err
	}
	if len(piece) <= limit.RelayRecord {
		return write()
	}
	records, _ := n.relay.pool.Get().(*pile)
	records.b, err = carrier.Gather(n.conn, records.b, write)
	n.out.give(records)
	return err
}

// end tells the node why and ends the connection; the first reason stands. It does not wait.
func (n *relayed) end(why *fault.Fault) {
	if !n.ended.CompareAndSwap(nil, why) {
		return
	}
	n.relay.leave(n) // at once: it is absent, not slow
	now := time.Now()
	n.out.close(endFrame(why))
	n.conn.SetReadDeadline(now)
	n.conn.NetConn().SetWriteDeadline(now.Add(limit.RelayEnd)) // of a write that is under way, too
}

func (n *relayed) drain() { n.out.put(relayproto.AppendDrain, relayproto.Head) }

func endFrame(f *fault.Fault) []byte {
	return relayproto.AppendEnd(nil, relayproto.Reason{Code: string(f.Code), What: f.What, Why: f.Why, Next: f.Next})
}

// endRelay refuses a connection that is in no relay, and waits for who it is to read why.
func endRelay(ctx context.Context, conn *tls.Conn, err error) {
	defer run.OnDone(ctx, func() { conn.Close() })()
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(limit.RelayEnd))
	if _, err := conn.Write(endFrame(fault.From(err))); err != nil {
		return
	}
	conn.CloseWrite()
	io.Copy(io.Discard, io.LimitReader(conn, limit.RelayRead)) // what it sent, so that the answer is not lost with it
}

// endRelayed ends the connection of a node whose certificates are revoked, and counts it.
func (h *Hub) endRelayed(who id.Identity) int {
	c, err := h.clusters.get(who.Cluster)
	if err != nil {
		return 0
	}
	n := c.relay.find([]byte(who.Name))
	if n == nil {
		return 0
	}
	f := h.holders.refusal(who, n.certBeg)
	if f == nil {
		return 0
	}
	n.end(f)
	return 1
}

// drainRelays tells all nodes that the hub stops soon.
func (h *Hub) drainRelays() {
	for _, c := range h.clusters.all() {
		for _, n := range c.relay.all() {
			n.drain()
		}
	}
}

// status is what the relay of a cluster did; nil if no node has used it.
func (r *relay) status(detail bool) *admin.RelayStatus {
	all := r.all()
	if len(all) == 0 && r.moved.packets.Load()+r.moved.dropped()+r.full.Load() == 0 {
		return nil
	}
	out := &admin.RelayStatus{
		Nodes: len(all), Packets: r.moved.packets.Load(), Bytes: r.moved.bytes.Load(), Queued: r.holds() - int64(len(all))*limit.RelayCost,
		Refused: r.full.Load(),
		Dropped: admin.RelayDrops{
			Queue: r.moved.full.Load(), Rate: r.moved.rated.Load(), Absent: r.moved.absent.Load(), Foreign: r.moved.foreign.Load(),
		},
	}
	if !detail {
		return out
	}
	slices.SortFunc(all, func(a, b *relayed) int { return strings.Compare(a.name, b.name) })
	for _, n := range all[:min(len(all), limit.RelayListed)] {
		out.Connected = append(out.Connected, admin.RelayNode{
			Name: n.name, Peer: n.peer, Since: n.since.UTC(), CertificateEnd: n.certEnd.UTC(),
			Packets: n.moved.packets.Load(), Bytes: n.moved.bytes.Load(), Dropped: n.moved.dropped(), Lost: n.lost.Load(),
		})
	}
	return out
}
