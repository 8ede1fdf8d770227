// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"sync/atomic"

	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// callerKey is where the streams of a connection have their Caller.
type callerKey struct{}

func withCaller(ctx context.Context, conn net.Conn) context.Context {
	if c, ok := conn.(*boundedConn); ok {
		ctx = context.WithValue(ctx, callerKey{}, Caller{c.Conn, c.peer})
	}
	return ctx
}

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
	c := &boundedConn{Conn: conn, peer: carrier.UnixPeer(conn), places: l.places}
	return c, nil
}

// boundedConn gives its place back when it is closed.
type boundedConn struct {
	net.Conn
	peer   wire.Peer
	places *run.Limiter
	closed atomic.Bool
}

// Below says that it is read and written as its connection is.
func (c *boundedConn) Below() net.Conn { return c.Conn }

func (c *boundedConn) Close() error {
	if !c.closed.Swap(true) {
		defer c.places.Release()
	}
	return c.Conn.Close()
}

// callerOf is who opened a stream.
func callerOf(ctx context.Context) (Caller, bool) {
	at, ok := ctx.Value(callerKey{}).(Caller)
	return at, ok
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
