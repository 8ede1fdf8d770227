// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"sync"
)

// gate is a way to the service that can be closed: what is under way then waits,
// and nobody is told. A gate with several services behind it is a balancer.
type gate struct {
	to     func() string // for each connection
	ln     net.Listener
	wg     sync.WaitGroup
	mu     sync.Mutex
	open   *sync.Cond
	closed bool
	refuse bool // new connections end at once
	over   bool
	conns  map[net.Conn]bool
}

func newGate(at string, to func() string) (*gate, error) {
	ln, err := net.Listen("tcp", at)
	if err != nil {
		return nil, err
	}
	g := &gate{to: to, ln: ln, conns: map[net.Conn]bool{}}
	g.open = sync.NewCond(&g.mu)
	g.wg.Go(g.accept)
	return g, nil
}

func (g *gate) address() string { return g.ln.Addr().String() }

func (g *gate) accept() {
	for {
		in, err := g.ln.Accept()
		if err != nil {
			return
		}
		g.wg.Go(func() { g.carry(in) })
	}
}

func (g *gate) carry(in net.Conn) {
	defer in.Close()
	out, err := net.Dial("tcp", g.to())
	if err != nil {
		return
	}
	defer out.Close()
	if !g.keep(in, out) {
		return
	}
	defer g.drop(in, out)
	var wg sync.WaitGroup
	wg.Go(func() { g.copy(out, in) })
	g.copy(in, out)
	wg.Wait()
}

func (g *gate) keep(conns ...net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.refuse {
		for _, c := range conns {
			g.conns[c] = true
		}
	}
	return !g.over && !g.refuse
}

func (g *gate) drop(conns ...net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range conns {
		delete(g.conns, c)
	}
}

// copy carries bytes while the gate is open. The end of one way ends both.
func (g *gate) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		g.wait()
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (g *gate) wait() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.closed && !g.over {
		g.open.Wait()
	}
}

func (g *gate) shut(closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = closed
	g.open.Broadcast()
}

// cut ends what lives, as a NAT that restarts does.
func (g *gate) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.conns {
		c.Close()
	}
}

// bar ends what lives and takes nothing new, until it is lifted.
func (g *gate) bar(refuse bool) {
	g.mu.Lock()
	g.refuse = refuse
	g.mu.Unlock()
	if refuse {
		g.cut()
	}
}

func (g *gate) end() {
	g.mu.Lock()
	g.over = true
	g.mu.Unlock()
	g.ln.Close()
	g.shut(false)
	g.cut()
	g.wg.Wait()
}
