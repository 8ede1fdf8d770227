// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"sync"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"

	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// socketCredentials is no security of its own, which a unix socket's permissions
// are: it notes who connected, for the streams of the connection.
type socketCredentials struct{}

// socketPeer is what it notes.
type socketPeer struct {
	credentials.CommonAuthInfo
	Caller
}

// AuthType names it for gRPC.
func (socketPeer) AuthType() string { return "unix" }

// ServerHandshake lets the connection pass.
func (socketCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	out := socketPeer{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}}
	if c, ok := conn.(*boundedConn); ok {
		out.Caller = Caller{c.Conn, c.peer}
	}
	return conn, out, nil
}

// ClientHandshake is not for a frontend.
func (socketCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are a server's")
}

// Info describes it for gRPC.
func (socketCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "unix"}
}

// Clone is a copy.
func (c socketCredentials) Clone() credentials.TransportCredentials { return c }

// OverrideServerName is of no meaning here.
func (socketCredentials) OverrideServerName(string) error { return nil }

// boundedListener has so many connections at a time and no more; others wait.
type boundedListener struct {
	net.Listener
	ctx    context.Context // of Accept
	places *run.Limiter
}

// Accept waits for a place and for a connection.
func (l *boundedListener) Accept() (net.Conn, error) {
	if err := l.places.Acquire(l.ctx); err != nil {
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		l.places.Release()
		return nil, err
	}
	c := &boundedConn{Conn: conn, peer: carrier.UnixPeer(conn), release: sync.OnceFunc(l.places.Release)}
	c.patient, _ = splice.Net(conn).(carrier.Patient)
	return c, nil
}

// boundedConn gives its place back when it is closed.
type boundedConn struct {
	net.Conn
	peer    wire.Peer
	release func()
	patient carrier.Patient // nil: it is no plain socket
}

// ReadOnReady is known to gRPC, which reads by it where it is there, so that a connection has no buffer while nothing
// comes.
func (c *boundedConn) ReadOnReady(size int, pool mem.BufferPool) (buf *[]byte, n int, err error) {
	take := func() []byte { buf = pool.Get(size); return *buf }
	give := func() { pool.Put(buf) }
	if c.patient != nil {
		if n, err = c.patient.ReadWhenReady(take, give); n == 0 {
			return nil, 0, err
		}
		return buf, n, err
	}
	if n, err = c.Conn.Read(take()); n == 0 {
		give()
		return nil, 0, err
	}
	return buf, n, err
}

func (c *boundedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// callerOf is who opened a stream.
func callerOf(ctx context.Context) (Caller, bool) {
	if p, ok := peer.FromContext(ctx); ok {
		if s, ok := p.AuthInfo.(socketPeer); ok {
			return s.Caller, true
		}
	}
	return Caller{}, false
}

// Caller is who is at the other end of a frontend's connection.
type Caller struct {
	conn net.Conn
	peer wire.Peer
}

// CallerOf is that of a connection.
func CallerOf(conn net.Conn) Caller { return Caller{conn, carrier.UnixPeer(conn)} }

// Name puts into a dial what is known of its caller once something has come from it: over TLS the common name of its
// certificate and its address.
func (c Caller) Name(d *wire.Dial) {
	d.Peer = c.peer
	conn := c.conn
	if through, ok := conn.(interface{ ReadThrough() net.Conn }); ok {
		conn = through.ReadThrough()
	}
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return
	}
	if chain := secure.ConnectionState().PeerCertificates; len(chain) > 0 {
		d.Caller = cmp.Or(chain[0].Subject.CommonName, "-")
	}
	if at, err := netip.ParseAddrPort(secure.RemoteAddr().String()); err == nil {
		d.Source = at.Addr().Unmap().WithZone("")
	}
}
