// SPDX-License-Identifier: Apache-2.0

package runtest

import (
	"io"
	"net"
	"sync"
	"testing"
)

// Target is a server on the agent's side. Its connections are closed when the test ends,
// unless their handler closes them first.
type Target struct {
	listener net.Listener
	mu       sync.Mutex
	conns    []net.Conn
	stopped  bool
	wg       sync.WaitGroup
}

// Serve makes a target that calls serve for each connection.
func Serve(t testing.TB, serve func(*net.TCPConn)) *Target {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Target{listener: ln}
	s.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			if !s.keep(c) {
				c.Close()
				return
			}
			s.wg.Go(func() { serve(c.(*net.TCPConn)) })
		}
	})
	t.Cleanup(s.Stop)
	return s
}

// Echo makes a target that returns what it reads, and ends after its peer did.
func Echo(t testing.TB) *Target {
	return Serve(t, func(c *net.TCPConn) {
		io.Copy(c, c)
		c.Close()
	})
}

// Addr is the listen address.
func (s *Target) Addr() string { return s.listener.Addr().String() }

// Accepted is the number of connections so far.
func (s *Target) Accepted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

func (s *Target) keep(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.conns = append(s.conns, c)
	}
	return !s.stopped
}

// Stop ends the target and waits for its handlers.
func (s *Target) Stop() {
	s.listener.Close()
	s.mu.Lock()
	s.stopped = true
	for _, c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}
