// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/socket"
)

// few is a listener whose callers ask for little: at most so many connections are
// open. One more costs one its place that has kept us waiting for its grace; if
// none has, it waits, and with it everybody behind it, in the kernel's queue.
//
//	accept ──► place free ────────────────────────────────────────► in
//	             └─ none: is the new one itself silent for long ──► shed it
//	                        └─ else one of the others is ─────────► shed that, in
//	                                  └─ none ────────────────────► wait for one, or for a place
//
// Time in the queue counts, so that silent ones are shed as fast as they can be
// accepted once they have waited there, and a probe, whose first bytes have come
// meanwhile, is behind a flood for little more than one grace. Who is answered, or
// has sent what we did not read yet, waits for us and keeps its place.
type few struct {
	net.Listener
	most   int
	shed   func() // counts one that lost its place
	unread func(net.Conn) int
	freed  chan struct{} // signalled when a place is given back
	closed chan struct{}
	once   sync.Once

	mu   sync.Mutex
	open map[*oneOfFew]struct{}
}

// Few bounds the connections that a listener has open at a time; shed counts who
// loses its place. The server's handler is to be Served.
func Few(ln net.Listener, most int, shed func()) net.Listener {
	return &few{
		Listener: ln, most: most, shed: shed, unread: socket.Unread, freed: make(chan struct{}, 1),
		closed: make(chan struct{}),
		open:   map[*oneOfFew]struct{}{},
	}
}

func (l *few) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.enter(conn, time.Now().Add(-quiet(conn))); c != nil {
			return c, nil
		}
	}
}

func (l *few) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// enter gives a connection a place, or nil: it has lost its own.
func (l *few) enter(conn net.Conn, since time.Time) net.Conn {
	c := &oneOfFew{Conn: conn, of: l, since: since}
	for {
		gone, wait := l.room(c, time.Now())
		if gone != nil {
			gone.Conn.Close()
			l.shed()
		}
		if gone == c {
			return nil
		}
		if wait <= 0 {
			return c
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-l.freed:
		case <-l.closed:
			timer.Stop()
			conn.Close()
			return nil
		}
		timer.Stop()
	}
}

// room takes a place for c. Where there is none it says whom to shed for it, which
// may be c, or how long to wait.
func (l *few) room(c *oneOfFew, now time.Time) (gone *oneOfFew, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) >= l.most {
		if c.patience(now) <= 0 {
			return c, 0
		}
		wait = limit.SilentLeast
		for other := range l.open {
			p := other.patience(now)
			if wait = min(wait, max(p, time.Millisecond)); p <= 0 && (gone == nil || other.since.Before(gone.since)) {
				gone = other
			}
		}
		if gone == nil {
			return nil, wait
		}
		delete(l.open, gone)
	}
	l.open[c], c.placed = struct{}{}, true
	return gone, 0
}

// oneOfFew gives its place back when it is closed.
type oneOfFew struct {
	net.Conn
	of *few

	// Under the lock of few.
	since   time.Time // when it moved last
	placed  bool
	busy    int // requests that are being answered
	reading bool
	writing bool
}

// patience is how much longer it may keep us waiting.
func (c *oneOfFew) patience(now time.Time) time.Duration {
	grace := limit.SilentLeast
	switch {
	case c.writing: // it does not read its answer
		grace = limit.SilentGrace
	case c.busy > 0, c.placed && !c.reading: // it waits for us
		return grace
	}
	left := c.since.Add(grace).Sub(now)
	if left <= 0 && !c.writing && c.of.unread(c.Conn) > 0 { // so it does here
		return grace
	}
	return left
}

func (c *oneOfFew) note(fn func()) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.since = time.Now()
	fn()
}

func (c *oneOfFew) Read(b []byte) (int, error) {
	c.of.mu.Lock()
	c.reading = true
	c.of.mu.Unlock()
	n, err := c.Conn.Read(b)
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.reading = false
	if n > 0 {
		c.since = time.Now()
	}
	return n, err
}

func (c *oneOfFew) Write(b []byte) (int, error) {
	c.note(func() { c.writing = true })
	defer c.note(func() { c.writing = false })
	return c.Conn.Write(b)
}

func (c *oneOfFew) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c) // nothing, if it has lost its place
	c.of.mu.Unlock()
	select {
	case c.of.freed <- struct{}{}:
	default:
	}
	return c.Conn.Close()
}

type fewKey struct{}

// WithFew makes a connection of Few known to Served. It is for the server's ConnContext.
func WithFew(ctx context.Context, conn net.Conn) context.Context {
	if over, ok := conn.(*tls.Conn); ok {
		conn = over.NetConn()
	}
	if c, ok := conn.(*oneOfFew); ok {
		return context.WithValue(ctx, fewKey{}, c)
	}
	return ctx
}

// Served lets connections keep their place while they are answered.
func Served(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(fewKey{}).(*oneOfFew); ok {
			c.note(func() { c.busy++ })
			defer c.note(func() { c.busy-- })
		}
		h.ServeHTTP(w, r)
	})
}

// quiet is how long ago the peer was heard last, data or not, as the kernel knows
// it: of one that has said nothing, how long it has been connected.
func quiet(conn net.Conn) (d time.Duration) {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	var info *unix.TCPInfo
	failed := raw.Control(func(fd uintptr) {
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	})
	if failed != nil || err != nil {
		return 0
	}
	return time.Duration(info.Last_ack_recv) * time.Millisecond
}
