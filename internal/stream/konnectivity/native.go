// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/heartbeat"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
	pb "github.com/tombolo-io/tombolo/proto"
)

// ALPN is what an agent of ours offers beside h2, and a server of ours prefers. The connection then has no gRPC: after
// a Greeting of each end it is a session, whose streams are the connections, each with credit and half-close.
//
//	agent ── Greeting: its metadata ──► server
//	      ◄── Greeting: the server's, or why it is refused ──
//	      ── stream: control, with Drain ──►
//	      ◄── stream for each dial: DialRequest, DialReply, bytes ──
const ALPN = "tombolo-konnectivity/1"

// dispatcher takes connections with our ALPN away from gRPC.
type dispatcher struct {
	credentials.TransportCredentials // of TLS
	native                           func(*tls.Conn)
}

// ServerHandshake tells the two kinds apart.
func (d *dispatcher) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := d.TransportCredentials.ServerHandshake(carrier.Wrap(raw))
	if err != nil {
		return conn, info, err
	}
	if c, ok := conn.(*tls.Conn); ok && c.ConnectionState().NegotiatedProtocol == ALPN {
		carrier.MarkSession(raw) // without it only a dead peer is noticed later
		d.native(c)
		return nil, nil, credentials.ErrConnDispatched
	}
	return conn, info, nil
}

// Clone is a copy.
func (d *dispatcher) Clone() credentials.TransportCredentials {
	return &dispatcher{d.TransportCredentials.Clone(), d.native}
}

// Made are the credentials of a connection on which TLS has been agreed already, for the client that gRPC has on it.
func Made(conn *tls.Conn) credentials.TransportCredentials { return made{conn.ConnectionState()} }

type made struct{ state tls.ConnectionState }

// ClientHandshake finds it done.
func (m made) ClientHandshake(_ context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return conn, credentials.TLSInfo{State: m.state,
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}, nil
}

// ServerHandshake is not for a client.
func (made) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are a client's")
}

// Info describes it for gRPC.
func (m made) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone is a copy.
func (m made) Clone() credentials.TransportCredentials { return m }

// OverrideServerName is of no meaning here.
func (made) OverrideServerName(string) error { return nil }

// greeting makes one of metadata.
func greeting(head metadata.MD) *pb.Greeting {
	g := &pb.Greeting{}
	for key, values := range head {
		for _, v := range values {
			g.Metadata = append(g.Metadata, &pb.Pair{Key: key, Value: v})
		}
	}
	return g
}

// readGreeting reads the peer's, or why it refuses us.
func readGreeting(r io.Reader) (metadata.MD, error) {
	var g pb.Greeting
	if err := wire.Read(r, limit.RequestHeader, &g); err != nil {
		return nil, err
	}
	if f := wire.FromFault(g.GetRefusal()); f != nil {
		return nil, refusal{f}
	}
	head := metadata.MD{}
	for _, p := range g.GetMetadata() {
		head.Append(p.GetKey(), p.GetValue())
	}
	return head, nil
}

// newBeat keeps the control stream of a session. The pace is that of an idle one: a connection shall outlive a path
// that is away for seconds, as it does with the reference.
func newBeat(s carrier.Session, control carrier.Stream, onFrame func(*pb.Control)) *heartbeat.Beat {
	return heartbeat.New(heartbeat.Options{
		Stream: control, Done: s.Done(), OnFrame: onFrame, End: func() { s.Close() },
		LastReceived: func() time.Time { return s.Traffic().LastReceived }, OnRTT: func(time.Duration) {},
	})
}

// native is a connection on a session. Its pieces are counted as packets are.
type native struct {
	carrier.Stream
	carrier.Holder // the same stream
	link           *link
	over           func() // once
}

func newNative(s carrier.Stream, l *link, over func()) *native {
	holder, _ := s.(carrier.Holder) // as every stream of the mux
	return &native{s, holder, l, sync.OnceFunc(func() {
		l.observe.Packet(ToAgent, closeRequest)
		l.observe.Packet(FromAgent, closeResponse)
		over()
	})}
}

// Agent is the id of the agent that carries the connection, for records.
func (n *native) Agent() string { return n.link.agent }

// counting counts what moves in a segment, and calls moved, if there is one.
func (n *native) counting(segment Segment, moved func(int)) func(int) {
	return func(bytes int) {
		n.link.observe.Packet(segment, data)
		if moved != nil {
			moved(bytes)
		}
	}
}

// Read implements carrier.Stream.
func (n *native) Read(b []byte) (int, error) {
	got, err := n.Stream.Read(b)
	if got > 0 {
		n.link.observe.Packet(n.link.inbound(), data)
	}
	return got, err
}

// Write implements carrier.Stream.
func (n *native) Write(b []byte) (int, error) {
	n.link.observe.Packet(n.link.outbound(), data)
	return n.Stream.Write(b)
}

// CopyFrom implements carrier.Stream.
func (n *native) CopyFrom(src io.Reader, moved func(int)) (srcErr, err error) {
	return n.Stream.CopyFrom(src, n.counting(n.link.outbound(), moved))
}

// CopyTo implements carrier.Stream.
func (n *native) CopyTo(dst io.Writer, moved func(int)) (dstErr, err error) {
	return n.Stream.CopyTo(dst, n.counting(n.link.inbound(), moved))
}

// Close implements carrier.Stream.
func (n *native) Close() error {
	defer n.over()
	return n.Stream.Close()
}

// Reset implements carrier.Stream.
func (n *native) Reset(code uint32) error {
	defer n.over()
	return n.Stream.Reset(code)
}

// isReset says whether the peer has reset a stream.
func isReset(err error) bool {
	var reset *carrier.ResetError
	return errors.As(err, &reset)
}

// ended is why a session is over.
func ended(why string, err error) *fault.Fault {
	return fault.New(fault.CodeSessionLost, why).Because(err)
}
