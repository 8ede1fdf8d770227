// SPDX-License-Identifier: Apache-2.0

package system

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// link stands between an agent and its hub, and can be cut or frozen, as a
// killed machine or a broken path would be.
type link struct {
	net.Listener
	hub string
	wg  sync.WaitGroup

	mu     sync.Mutex
	frozen chan struct{} // closed when bytes flow again; nil: they flow
	closed bool
	conns  map[*net.TCPConn]struct{}
	pairs  [][2]*net.TCPConn // all that there were, the oldest first
}

func newLink(t *testing.T, hub string) *link {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{Listener: ln, hub: hub, conns: map[*net.TCPConn]struct{}{}}
	l.wg.Go(l.serve)
	t.Cleanup(func() {
		ln.Close()
		l.mu.Lock()
		l.closed = true
		l.mu.Unlock()
		l.thaw()
		l.cut()
		l.wg.Wait()
	})
	return l
}

// through rewrites a join line to go over the link.
func (l *link) through(line string) string {
	return strings.Replace(line, "@"+l.hub+"/", "@"+l.Addr().String()+"/", 1)
}

func (l *link) serve() {
	for {
		near, err := l.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", l.hub)
		if err != nil {
			near.Close()
			continue
		}
		a, b := near.(*net.TCPConn), far.(*net.TCPConn)
		l.mu.Lock()
		l.conns[a], l.conns[b] = struct{}{}, struct{}{}
		l.pairs = append(l.pairs, [2]*net.TCPConn{a, b})
		if l.closed {
			a.Close()
			b.Close()
		}
		l.mu.Unlock()
		l.wg.Go(func() { l.carry(a, b) })
		l.wg.Go(func() { l.carry(b, a) })
	}
}

func (l *link) carry(from, to *net.TCPConn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		l.mu.Lock()
		frozen := l.frozen
		l.mu.Unlock()
		if frozen != nil {
			<-frozen
		}
		if n > 0 {
			if _, werr := to.Write(buf[:n]); werr != nil {
				err = werr
			}
		}
		if err == io.EOF {
			to.CloseWrite()
			return
		}
		if err != nil {
			l.drop(from, to)
			return
		}
	}
}

func (l *link) drop(conns ...*net.TCPConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conns {
		c.SetLinger(0)
		c.Close()
		delete(l.conns, c)
	}
}

// cut resets every connection, as the kernel of a killed process does.
func (l *link) cut() {
	l.mu.Lock()
	all := make([]*net.TCPConn, 0, len(l.conns))
	for c := range l.conns {
		all = append(all, c)
	}
	l.mu.Unlock()
	l.drop(all...)
}

// count says how many connections there have been.
func (l *link) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pairs)
}

// cutOne resets the connection of that number, from 0.
func (l *link) cutOne(i int) {
	l.mu.Lock()
	pair := l.pairs[i]
	l.mu.Unlock()
	l.drop(pair[:]...)
}

// freeze stops every byte without ending a connection.
func (l *link) freeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.frozen == nil {
		l.frozen = make(chan struct{})
	}
}

func (l *link) thaw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.frozen != nil {
		close(l.frozen)
		l.frozen = nil
	}
}
