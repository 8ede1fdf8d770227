// SPDX-License-Identifier: Apache-2.0

package system

import (
	"io"
	"net"
	"sync"
	"testing"
)

// target is a server on the agent's side; each connection is handled by serve
// and closed when the test ends.
type target struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
	wg    sync.WaitGroup
}

func (s *target) addr() string { return s.Addr().String() }

func serveTarget(t *testing.T, serve func(*net.TCPConn)) *target {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &target{Listener: ln}
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns = append(s.conns, c)
			s.mu.Unlock()
			s.wg.Add(1)
			go func() {
				defer s.wg.Done()
				serve(c.(*net.TCPConn))
			}()
		}
	}()
	t.Cleanup(s.stop)
	return s
}

func (s *target) stop() {
	s.Close()
	s.mu.Lock()
	for _, c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// accepted counts the connections that came.
func (s *target) accepted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// echo returns what it reads and half-closes after the peer did.
func echo(t *testing.T) *target {
	return serveTarget(t, func(c *net.TCPConn) {
		io.Copy(c, c)
		c.Close()
	})
}

// named answers a byte of the caller with its name and the end.
func named(t *testing.T, name string) *target {
	return serveTarget(t, func(c *net.TCPConn) {
		io.ReadFull(c, make([]byte, 1))
		io.WriteString(c, name)
		c.CloseWrite()
		io.Copy(io.Discard, c)
		c.Close()
	})
}

// greeting speaks first: it greets and ends.
func greeting(t *testing.T, text string) *target {
	return serveTarget(t, func(c *net.TCPConn) {
		io.WriteString(c, text)
		c.CloseWrite()
		io.Copy(io.Discard, c)
		c.Close()
	})
}

// replyAfterEnd reads all up to the caller's half-close and answers only then.
func replyAfterEnd(t *testing.T) *target {
	return serveTarget(t, func(c *net.TCPConn) {
		all, err := io.ReadAll(c)
		if err == nil {
			c.Write(append([]byte("got "), all...))
		}
		c.Close()
	})
}

// flood writes for ever; sink reads nothing.
func flood(t *testing.T) *target {
	return serveTarget(t, func(c *net.TCPConn) {
		buf := make([]byte, 64<<10)
		for {
			if _, err := c.Write(buf); err != nil {
				return
			}
		}
	})
}

func sink(t *testing.T) *target {
	return serveTarget(t, func(*net.TCPConn) {})
}
