// SPDX-License-Identifier: Apache-2.0

package runtest

import (
	"context"
	"net"
	"sync"
)

// Memory is a listener in memory. It makes no timers unless a deadline is set, which keeps
// it usable by the hundred within a synctest bubble; its connections hold no bytes.
type Memory struct {
	conns chan net.Conn
	done  chan struct{}
	close func()
}

// ListenMemory makes a listener; Close ends it.
func ListenMemory() *Memory {
	m := &Memory{conns: make(chan net.Conn), done: make(chan struct{})}
	m.close = sync.OnceFunc(func() { close(m.done) })
	return m
}

// DialContext connects to the listener: net.ErrClosed once that is closed.
func (m *Memory) DialContext(ctx context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case m.conns <- far:
		return near, nil
	case <-m.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept waits for a connection.
func (m *Memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.done:
		return nil, net.ErrClosed
	}
}

// Close ends the listener; its connections stay.
func (m *Memory) Close() error {
	m.close()
	return nil
}

// Addr says that it is in memory.
func (m *Memory) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "memory"} }
