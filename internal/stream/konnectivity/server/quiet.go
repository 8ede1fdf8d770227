// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net"
	"sync/atomic"

	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

// quiet is a listener that can stop to listen while who accepts on it continues to serve.
type quiet struct {
	net.Listener
	until   context.Context
	stopped atomic.Bool
}

func (q *quiet) stop() {
	q.stopped.Store(true)
	q.Listener.Close()
}

// Accept implements net.Listener.
func (q *quiet) Accept() (net.Conn, error) {
	conn, err := q.Listener.Accept()
	if err != nil && q.stopped.Load() {
		<-q.until.Done()
	}
	return conn, err
}

// below makes connections whose TLS tells an end from a loss.
type below struct{ net.Listener }

// Accept implements net.Listener.
func (b below) Accept() (net.Conn, error) {
	conn, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return splice.Below(conn), nil
}
