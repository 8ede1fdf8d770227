// SPDX-License-Identifier: Apache-2.0

package otlptest

import (
	"net"
	"sync"
)

// port is the listener of a collector. It keeps its address while the collector is away: another program may take one
// that is free.
type port struct {
	net.Listener

	mu   sync.Mutex
	away bool
	open map[net.Conn]bool
}

// Accept cuts connections while the collector is away.
func (p *port) Accept() (net.Conn, error) {
	for {
		conn, err := p.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := p.enter(conn); c != nil {
			return c, nil
		}
	}
}

func (p *port) enter(conn net.Conn) net.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away {
		cut(conn)
		return nil
	}
	p.open[conn] = true
	return &entered{Conn: conn, port: p}
}

func (p *port) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = true
	for conn := range p.open {
		cut(conn)
	}
	clear(p.open)
}

func (p *port) back() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = false
}

// cut resets a connection, as one to a program that is killed.
func cut(conn net.Conn) {
	if c, ok := conn.(*net.TCPConn); ok {
		c.SetLinger(0)
	}
	conn.Close()
}

// entered is a connection that Stop cuts until it is closed.
type entered struct {
	net.Conn
	port *port
}

// Close implements net.Conn.
func (e *entered) Close() error {
	e.port.mu.Lock()
	delete(e.port.open, e.Conn)
	e.port.mu.Unlock()
	return e.Conn.Close()
}
