// SPDX-License-Identifier: Apache-2.0

// Package grpcwire serves the streams of one gRPC method over HTTP/2, with little memory for a connection that is idle
// and little work for one that has a single short stream (decision 0047). It does not know messages, compression,
// unary calls, server push, priorities, nor TLS.
//
//	                 ┌─ frames for a stream ──► Stream.Read, which its handler calls
//	peer ──► reader ─┤
//	                 └─ answers ──► writer ◄── Stream.Send
//
// One goroutine reads a connection, and never waits for another or for the peer to take something. What it has to
// answer is written by whoever writes next, or at the latest when it has nothing more to read.
package grpcwire

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/mem"

	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/run"
)

// Server serves one method.
type Server struct {
	Service, Method string
	Handle          func(*Stream) error                                   // its error is the stream's status
	Conn            func(ctx context.Context, c net.Conn) context.Context // for all streams of a connection

	Metadata  []string        // names that are kept for Stream.Context
	Streams   int             // of a connection at a time
	Window    int             // of a stream
	Burst     int             // window of a connection, given back as it is read: it bounds a burst, not the memory
	Header    int             // bytes of a header list, each of its fields with 32 more
	Handshake time.Duration   // bound of a connection's first frames
	Keepalive time.Duration   // silence before a ping; 0: 2 hours
	Drains    <-chan struct{} // when it is closed, callers are told to open streams elsewhere; nil: never
	Pool      mem.BufferPool
	Log       *slog.Logger

	policy policy

	mu    sync.Mutex
	conns map[*conn]struct{} // nil: no more are served
}

// policy bounds what a peer may do that costs it nothing.
type policy struct {
	pingEvery, pingIdle time.Duration // between pings of a peer that gets nothing, with streams and without
	pingAnswer          time.Duration // how long a ping waits for anything
}

func (s *Server) defaults() {
	if s.Keepalive == 0 {
		s.Keepalive = 2 * time.Hour
	}
	s.conns = map[*conn]struct{}{}
	s.policy = policy{pingEvery: 5 * time.Minute, pingIdle: 2 * time.Hour, pingAnswer: 20 * time.Second} // gRPC's own
}

// Serve serves the connections of ln until ctx ends; it owns ln. When it returns, every handler has.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	s.defaults()
	g := run.NewGroup(ctx)
	stop := run.OnDone(ctx, func() {
		ln.Close()
		s.stop(g)
	})
	g.Do(func(ctx context.Context) {
		select {
		case <-s.Drains:
			s.drain()
		case <-ctx.Done():
		}
	})
	err := listener.Accept(ctx, ln, func(raw net.Conn) {
		g.Do(func(ctx context.Context) {
			if why := s.serve(ctx, g, raw); why != nil {
				s.Log.Debug("a caller's connection has ended", "reason", why)
			}
		})
	})
	stop()
	if err == nil && ctx.Err() == nil {
		err = net.ErrClosed // by somebody else
	}
	s.stop(g)
	g.Stop()
	if ended := g.Wait(); ended != nil {
		return ended
	}
	return err
}

// begins notes a connection, to be closed when the server stops: a hook in the context would take more memory.
func (s *Server) begins(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil {
		return false
	}
	s.conns[c] = struct{}{}
	if s.draining() {
		c.goAway()
	}
	return true
}

func (s *Server) ends(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// draining reports whether no stream may be opened any more; those that are open go on.
func (s *Server) draining() bool {
	select {
	case <-s.Drains:
		return true
	default:
		return false
	}
}

// drain tells all callers, once draining.
func (s *Server) drain() {
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.conns))
	s.mu.Unlock()
	for _, c := range all {
		c.goAway()
		c.out.flush()
	}
}

// goAway tells the caller to open streams on another connection. Those that are under way meanwhile are refused, which
// tells it that it may open them again (RFC 9113, section 6.8).
func (c *conn) goAway() {
	_ = c.out.answer(func(b []byte) []byte { // a caller that reads nothing is ended by who notices
		if c.away {
			return b
		}
		c.away = true
		return appendGoAway(b, windowMost, http2.ErrCodeNo, "the server is stopping")
	})
}

// stop closes all; TLS may wait for a peer to take its last word.
func (s *Server) stop(g *run.Group) {
	s.mu.Lock()
	all := s.conns
	s.conns = nil
	s.mu.Unlock()
	for c := range all {
		g.Do(func(context.Context) { c.raw.Close() })
	}
}
