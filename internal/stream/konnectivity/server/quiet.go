// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net"
	"sync/atomic"
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
