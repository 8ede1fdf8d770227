// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
)

// oneConn is a listener with one connection.
type oneConn struct {
	net.Listener
	conn chan net.Conn
	done chan struct{}
}

func (l oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l oneConn) Close() error   { close(l.done); return nil }
func (l oneConn) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

// TestAConnectionThatIsNoAgents: who connects to the agents' port and opens no stream does not stay.
func TestAConnectionThatIsNoAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		ln := oneConn{conn: make(chan net.Conn, 1), done: make(chan struct{})}
		ln.conn <- far
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		agents := NewAgents(AgentsOptions{Log: slog.New(slog.DiscardHandler)})
		go func() { served <- agents.Serve(ctx, ln) }()
		conn, err := grpc.NewClient("passthrough:///memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return near, nil }))
		if err != nil {
			t.Fatal(err)
		}
		conn.Connect()
		for conn.GetState() != connectivity.Ready {
			conn.WaitForStateChange(ctx, conn.GetState())
		}
		begin := time.Now()
		waiting, end := context.WithTimeout(ctx, 2*silentAgent)
		conn.WaitForStateChange(waiting, connectivity.Ready)
		end()
		if took := time.Since(begin).Round(time.Second); took != silentAgent {
			t.Errorf("it stays for %v, want %v", took, silentAgent)
		}
		conn.Close()
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}
