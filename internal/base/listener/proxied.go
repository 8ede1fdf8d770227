// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/proxyheader"
)

// proxied is a connection whose client is behind the load balancer that it comes from.
type proxied struct {
	*net.TCPConn
	client net.Addr
}

// RemoteAddr is the address of the client.
func (c *proxied) RemoteAddr() net.Addr { return c.client }

// NetConn and ReadThrough are the connection itself: below it nothing is read or changed.
func (c *proxied) NetConn() net.Conn { return c.TCPConn }

// ReadThrough implements what internal/stream/splice asks of a wrapper.
func (c *proxied) ReadThrough() net.Conn { return c.TCPConn }

// Proxied reads the PROXY header of a connection from a trusted load balancer, and not one
// byte more. The result has the address of the client; a connection from anybody else is
// returned as it is.
func Proxied(conn net.Conn, trusted proxyheader.Trusted, within time.Duration) (net.Conn, error) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok || len(trusted) == 0 {
		return conn, nil
	}
	peer := AddrPort(tcp.RemoteAddr())
	if !trusted.Has(peer.Addr()) {
		return conn, nil
	}
	tcp.SetReadDeadline(time.Now().Add(within))
	defer tcp.SetReadDeadline(time.Time{})
	var head []byte
	for {
		client, _, need, err := proxyheader.Read(head, peer)
		switch {
		case err != nil:
			return nil, err
		case need == 0 && client == peer:
			return conn, nil // a health check of the load balancer
		case need == 0:
			return &proxied{tcp, net.TCPAddrFromAddrPort(client)}, nil
		}
		begun := len(head)
		head = append(head, make([]byte, need)...)
		if _, err := io.ReadFull(tcp, head[begun:]); err != nil {
			return nil, proxyheader.Refuse("the connection ended within it, or it did not come in time").Because(err)
		}
	}
}

// AddrPort is a TCP address, an IPv4 one as such wherever it was accepted.
func AddrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := t.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port())
}
