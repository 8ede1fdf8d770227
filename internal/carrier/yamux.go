// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-yamux/v5"

	"github.com/tombolo-io/tombolo/internal/limit"
)

// The agent is the yamux client (odd stream ids), the hub its server.

// Client makes the agent's end of a session over conn. The peer may have at
// most incoming streams open towards us; more are reset unseen.
func Client(conn net.Conn, incoming uint32) (Session, error) {
	return newYamux(conn, incoming, yamux.Client)
}

// Server makes the hub's end of a session over conn, with the same bound.
func Server(conn net.Conn, incoming uint32) (Session, error) {
	return newYamux(conn, incoming, yamux.Server)
}

type yamuxMaker func(net.Conn, *yamux.Config, func() (yamux.MemoryManager, error)) (*yamux.Session, error)

// settings: liveness is ours (pings on the control stream count any received
// byte), so the library's keepalive is off. Windows start at 256 KiB and grow
// with the path to 16 MiB, per stream only: no receive limit is shared.
func settings(incoming uint32) *yamux.Config {
	c := yamux.DefaultConfig()
	c.EnableKeepAlive = false
	c.MaxIncomingStreams = incoming
	c.InitialStreamWindowSize = 256 << 10
	c.MaxStreamWindowSize = 16 << 20
	c.MaxMessageSize = 32 << 10
	c.ConnectionWriteTimeout = limit.DeadIdle
	c.LogOutput = io.Discard
	return c
}

type yamuxSession struct {
	s    *yamux.Session
	conn *meter
}

func newYamux(conn net.Conn, incoming uint32, mk yamuxMaker) (Session, error) {
	m := &meter{Conn: conn}
	m.last.Store(time.Now().UnixNano())
	s, err := mk(m, settings(incoming), nil)
	if err != nil {
		return nil, err
	}
	return &yamuxSession{s: s, conn: m}, nil
}

func (y *yamuxSession) OpenStream(ctx context.Context) (Stream, error) {
	s, err := y.s.OpenStream(ctx)
	if err != nil {
		return nil, err
	}
	return yamuxStream{s}, nil
}

func (y *yamuxSession) AcceptStream(ctx context.Context) (Stream, error) {
	// The library's accept knows no context; a caller that gives up closes the
	// session, so the only thing to check is a context that ended before.
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s, err := y.s.AcceptStream()
	if err != nil {
		return nil, err
	}
	return yamuxStream{s}, nil
}

// Close closes the connection first: a peer that no longer reads must not
// delay the end by the time that a farewell takes to write.
func (y *yamuxSession) Close() error {
	err := y.conn.Close()
	return errors.Join(err, y.s.Close())
}

func (y *yamuxSession) Done() <-chan struct{} { return y.s.CloseChan() }

func (y *yamuxSession) RemoteAddr() net.Addr { return y.conn.RemoteAddr() }

func (y *yamuxSession) Traffic() Traffic {
	return Traffic{y.conn.in.Load(), y.conn.out.Load(), time.Unix(0, y.conn.last.Load())}
}

type yamuxStream struct{ *yamux.Stream }

func (s yamuxStream) Read(b []byte) (int, error) {
	n, err := s.Stream.Read(b)
	return n, streamError(err)
}

func (s yamuxStream) Write(b []byte) (int, error) {
	n, err := s.Stream.Write(b)
	return n, streamError(err)
}

func (s yamuxStream) Reset(code uint32) error { return s.ResetWithError(code) }

func streamError(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	var reset *yamux.StreamError
	if errors.As(err, &reset) && reset.Remote {
		return &ResetError{reset.ErrorCode}
	}
	return err
}

// meter counts what a connection carries and remembers when it last heard of the peer.
type meter struct {
	net.Conn
	in, out, last atomic.Int64
}

func (m *meter) Read(b []byte) (int, error) {
	n, err := m.Conn.Read(b)
	if n > 0 {
		m.in.Add(int64(n))
		m.last.Store(time.Now().UnixNano())
	}
	return n, err
}

func (m *meter) Write(b []byte) (int, error) {
	n, err := m.Conn.Write(b)
	m.out.Add(int64(n))
	return n, err
}
