// SPDX-License-Identifier: Apache-2.0

package relay

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
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/mesh/relayproto"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

// Node is a node's connection to the relay.
type Node struct {
	relay   *Relay
	Name    string // of the node, as its certificate has it
	conn    *tls.Conn
	out     *queue
	Peer    string
	since   time.Time
	certEnd time.Time
	Issued  time.Time // when its certificate was

	gone  atomic.Bool // it is no longer in the relay
	ended atomic.Pointer[fault.Fault]
	lost  atomic.Int64 // packets to it that found its queue full
	rate  allowance

	// Used by its reader alone.
	known  map[string]*Node
	lease  int64
	absent allowance
	woken  []*queue // that have got packets of what is being read

	moved Counts // what came from it
}

// Join gives a node's connection a place, and greets it. An older connection of the same
// node loses its place and ends.
func (r *Relay) Join(conn *tls.Conn, name string, issued, now time.Time) (*Node, error) {
	n := &Node{
		relay: r, Name: name, conn: conn, out: newQueue(r.pool), Peer: conn.RemoteAddr().String(), since: now,
		certEnd: conn.ConnectionState().PeerCertificates[0].NotAfter, Issued: issued, known: map[string]*Node{},
	}
	n.absent.set(relayAbsent)
	n.rate.set(r.nodeRate())
	greeting := relayproto.Greeting{Observed: observed(conn), Largest: limit.RelayDatagram, Rate: uint64(n.rate.granted())}
	n.out.put(func(q []byte) []byte { return relayproto.AppendWelcome(q, greeting) }, limit.RelayKept) // before any packet
	older, err := r.enter(n)
	if err != nil {
		return nil, err
	}
	if older != nil {
		older.End(fault.New(fault.CodeSessionLost, "a newer connection of this node has taken the place of this one").
			Hint("if two machines have one state directory, give each its own"))
	}
	return n, nil
}

// Serve forwards what the node sends until its connection ends, and says why it did. clock is
// that of certificates.
func (n *Node) Serve(ctx context.Context, clock func() time.Time) *fault.Fault {
	stop := run.OnDone(ctx, func() {
		n.End(fault.New(fault.CodeDraining, "the hub was stopped").Hint("the node tries again by itself"))
	})
	g := run.NewGroup(context.WithoutCancel(ctx))
	g.Do(func(context.Context) { n.write() })
	err := n.read(clock)
	stop()
	n.relay.leave(n)
	f := n.ended.Load()
	if f == nil {
		f = readFault(err)
	}
	n.End(f)
	g.Wait()
	n.conn.Close()
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
	at, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
}

// read takes the frames of a node until its connection ends.
func (n *Node) read(clock func() time.Time) error {
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
				return fault.New(fault.CodeCertExpired, "the certificate of the node has run out").
					Hint("the node renews it by itself; look at its log")
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
func (n *Node) take(b []byte, now time.Time) (rest []byte, err error) {
	var counted batch
	defer func() {
		counted.into(&n.moved)
		counted.into(&n.relay.moved)
		for i, q := range n.woken {
			q.signal()
			n.woken[i] = nil
		}
		n.woken = n.woken[:0]
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

// write sends what is queued until the queue is closed or the connection breaks.
func (n *Node) write() {
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
				n.conn.SetWriteDeadline(time.Now().Add(relayEnd))
			}
			if err := n.give(piece); err != nil {
				n.out.close(nil)
				n.conn.NetConn().Close() // the reader ends, too
				return
			}
			n.out.written(len(piece))
		}
		n.out.give(pile)
	}
}

// give writes a piece, of which all records leave at once.
func (n *Node) give(piece []byte) (err error) {
	write := func() error {
		_, err := n.conn.Write(piece)
		return err
	}
	if len(piece) <= limit.RelayRecord {
		return write()
	}
	records, _ := n.relay.pool.Get().(*buffer)
	records.b, err = carrier.Gather(n.conn, records.b, write)
	n.out.give(records)
	return err
}

// End tells the node why and ends the connection; the first reason stands. It does not wait.
func (n *Node) End(why *fault.Fault) {
	if !n.ended.CompareAndSwap(nil, why) {
		return
	}
	n.relay.leave(n) // at once: it is absent, not slow
	now := time.Now()
	n.out.close(endFrame(why))
	n.conn.SetReadDeadline(now)
	n.conn.NetConn().SetWriteDeadline(now.Add(relayEnd)) // of a write that is under way, too
}

func (n *Node) Drain() { n.out.put(relayproto.AppendDrain, relayproto.Head) }

func endFrame(f *fault.Fault) []byte {
	return relayproto.AppendEnd(nil, relayproto.Reason{Code: string(f.Code), What: f.What, Why: f.Why, Next: f.Next})
}

// Refuse tells a connection that has no place why, and waits a moment until that is read.
func Refuse(ctx context.Context, conn *tls.Conn, err error) {
	defer run.OnDone(ctx, func() { conn.Close() })()
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(relayEnd))
	if _, err := conn.Write(endFrame(fault.From(err))); err != nil {
		return
	}
	conn.CloseWrite()
	io.Copy(io.Discard, io.LimitReader(conn, limit.RelayRead)) // what it sent, so that the answer is not lost with it
}

// Status is what the relay of a cluster did; nil if no node has used it.
func (r *Relay) Status(detail bool) *admin.RelayStatus {
	all := r.All()
	if len(all) == 0 && r.moved.packets.Load()+r.moved.dropped()+r.full.Load() == 0 {
		return nil
	}
	out := &admin.RelayStatus{
		Nodes: len(all), Packets: r.moved.packets.Load(), Bytes: r.moved.bytes.Load(),
		Queued:  r.Holds() - int64(len(all))*relayCost,
		Refused: r.full.Load(),
		Dropped: admin.RelayDrops{
			Queue: r.moved.full.Load(), Rate: r.moved.rated.Load(), Absent: r.moved.absent.Load(),
			Foreign: r.moved.foreign.Load(),
		},
	}
	if !detail {
		return out
	}
	slices.SortFunc(all, func(a, b *Node) int { return strings.Compare(a.Name, b.Name) })
	for _, n := range all[:min(len(all), relayListed)] {
		out.Connected = append(out.Connected, admin.RelayNode{
			Name: n.Name, Peer: n.Peer, Since: n.since.UTC(), CertificateEnd: n.certEnd.UTC(),
			Packets: n.moved.packets.Load(), Bytes: n.moved.bytes.Load(), Dropped: n.moved.dropped(), Lost: n.lost.Load(),
		})
	}
	return out
}
