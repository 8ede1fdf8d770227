// SPDX-License-Identifier: Apache-2.0

// Package listener is the side of a program that listens: it opens a port, accepts
// there, hands accepted connections on, and serves HTTP to them, with bounds on
// everything that a caller controls. It does not know who calls or for what.
package listener

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/socket"
)

// Listen opens a TCP port; setting is the name of the setting in its faults. Accepted
// connections have keepalive but no TCP_USER_TIMEOUT: Linux counts a peer that does not
// read as one that does not acknowledge (tcp(7)), and a client may pause for as long as
// it likes.
func Listen(ctx context.Context, setting, address string) (net.Listener, error) {
	lc := net.ListenConfig{KeepAlive: -1, Control: func(_, _ string, c syscall.RawConn) error {
		return socket.SetKeepAlive(c) // Linux hands it on to accepted sockets, at no system call for each
	}}
	ln, err := lc.Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fault.Newf(fault.CodeAddressBusy, "the address %s is in use", address).
			Whyf("another process listens there").Hint("stop it ('ss -ltnp' names it), or choose another with %s", setting)
	}
	if err != nil {
		return nil, fault.Newf(fault.CodeConfig, "cannot listen on %s", address).Because(err).Hint("correct %s", setting)
	}
	return ln, nil
}

// Accept passes connections to handle until ctx ends. Without a free descriptor it waits
// and tries again.
func Accept(ctx context.Context, ln net.Listener, handle func(net.Conn)) error {
	const first = 5 * time.Millisecond
	pause := first
	for {
		conn, err := ln.Accept()
		switch {
		case err == nil:
			pause = first
			handle(conn)
			continue
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return nil
		}
		run.Wait(ctx, pause)
		pause = min(2*pause, time.Second)
	}
}

// Handoff is a listener for connections that were accepted elsewhere.
type Handoff struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
	addr  net.Addr
}

// NewHandoff makes a Handoff with the address addr.
func NewHandoff(addr net.Addr) *Handoff {
	return &Handoff{conns: make(chan net.Conn), done: make(chan struct{}), addr: addr}
}

// Hand passes a connection to Accept; after Close it closes the connection.
func (l *Handoff) Hand(conn net.Conn) {
	select {
	case l.conns <- conn:
	case <-l.done:
		conn.Close()
	}
}

// Accept implements net.Listener.
func (l *Handoff) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *Handoff) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// Addr implements net.Listener.
func (l *Handoff) Addr() net.Addr { return l.addr }
