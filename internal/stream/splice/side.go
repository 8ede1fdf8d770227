// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"io"
	"net"
)

// Side is a network connection in the form of a stream, for who stands between it and a splice and counts its bytes.
// See carrier.Stream for what its methods promise.
type Side struct {
	net.Conn
	splicer *Splicer
	conn    Conn
}

// Side makes one of a connection that was dialled.
func (s *Splicer) Side(c net.Conn) *Side { return &Side{Conn: c, splicer: s, conn: Net(c)} }

// CloseWrite ends our direction.
func (d *Side) CloseWrite() error { return d.conn.CloseWrite() }

// Reset ends both directions; a TCP peer sees RST.
func (d *Side) Reset(code uint32) error { return d.conn.Reset(code) }

// CopyFrom sends the bytes of src until src ends, or the connection takes no more.
func (d *Side) CopyFrom(src io.Reader, moved func(n int)) (srcErr, err error) {
	return d.splicer.move(d.conn, src, moved)
}

// CopyTo writes what comes to dst until the connection ends, or dst takes no more.
func (d *Side) CopyTo(dst io.Writer, moved func(n int)) (dstErr, err error) {
	err, dstErr = d.splicer.move(dst, d.conn, moved)
	return dstErr, err
}
