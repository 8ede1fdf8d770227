// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

// sessions is the tunnel's end at the load, the hub's: agents dial it.
type sessions struct {
	t    transport
	ln   net.Listener
	conf *tls.Config

	mu     sync.Mutex
	all    []carrier.Session // by number
	failed error
	turn   atomic.Uint64
	ready  chan struct{} // closed when all sessions are there, or one failed
	have   int
}

// greeting stands at the begin of each connection of a tunnel: the number of the
// session, and whether it is the session's first connection.
type greeting struct {
	session uint32
	first   bool
}

const greetingSize = 5

func (g greeting) bytes() []byte {
	b := binary.BigEndian.AppendUint32(nil, g.session)
	if g.first {
		return append(b, 1)
	}
	return append(b, 0)
}

func readGreeting(r io.Reader) (greeting, error) {
	var b [greetingSize]byte
	_, err := io.ReadFull(r, b[:])
	return greeting{binary.BigEndian.Uint32(b[:]), b[4] == 1}, err
}

func listenSessions(ctx context.Context, t transport) (*sessions, error) {
	conf, err := t.Creds.tls()
	if err != nil {
		return nil, err
	}
	ln, err := listener.Listen(ctx, "the address of the measurement", net.JoinHostPort(t.ListenAt, "0"))
	if err != nil {
		return nil, err
	}
	s := &sessions{t: t, ln: ln, conf: conf, all: make([]carrier.Session, t.Sessions), ready: make(chan struct{})}
	go s.accept()
	return s, nil
}

func (s *sessions) accept() {
	for {
		raw, err := s.ln.Accept()
		if err != nil {
			return // closed
		}
		go func() {
			if err := s.join(raw); err != nil {
				raw.Close()
				s.note(err)
			}
		}()
	}
}

// join makes a session of a connection, or adds it to one.
func (s *sessions) join(raw net.Conn) error {
	if err := carrier.MarkSession(raw); err != nil {
		return err
	}
	conn := tls.Server(carrier.Wrap(raw), s.conf)
	conn.SetDeadline(time.Now().Add(limit.Handshake))
	g, err := readGreeting(conn)
	if err != nil {
		return err
	}
	conn.SetDeadline(time.Time{})
	if int(g.session) >= len(s.all) {
		return fmt.Errorf("there is no session %d", g.session)
	}
	if !g.first {
		s.mu.Lock()
		session := s.all[g.session]
		s.mu.Unlock()
		if session == nil {
			return fmt.Errorf("session %d has no first connection yet", g.session)
		}
		return session.Attach(conn)
	}
	session, err := s.t.server(conn, s.t.options())
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[g.session] = session
	if s.have++; s.have == len(s.all) && s.failed == nil {
		close(s.ready)
	}
	return nil
}

// options bound the peer's streams above what any measurement opens.
func (t transport) options() carrier.Options {
	return carrier.Options{Incoming: 2 * limit.StreamsPerSession, Connections: t.Connections}
}

// note keeps the first failure and ends the waiting for sessions.
func (s *sessions) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil && s.have < len(s.all) {
		s.failed = err
		close(s.ready)
	}
}

// await waits until all sessions are there.
func (s *sessions) await(ctx context.Context) error {
	select {
	case <-s.ready:
	case <-ctx.Done():
		return fmt.Errorf("the agents' sessions did not come: %w", context.Cause(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

func (s *sessions) open(ctx context.Context, first []byte) (stream, error) {
	st, err := s.all[s.turn.Add(1)%uint64(len(s.all))].OpenStream(ctx, first)
	if err != nil {
		return nil, err
	}
	return muxed{st}, nil
}

// connections counts the live connections of all sessions.
func (s *sessions) connections() (n int) {
	for _, session := range s.all {
		n += session.Info().Connections
	}
	return n
}
