// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
)

// Net makes a Conn of a network connection: CloseWrite where the connection
// has one, and a reset that a TCP peer sees as RST. A unix socket knows no
// reset: its peer sees the end, unless bytes of its own were still unread.
//
// A TCP or unix connection, and TLS over one with Below in between, is read
// without a buffer being held while it is silent (carrier.Patient). That goes for
// c itself; one that wraps it in order to give other bytes is read as it is. A TCP
// or unix connection can also be written without waiting (carrier.PromptWriter).
func Net(c net.Conn) Conn {
	n := netConn{c}
	p := newPatientConn(n)
	if p == nil {
		return n
	}
	switch c.(type) {
	case *net.TCPConn, *net.UnixConn: // itself, for a wrapper may write in its own way
		return newPromptConn(p)
	}
	return p
}

type netConn struct{ net.Conn }

// Read tells a peer that vanished below TLS from one that said it is done.
func (c netConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == io.EOF {
		if r, ok := below(c.Conn).(*record); ok && r.ended.Load() {
			err = io.ErrUnexpectedEOF
		}
	}
	return n, err
}

func (c netConn) CloseWrite() error {
	if h, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		err := h.CloseWrite()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		return err
	}
	return c.Close()
}

func (c netConn) Reset(uint32) error {
	// Below TLS: an abrupt end without close_notify is not taken for EOF.
	under := c.Conn
	for next := below(under); next != under; next = below(under) {
		under = next
	}
	if t, ok := under.(*net.TCPConn); ok {
		t.SetLinger(0)
	}
	return under.Close()
}

// below is the connection under TLS, or c itself.
func below(c net.Conn) net.Conn {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		return t.NetConn()
	}
	return c
}

// Below goes between a connection and TLS. Without it crypto/tls takes an end
// without close_notify for io.EOF if it falls between two records, so that a
// peer that was killed looks like one that has finished (RFC 8446, section 6.1).
// It also lets TLS be read without waiting, see patientConn.
func Below(c net.Conn) net.Conn { return &record{Conn: c} }

type record struct {
	net.Conn
	ended atomic.Bool // the transport ended; TLS reads no further than close_notify
	door  door
}

// NetConn is what lies below.
func (r *record) NetConn() net.Conn { return r.Conn }

func (r *record) Read(b []byte) (int, error) {
	n, err := r.door.read(r.Conn, b)
	if err == io.EOF {
		r.ended.Store(true)
	}
	return n, err
}
