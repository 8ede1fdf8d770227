// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/socket"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

// mainPort is where callers of both protocols and browsers come to.
type mainPort struct {
	connections *connections
	certs       *certificates // nil: without TLS
	settings    *atomic.Pointer[Reloadable]
	answers     *answers
	metrics     *telemetry.Discovery
	log         *slog.Logger
}

// serve accepts connections. What a connection is for follows from ALPN,
// and where that says nothing, from its first bytes:
//
//	TLS with ALPN http/1.1, or bytes of HTTP/1.1    the landing page
//	TLS with ALPN h2, or the preface of HTTP/2      gRPC
//
// A caller that offers both is a browser, and gets the page. Until then a connection is
// undecided: their number is bounded, the oldest makes room for a new one, and each has
// discoveryBegin.
func (p *mainPort) serve(ctx context.Context, ln net.Listener, calls, pages *listener.Handoff) error {
	stop := run.OnDone(ctx, func() { ln.Close() })
	defer stop()
	g := run.NewGroup(ctx)
	unknown := newUndecided(mostUndecided, p.refused)
	err := listener.Accept(ctx, ln, func(raw net.Conn) {
		conn, err := p.connections.enter(raw)
		if err != nil {
			p.refused(raw, err)
			raw.Close()
			return
		}
		g.Do(func(ctx context.Context) {
			known := unknown.add(raw)
			to, err := p.greet(ctx, conn)
			known()
			switch {
			case err != nil:
				p.refused(raw, err)
				conn.Close()
			case to.http2:
				calls.Hand(to)
			default:
				pages.Hand(to)
			}
		})
	})
	return errors.Join(err, g.Wait())
}

func (p *mainPort) refused(conn net.Conn, err error) {
	f := fault.From(err)
	p.metrics.Refused.WithLabelValues(string(f.Code)).Inc()
	p.log.Debug("connection refused", "peer", conn.RemoteAddr(), "code", f.Code, "reason", f.Error())
}

// connections owns the places of connections.
type connections struct {
	most     int // by the descriptors that there are
	settings *atomic.Pointer[Reloadable]
	callers  *callers
	open     atomic.Int64
}

func newConnections(settings *atomic.Pointer[Reloadable], c *callers) *connections {
	files := socket.Descriptors()
	return &connections{most: max(1, files-socket.Reserve(files)), settings: settings, callers: c}
}

// enter takes a place for a connection, which it gives back when it is closed.
// Behind a trusted proxy there are many callers, which are counted with their calls.
func (c *connections) enter(raw net.Conn) (net.Conn, error) {
	settings := c.settings.Load()
	if n := c.open.Add(1); n > int64(min(settings.limits.Connections, c.most)) {
		c.open.Add(-1)
		return nil, fault.New(fault.CodeLimit, "the connection is refused").Whyf("there are %d, which is the bound", n-1).
			Hint("raise limits.connections of the service, and its open files (LimitNOFILE)")
	}
	leave := func() { c.open.Add(-1) }
	if at := addrOf(raw.RemoteAddr()).Addr(); at.IsValid() && !within(settings.proxies, at) {
		release, err := c.callers.hold(at, holdConnection, 1, settings.limits.ConnectionsPerAddress,
			settings.limits.Connections)
		if err != nil {
			leave()
			return nil, err
		}
		both := leave
		leave = func() { release(); both() }
	}
	return &entered{Conn: raw, leave: sync.OnceFunc(leave)}, nil
}

// entered gives its place back when it is closed.
type entered struct {
	net.Conn
	leave func()
}

func (c *entered) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// greeted is a connection whose protocol is known.
type greeted struct {
	net.Conn
	to     *answers
	first  []byte // that were read to know it
	http2  bool
	deaf   atomic.Bool // its answers were not read, and it is ended
	closed atomic.Bool
}

