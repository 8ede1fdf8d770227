// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"container/list"
	"net"
	"sync"
)

// Strangers are the connections whose peer has not proved who it is. There are
// at most so many; one more costs the oldest its place. An honest peer needs
// milliseconds, so that the oldest are those who hold a place and say nothing,
// and nobody is locked out by them.
type Strangers struct {
	most int
	shed func() // counts one that lost its place

	mu    sync.Mutex
	order list.List // of net.Conn, the oldest first
}

// NewStrangers makes places for so many; shed counts who loses one.
func NewStrangers(most int, shed func()) *Strangers { return &Strangers{most: most, shed: shed} }

// Add takes a connection in. The returned function takes it out, once: when its
// peer is known, or the connection has ended.
func (s *Strangers) Add(conn net.Conn) (known func()) {
	s.mu.Lock()
	place := s.order.PushBack(conn)
	var oldest net.Conn
	if s.order.Len() > s.most {
		oldest = s.order.Remove(s.order.Front()).(net.Conn)
	}
	s.mu.Unlock()
	if oldest != nil {
		oldest.Close()
		s.shed()
	}
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.order.Remove(place) // nothing, if it has lost its place
	})
}

// few is a listener on which strangers ask for little: at most so many connections
// are open, and one more costs the oldest its place.
type few struct {
	net.Listener
	conns *Strangers
}

// Few bounds the connections that a listener has open at a time.
func Few(ln net.Listener, most int, shed func()) net.Listener {
	return &few{ln, NewStrangers(most, shed)}
}

func (l *few) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &oneOfFew{Conn: conn, gone: l.conns.Add(conn)}, nil
}

// oneOfFew gives its place back when it is closed.
type oneOfFew struct {
	net.Conn
	gone func()
	once sync.Once
}

func (c *oneOfFew) Close() error {
	c.once.Do(c.gone)
	return c.Conn.Close()
}
