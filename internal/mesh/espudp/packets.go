// SPDX-License-Identifier: Apache-2.0

package espudp

import (
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
)

// Packets are those of QUIC, as a net.PacketConn. Closing it does nothing: it ends with its socket.
type Packets struct {
	socket   *Socket
	queue    *queue
	deadline deadline
}

// Address is one of a Packets: the other end, and the address of this machine that it talks to. Its text is the other
// end's alone.
type Address struct {
	To    netip.AddrPort
	Local netip.Addr // not valid: the kernel chooses
}

// Network is that of all of them.
func (Address) Network() string { return "udp" }

func (a Address) String() string { return a.To.String() }

// Ends are both ends: the other one, and the address of this machine.
func (a Address) Ends() (to netip.AddrPort, local netip.Addr) { return a.To, a.Local }

// Address is what packets are sent to.
//
//	local: the address to send from; not valid: the kernel chooses
func (*Packets) Address(to netip.AddrPort, local netip.Addr) net.Addr {
	return Address{netip.AddrPortFrom(to.Addr().Unmap(), to.Port()), local.Unmap()}
}

// ReadFrom reads a packet of QUIC; its sender is an Address.
func (p *Packets) ReadFrom(b []byte) (int, net.Addr, error) {
	over, closed := p.deadline.channels()
	select {
	case <-closed:
		return 0, nil, net.ErrClosed
	case <-over:
		return 0, nil, os.ErrDeadlineExceeded
	case x := <-p.queue.full:
		defer p.queue.back(x)
		return copy(b, x.data), p.Address(x.from, x.local), nil
	}
}

// WriteTo sends a packet.
func (p *Packets) WriteTo(b []byte, to net.Addr) (int, error) {
	a, ok := to.(Address)
	if !ok {
		return 0, &net.AddrError{Err: "it is none of this socket", Addr: to.String()}
	}
	if err := p.socket.Send(a.To, a.Local, b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// LocalAddr is the port, at all addresses.
func (p *Packets) LocalAddr() net.Addr { return &net.UDPAddr{Port: int(p.socket.port)} }

// Close does nothing.
func (*Packets) Close() error { return nil }

func (p *Packets) close() { p.deadline.close() }

// SetReadDeadline bounds how long ReadFrom waits; a zero time: not at all.
func (p *Packets) SetReadDeadline(t time.Time) error { p.deadline.set(t); return nil }

// SetDeadline is SetReadDeadline: WriteTo does not wait.
func (p *Packets) SetDeadline(t time.Time) error { return p.SetReadDeadline(t) }

// SetWriteDeadline does nothing: WriteTo does not wait.
func (*Packets) SetWriteDeadline(time.Time) error { return nil }

// SetReadBuffer does nothing: the buffer is the socket's. QUIC prints a warning about a connection without it.
func (*Packets) SetReadBuffer(int) error { return nil }

// SetWriteBuffer does nothing, likewise.
func (*Packets) SetWriteBuffer(int) error { return nil }

// deadline wakes who waits when it has passed, or when all is closed.
type deadline struct {
	mu     sync.Mutex
	timer  *time.Timer
	over   chan struct{} // closed when it has passed
	passed bool
	ended  chan struct{}
	once   sync.Once
}

func (d *deadline) init() { d.over, d.ended = make(chan struct{}), make(chan struct{}) }

func (d *deadline) channels() (over, ended <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.over, d.ended
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if d.passed {
		d.over, d.passed = make(chan struct{}), false
	}
	if t.IsZero() {
		return
	}
	if wait := time.Until(t); wait > 0 {
		var timer *time.Timer
		timer = time.AfterFunc(wait, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.timer == timer { // nobody has set another one
				d.passLocked()
			}
		})
		d.timer = timer
		return
	}
	d.passLocked()
}

func (d *deadline) passLocked() {
	if !d.passed {
		close(d.over)
		d.passed = true
	}
}

func (d *deadline) close() {
	d.once.Do(func() { close(d.ended) })
}