// Write implements net.Conn. gRPC writes at most 32 KiB at once.
func (c *greeted) Write(b []byte) (int, error) {
	if !c.http2 {
		return c.Conn.Write(b) // the HTTP server has deadlines of its own
	}
	c.SetWriteDeadline(time.Now().Add(c.to.patience))
	n, err := c.Conn.Write(b)
	if errors.Is(err, os.ErrDeadlineExceeded) && !c.closed.Load() {
		c.to.deaf(c) // gRPC leaves that to the reader
	}
	return n, err
}

// Close implements net.Conn.
func (c *greeted) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}

// cut ends the connection: its reader closes it.
func (c *greeted) cut() { c.SetDeadline(time.Unix(1, 0)) }

func (c *greeted) Read(b []byte) (int, error) {
	if len(c.first) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.first)
	if c.first = c.first[n:]; len(c.first) == 0 {
		c.first = nil
	}
	return n, nil
}

// greet does the handshake, if there is one, and finds out what comes.
func (p *mainPort) greet(ctx context.Context, conn net.Conn) (*greeted, error) {
	ctx, cancel := context.WithTimeout(ctx, discoveryBegin)
	defer cancel()
	below := conn
	stop := run.OnDone(ctx, func() { below.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		stop()
		below.SetDeadline(time.Time{}) // it may have ended this very moment
	}()
	bad := func(what string, err error) error {
		return fault.New(fault.CodeRequest, what).Because(err).
			Hint("speak gRPC over HTTP/2, or HTTP/1.1; with TLS if the service has it")
	}
	if p.certs != nil {
		over := tls.Server(conn, p.certs.get(time.Now(), *p.settings.Load()))
		if err := over.HandshakeContext(ctx); err != nil {
			return nil, bad("the TLS handshake failed", err)
		}
		conn = over
		switch over.ConnectionState().NegotiatedProtocol {
		case alpnHTTP2:
			return &greeted{Conn: conn, to: p.answers, http2: true}, nil
		case alpnHTTP1:
			return &greeted{Conn: conn, to: p.answers}, nil
		}
	}
	first, http2, err := sniff(conn.Read)
	if err != nil {
		return nil, bad("the connection said nothing", err)
	}
	return &greeted{Conn: conn, to: p.answers, first: first, http2: http2}, nil
}

// The ALPN names of HTTP (RFC 9113 section 3.1, RFC 7301 section 6). Ours comes in
// this order: a caller that offers both gets the first.
const alpnHTTP1, alpnHTTP2 = "http/1.1", "h2"

// preface is how every HTTP/2 connection begins (RFC 9113 section 3.4).
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// sniff reads until it is sure whether HTTP/2 comes, and no further than that.
func sniff(read func([]byte) (int, error)) (first []byte, http2 bool, err error) {
	buf := make([]byte, len(preface))
	for n := 0; ; {
		m, err := read(buf[n:])
		n += m
		switch {
		case n > 0 && string(buf[:n]) != preface[:n]:
			return buf[:n], false, nil
		case n == len(preface):
			return buf, true, nil
		case err != nil:
			return nil, false, err
		}
	}
}

// mostUndecided bounds the undecided connections: handshakes of a whole site that reconnects at once.
const mostUndecided = 4096

// undecided are the connections that have not shown their protocol yet. When there are too
// many, the oldest loses its place.
type undecided struct {
	most  int
	shed  func(net.Conn, error)
	mu    sync.Mutex
	order list.List // of net.Conn
}

func newUndecided(most int, shed func(net.Conn, error)) *undecided {
	return &undecided{most: most, shed: shed}
}

func (s *undecided) add(conn net.Conn) (known func()) {
	s.mu.Lock()
	var old net.Conn
	if s.order.Len() >= s.most {
		old = s.order.Remove(s.order.Front()).(net.Conn)
	}
	place := s.order.PushBack(conn)
	s.mu.Unlock()
	if old != nil {
		s.shed(old, fault.New(fault.CodeLimit, "the connection is refused").
			Whyf("it said nothing, and %d others wait", s.most))
		old.SetDeadline(time.Unix(1, 0)) // its own goroutine closes it
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.order.Remove(place) // nothing, if it was shed
	}
}
