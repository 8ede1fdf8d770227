// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"container/list"
	"net"
	"sync"
)

// strangers are the connections whose peer has not proved who it is. There are
// at most so many; one more costs the oldest its place. An honest peer needs
// milliseconds, so that the oldest are those who hold a place and say nothing,
// and nobody is locked out by them.
type strangers struct {
	most int
	shed func() // counts one that lost its place

	mu    sync.Mutex
	order list.List // of net.Conn, the oldest first
}

func newStrangers(most int, shed func()) *strangers { return &strangers{most: most, shed: shed} }

// add takes a connection in. The returned function takes it out, once: when its
// peer is known, or the connection has ended.
func (s *strangers) add(conn net.Conn) (known func()) {
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
