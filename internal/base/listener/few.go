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

// few is a listener for small requests with at most most open connections. One more
// evicts a connection that has been silent beyond its grace; if there is none, it
// waits, and all later ones with it, in the kernel's queue.
//
//	accept ──► slot free ─────────────────────────────────────────► in
//	             └─ none: the new one has been silent too long ───► evict it
//	                        └─ else one of the others has ────────► evict that, in
//	                                  └─ none ────────────────────► wait for one, or for a slot
//
// Time in the kernel's queue counts as silence, so that silent connections are evicted
// as fast as they can be accepted, and a probe, whose first bytes have arrived
// meanwhile, is delayed by a flood for little more than one grace. A connection that
// is being answered, or has unread bytes, waits for us and keeps its slot.
type few struct {
	net.Listener
	most   int
	shed   func() // counts an evicted connection
	unread func(net.Conn) int
	freed  chan struct{} // signalled when a slot is freed
	closed chan struct{}
	once   sync.Once

	mu   sync.Mutex
	open map[*oneOfFew]struct{}
}

// Few bounds the connections that a listener has open at a time; it calls shed for
// each one that it evicts. Wrap the server's handler in Served.
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

// enter gives a connection a slot; nil if it was evicted itself.
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

// room takes a slot for c. If there is none it returns the connection to evict, which
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

// oneOfFew is a connection that frees its slot when it is closed.
type oneOfFew struct {
	net.Conn
	of *few

	// Under the lock of few.
	since   time.Time // last activity
	placed  bool
	busy    int // requests that are being answered
	reading bool
	writing bool
}

// patience is how much longer the connection may stay silent.
func (c *oneOfFew) patience(now time.Time) time.Duration {
	grace := limit.SilentLeast
	switch {
	case c.writing: // the peer does not read its answer
		grace = limit.SilentGrace
	case c.busy > 0, c.placed && !c.reading: // the peer waits for us
		return grace
	}
	left := c.since.Add(grace).Sub(now)
	if left <= 0 && !c.writing && c.of.unread(c.Conn) > 0 { // so it does in this case
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
	delete(c.of.open, c) // a no-op if it was evicted
	c.of.mu.Unlock()
	select {
	case c.of.freed <- struct{}{}:
	default:
	}
	return c.Conn.Close()
}

type fewKey struct{}

// WithFew makes a connection of Few known to Served: use it as the server's ConnContext.
func WithFew(ctx context.Context, conn net.Conn) context.Context {
	if over, ok := conn.(*tls.Conn); ok {
		conn = over.NetConn()
	}
	if c, ok := conn.(*oneOfFew); ok {
		return context.WithValue(ctx, fewKey{}, c)
	}
	return ctx
}

// Served lets connections keep their slot while they are answered.
func Served(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(fewKey{}).(*oneOfFew); ok {
			c.note(func() { c.busy++ })
			defer c.note(func() { c.busy-- })
		}
		h.ServeHTTP(w, r)
	})
}

// quiet is the time since the last segment from the peer, as the kernel counts it; for a
// silent peer the time since it connected.
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
