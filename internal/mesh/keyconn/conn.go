// SPDX-License-Identifier: Apache-2.0

package keyconn

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/netip"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
)

// Codes with which an end closes a connection.
const (
	codeDone  quic.ApplicationErrorCode = 0 // it has sent and read all
	codeEnded quic.ApplicationErrorCode = 1 // it gives up
)

// Conn is a connection with another node, after its handshake: a keyexchange.Conn.
type Conn struct {
	conn     *quic.Conn
	stream   *quic.Stream
	accepted bool
	cancel   context.CancelFunc
	stop     func() // the watch of the context
}

// newConn makes a connection that ends with ctx.
func newConn(ctx context.Context, cancel context.CancelFunc, q *quic.Conn, s *quic.Stream) *Conn {
	c := &Conn{conn: q, stream: s, cancel: cancel}
	c.stop = run.OnDone(ctx, func() { _ = q.CloseWithError(codeEnded, "") }) // it has no error
	return c
}

// Read reads what the other end has sent.
func (c *Conn) Read(b []byte) (int, error) { return c.stream.Read(b) }

// Write sends; it waits while the other end reads too little.
func (c *Conn) Write(b []byte) (int, error) { return c.stream.Write(b) }

// ConnectionState is that of TLS.
func (c *Conn) ConnectionState() tls.ConnectionState { return c.conn.ConnectionState().TLS }

// Ends are both ends: the other one as this node sees it, and the address of this machine that it talks to, which is
// not valid if the kernel has chosen it.
func (c *Conn) Ends() (to netip.AddrPort, local netip.Addr) {
	if a, ok := c.conn.RemoteAddr().(address); ok {
		return a.Ends()
	}
	return netip.AddrPort{}, netip.Addr{}
}

// Close sends what was written, waits until the other end has read all and closes too, and ends the connection. An
// error means that the other end may have lost some of it.
func (c *Conn) Close() error {
	defer c.cancel()
	defer c.stop()
	_ = c.stream.Close() // on a connection that has ended, which is seen next
	_ = c.stream.SetReadDeadline(time.Now().Add(closeWithin))
	_, err := io.Copy(io.Discard, io.LimitReader(c.stream, window))
	if err == nil && c.accepted { // the opener has all, once it ends the connection: what ends it is not sent again
		_ = run.Wait(c.conn.Context(), closeWithin)
	}
	if over := new(quic.ApplicationError); errors.As(err, &over) && over.Remote && over.ErrorCode == codeDone {
		err = nil
	}
	if err != nil {
		_ = c.conn.CloseWithError(codeEnded, "")
		to, _ := c.Ends()
		return failed(to, err)
	}
	return c.conn.CloseWithError(codeDone, "")
}

// failed says why there is no connection.
func failed(to netip.AddrPort, err error) error {
	what := "a connection to " + to.String()
	if f := new(fault.Fault); errors.As(err, &f) {
		return err // this node has refused the certificate
	}
	end := new(quic.TransportError)
	switch {
	case errors.As(err, &end) && end.Remote && end.ErrorCode == quic.ConnectionRefused:
		return fault.New(fault.CodeLimit, what).Whyf("it has as many connections as it takes").
			Hint("it is tried again; if that lasts, somebody floods that node: look at what comes to its port")
	case errors.As(err, &end) && end.Remote && end.ErrorCode.IsCryptoError():
		return fault.New(fault.CodeCertInvalid, what).Because(err).
			Hint("the other node may not know this one's key yet: it is tried again; compare with 'tombolo mesh status' there")
	}
	return fault.New(fault.CodeMeshAway, what).Because(err).
		Hint("is UDP let through to it? It is tried again")
}
