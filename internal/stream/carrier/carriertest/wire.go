// SPDX-License-Identifier: Apache-2.0

package carriertest

import (
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// Wire is a transport in memory that a test can halt and break. It stands for
// TCP: bytes wait in it, an end that is closed lets its peer read what is left,
// and a death looks like an end, which no session may take for one.
type Wire struct {
	A, B net.Conn

	mu      sync.Mutex
	carried [2]int64 // from A, from B
	cutAt   [2]int64 // negative: never
	dead    bool
}

// wireBuffer is small, so that a wire that is halted soon takes nothing more.
const wireBuffer = 16 << 10

// NewWire makes a wire.
func NewWire() *Wire {
	w := &Wire{cutAt: [2]int64{-1, -1}}
	there, back := w.way(0), w.way(1)
	w.A = &wireEnd{in: back, out: there, local: address(1), remote: address(2)}
	w.B = &wireEnd{in: there, out: back, local: address(2), remote: address(1)}
	return w
}

func (w *Wire) way(from int) *queue {
	q := newQueue(&w.mu, wireBuffer)
	q.pass = func(n int) int {
		if at := w.cutAt[from]; at >= 0 && w.carried[from]+int64(n) > at {
			n = int(at - w.carried[from])
			w.die()
		}
		w.carried[from] += int64(n)
		return n
	}
	return q
}

func (w *Wire) ways() [2]*queue { return [2]*queue{w.A.(*wireEnd).out, w.B.(*wireEnd).out} }

// die needs the lock. What has been carried can still be read.
func (w *Wire) die() {
	w.dead = true
	for _, q := range w.ways() {
		q.halted = false
		q.finish(io.EOF)
		q.block(syscall.ECONNRESET)
		q.change.Broadcast()
	}
}

// Cut breaks the wire.
func (w *Wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.die()
}

// CutAfter breaks the wire when A (or B) has sent n bytes and sends one more.
func (w *Wire) CutAfter(fromA bool, n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cutAt[side(fromA)] = n
}

// Carried is the bytes that A (or B) has sent.
func (w *Wire) Carried(fromA bool) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.carried[side(fromA)]
}

// Dead says whether the wire was cut.
func (w *Wire) Dead() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dead
}

// Halt stops both directions, or lets them go on.
func (w *Wire) Halt(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.ways() {
		q.halted = on && !w.dead
		q.change.Broadcast()
	}
}

func side(fromA bool) int {
	if fromA {
		return 0
	}
	return 1
}

// address is one of a network that is for documentation only (RFC 5737).
func address(host byte) net.Addr {
	return &net.TCPAddr{IP: net.IPv4(192, 0, 2, host), Port: 8443}
}

type wireEnd struct {
	in, out       *queue
	local, remote net.Addr
}

func (e *wireEnd) Read(b []byte) (int, error)  { return e.in.read(b) }
func (e *wireEnd) Write(b []byte) (int, error) { return e.out.write(b) }

func (e *wireEnd) Close() error {
	e.in.mu.Lock()
	defer e.in.mu.Unlock()
	e.out.finish(io.EOF)
	e.out.block(net.ErrClosed)
	e.in.block(syscall.EPIPE)
	e.in.refuse(net.ErrClosed)
	return nil
}

func (e *wireEnd) LocalAddr() net.Addr  { return e.local }
func (e *wireEnd) RemoteAddr() net.Addr { return e.remote }

func (e *wireEnd) SetDeadline(t time.Time) error {
	e.SetReadDeadline(t)
	return e.SetWriteDeadline(t)
}

func (e *wireEnd) SetReadDeadline(t time.Time) error {
	e.in.setDeadline(&e.in.readBy, t)
	return nil
}

func (e *wireEnd) SetWriteDeadline(t time.Time) error {
	e.out.setDeadline(&e.out.writeBy, t)
	return nil
}
