// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"container/list"
	"net"
	"sync"
)

// few is a listener whose callers ask for little: at most so many connections are
// open, and one more costs the oldest its place. Who asks for little needs
// milliseconds, so that the oldest are those who hold a place and say nothing.
type few struct {
	net.Listener
	most int
	shed func() // counts one that lost its place

	mu    sync.Mutex
	order list.List // of *oneOfFew, the oldest first
}

// Few bounds the connections that a listener has open at a time; shed counts who
// loses its place.
func Few(ln net.Listener, most int, shed func()) net.Listener {
	return &few{Listener: ln, most: most, shed: shed}
}

func (l *few) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.enter(conn), nil
}

func (l *few) enter(conn net.Conn) net.Conn {
	c := &oneOfFew{Conn: conn, of: l}
	l.mu.Lock()
	c.place = l.order.PushBack(c)
	var oldest *oneOfFew
	if l.order.Len() > l.most {
		oldest = l.order.Remove(l.order.Front()).(*oneOfFew)
	}
	l.mu.Unlock()
	if oldest != nil {
		oldest.Conn.Close()
		l.shed()
	}
	return c
}

// oneOfFew gives its place back when it is closed.
type oneOfFew struct {
	net.Conn
	of    *few
	place *list.Element
}

func (c *oneOfFew) Close() error {
	c.of.mu.Lock()
	c.of.order.Remove(c.place) // nothing, if it has lost its place
	c.of.mu.Unlock()
	return c.Conn.Close()
}
